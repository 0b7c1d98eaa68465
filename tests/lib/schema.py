# SPDX-License-Identifier: Apache-2.0
"""The part of JSON Schema that docs/schemas uses: enough to hold the output to it."""
import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "required", "properties", "items",
         "additionalProperties", "enum", "const", "minimum", "maximum", "pattern", "oneOf", "format",
         "minItems", "maxItems", "$comment", "examples", "default", "minLength", "maxLength"}


def is_type(v, name):
    if name == "integer":
        return isinstance(v, int) and not isinstance(v, bool)
    if name == "number":
        return isinstance(v, (int, float)) and not isinstance(v, bool)
    return isinstance(v, TYPES[name])


def check(v, s, top, at="$"):
    """A list of what is wrong with value v under schema s."""
    unknown = set(s) - KNOWN
    assert not unknown, f"{at}: this checker does not know {unknown}"
    if "$ref" in s:
        node = top
        for part in s["$ref"].removeprefix("#/").split("/"):
            node = node[part]
        return check(v, node, top, at)
    if "oneOf" in s:
        good = [o for o in s["oneOf"] if not check(v, o, top, at)]
        return [] if len(good) == 1 else [f"{at}: fits {len(good)} of oneOf"]
    types = s.get("type")
    if types and not any(is_type(v, t) for t in ([types] if isinstance(types, str) else types)):
        return [f"{at}: {v!r} is not of type {types}"]
    bad = []
    if "enum" in s and v not in s["enum"]:
        bad.append(f"{at}: {v!r} is none of {s['enum']}")
    if "const" in s and v != s["const"]:
        bad.append(f"{at}: {v!r} is not {s['const']!r}")
    if "minimum" in s and v < s["minimum"]:
        bad.append(f"{at}: {v} is below {s['minimum']}")
    if isinstance(v, dict):
        props = s.get("properties", {})
        bad += [f"{at}: no {k!r}" for k in s.get("required", []) if k not in v]
        for k, x in v.items():
            if k in props:
                bad += check(x, props[k], top, f"{at}.{k}")
            elif s.get("additionalProperties") is False:
                bad.append(f"{at}: {k!r} is not in the schema")
    if isinstance(v, list) and "items" in s:
        for i, x in enumerate(v):
            bad += check(x, s["items"], top, f"{at}[{i}]")
    return bad


def assert_valid(text, name):
    """JSON text fits docs/schemas/NAME.json; the value."""
    with open(os.path.join(ROOT, "docs", "schemas", name + ".json"), encoding="utf-8") as f:
        s = json.load(f)
    v = json.loads(text)
    bad = check(v, s, s)
    assert not bad, f"{name}: " + "; ".join(bad[:10])
    return v
