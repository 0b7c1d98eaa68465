# SPDX-License-Identifier: Apache-2.0
"""The part of JSON Schema that docs/schemas uses: enough to hold the output to it."""
import json
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "required", "properties", "items",
         "additionalProperties", "propertyNames", "minProperties", "maxProperties", "enum", "const", "minimum",
         "maximum", "pattern", "oneOf", "format", "minItems", "maxItems", "uniqueItems", "$comment", "examples",
         "default", "minLength", "maxLength"}


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
    bad = []
    if "$ref" in s:
        node = top
        for part in s["$ref"].removeprefix("#/").split("/"):
            node = node[part]
        bad += check(v, node, top, at)
    if "oneOf" in s:
        good = [o for o in s["oneOf"] if not check(v, o, top, at)]
        bad += [] if len(good) == 1 else [f"{at}: fits {len(good)} of oneOf"]
    types = s.get("type")
    if types and not any(is_type(v, t) for t in ([types] if isinstance(types, str) else types)):
        return bad + [f"{at}: {v!r} is not of type {types}"]
    if "enum" in s and v not in s["enum"]:
        bad.append(f"{at}: {v!r} is none of {s['enum']}")
    if "const" in s and v != s["const"]:
        bad.append(f"{at}: {v!r} is not {s['const']!r}")
    if is_type(v, "number"):
        bad += limits(v, s, at, "minimum", "maximum")
    if isinstance(v, str):
        bad += limits(len(v), s, at, "minLength", "maxLength")
        if "pattern" in s and not re.search(s["pattern"].removesuffix("$") + r"\Z" if s["pattern"].endswith("$")
                                            else s["pattern"], v):
            bad.append(f"{at}: {v!r} does not match {s['pattern']}")
    if isinstance(v, dict):
        props = s.get("properties", {})
        more = s.get("additionalProperties", True)
        bad += limits(len(v), s, at, "minProperties", "maxProperties")
        bad += [f"{at}: no {k!r}" for k in s.get("required", []) if k not in v]
        for k, x in v.items():
            if "propertyNames" in s:
                bad += check(k, s["propertyNames"], top, f"{at}.{k} (its name)")
            if k in props:
                bad += check(x, props[k], top, f"{at}.{k}")
            elif more is False:
                bad.append(f"{at}: {k!r} is not in the schema")
            elif isinstance(more, dict):
                bad += check(x, more, top, f"{at}.{k}")
    if isinstance(v, list):
        bad += limits(len(v), s, at, "minItems", "maxItems")
        if s.get("uniqueItems") and len({json.dumps(x, sort_keys=True) for x in v}) != len(v):
            bad.append(f"{at}: something stands twice")
        for i, x in enumerate(v if "items" in s else []):
            bad += check(x, s["items"], top, f"{at}[{i}]")
    return bad


def limits(n, s, at, low, high):
    bad = []
    if low in s and n < s[low]:
        bad.append(f"{at}: {n} is below {low} {s[low]}")
    if high in s and n > s[high]:
        bad.append(f"{at}: {n} is above {high} {s[high]}")
    return bad


def load(name):
    with open(os.path.join(ROOT, "docs", "schemas", name + ".json"), encoding="utf-8") as f:
        return json.load(f)


def assert_valid(text, name):
    """JSON text fits docs/schemas/NAME.json; the value."""
    s = load(name)
    v = json.loads(text)
    bad = check(v, s, s)
    assert not bad, f"{name}: " + "; ".join(bad[:10])
    return v
