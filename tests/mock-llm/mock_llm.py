#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A mock LLM server that plays a scripted scenario to real coding agents.

Speaks enough of four wire protocols for unmodified command line agents to
finish a session against it (see README.md):

  Anthropic Messages        POST /v1/messages
  OpenAI Responses          POST /v1/responses
  OpenAI Chat Completions   POST /v1/chat/completions
  Gemini                    POST /v1beta/models/M:generateContent and
                            POST /v1beta/models/M:streamGenerateContent

Python 3.9 or newer, standard library only.
"""

import argparse
import base64
import gzip
import json
import os
import re
import shlex
import signal
import socketserver
import ssl
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

CREDENTIAL_HEADERS = (
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
    "proxy-authorization",
)
RESULT_LIMIT = 4000
DEFAULT_SIDE_TEXT = "Mock session"
FINISHED_TEXT = "The scenario has no more steps."


# --------------------------------------------------------------- scenarios

class ScenarioError(Exception):
    pass


class Scenario:
    """Steps of one scripted session, in order."""

    def __init__(self, data, name="inline"):
        if isinstance(data, list):
            data = {"steps": data}
        if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
            raise ScenarioError(
                "%s: want a list of steps or an object with a list 'steps'" % name)
        self.name = name
        self.steps = data["steps"]
        self.cwd = data.get("cwd")
        self.side_text = data.get("side_text", DEFAULT_SIDE_TEXT)
        for i, step in enumerate(self.steps):
            self._check(step, "%s: step %d" % (name, i))
        self._failures = {}
        self._lock = threading.Lock()

    @staticmethod
    def _check(step, where):
        if not isinstance(step, dict):
            raise ScenarioError("%s: not an object" % where)
        kinds = [k for k in ("tool", "text", "parallel") if k in step]
        if "tool" in step and "parallel" in step:
            raise ScenarioError("%s: has both 'tool' and 'parallel'" % where)
        if not kinds:
            raise ScenarioError("%s: needs 'tool', 'parallel' or 'text'" % where)
        calls = step.get("parallel", [step] if "tool" in step else [])
        if not isinstance(calls, list):
            raise ScenarioError("%s: 'parallel' is not a list" % where)
        for call in calls:
            tool = call.get("tool") if isinstance(call, dict) else None
            if tool not in NEEDS:
                raise ScenarioError("%s: unknown tool %r (known: %s)"
                                    % (where, tool, ", ".join(sorted(NEEDS))))
            missing = [k for k in NEEDS[tool] if k not in call]
            if missing:
                raise ScenarioError("%s: tool %s needs %s"
                                    % (where, tool, ", ".join(missing)))

    def take_failure(self, index):
        """The error to answer at this step, or None; counts down 'times'."""
        fail = self.steps[index].get("fail")
        if not fail:
            return None
        with self._lock:
            left = self._failures.setdefault(index, int(fail.get("times", 1)))
            if left <= 0:
                return None
            self._failures[index] = left - 1
        return fail


NEEDS = {
    "write_file": ("path", "content"),
    "edit_file": ("path", "old", "new"),
    "read_file": ("path",),
    "shell": ("command",),
    "raw": ("name", "input"),
}


class ScenarioSet:
    """The default scenario, and the named ones of a folder (/s/NAME/...)."""

    def __init__(self, default, folder=None):
        self.default = default
        self.folder = folder
        self._named = {}
        self._lock = threading.Lock()

    def named(self, name):
        if not self.folder or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            return None
        with self._lock:
            if name not in self._named:
                path = os.path.join(self.folder, name + ".json")
                try:
                    self._named[name] = load_scenario(path)
                except OSError:
                    return None
            return self._named[name]


def load_scenario(path):
    with open(path, encoding="utf-8") as f:
        try:
            return Scenario(json.load(f), os.path.basename(path))
        except ValueError as e:
            raise ScenarioError("%s: %s" % (path, e))


# ------------------------------------------- mapping steps onto real tools

class Tool:
    """A tool that the client offered in its request."""

    def __init__(self, name, schema=None, kind="function", namespace=None,
                 nested=()):
        self.name = name
        self.kind = kind            # function, custom or local_shell
        self.namespace = namespace
        self.nested = list(nested)  # tools that this one's scripts can call
        schema = schema if isinstance(schema, dict) else {}
        props = schema.get("properties")
        self.props = props if isinstance(props, dict) else {}
        req = schema.get("required")
        self.required = [r for r in req if isinstance(r, str)] \
            if isinstance(req, list) else []


class Call:
    """A call of a real tool: arguments for functions, text for custom tools."""

    def __init__(self, tool, args=None, text=None):
        self.tool = tool
        self.args = args
        self.text = text
        self.id = None


WRITE_TOOLS = ("Write", "write", "write_file", "create_file")
EDIT_TOOLS = ("Edit", "edit", "replace", "edit_file", "str_replace")
READ_TOOLS = ("Read", "read", "read_file")
SHELL_TOOLS = ("Bash", "bash", "run_shell_command", "exec_command",
               "shell_command", "shell", "local_shell", "container.exec")
PATH_ARGS = ("file_path", "filePath", "absolute_path", "path", "filename")
CONTENT_ARGS = ("content", "contents", "file_text", "text")
OLD_ARGS = ("old_string", "oldString", "old_str", "old")
NEW_ARGS = ("new_string", "newString", "new_str", "new")
COMMAND_ARGS = ("command", "cmd", "script")
PATCH_ARGS = ("patchText", "patch", "input")


def pick(tools, names):
    for name in names:
        for tool in tools:
            if tool.name == name:
                return tool
    return None


def fill(tool, wanted):
    """Arguments for a tool: wanted is [(possible names, value), ...]."""
    args = {}
    for names, value in wanted:
        name = next((n for n in names if n in tool.props), names[0])
        spec = tool.props.get(name)
        if isinstance(spec, dict) and spec.get("type") in ("array", "ARRAY") \
                and isinstance(value, str):
            value = ["bash", "-lc", value]
        args[name] = value
    for name in tool.required:
        if name not in args:
            args[name] = example(tool.props.get(name), name)
    if "description" in tool.props and "description" not in args:
        args["description"] = "Scripted step"
    return args


def example(schema, name="", depth=0):
    """A small value that fits a JSON schema."""
    if not isinstance(schema, dict) or depth > 8:
        return "mock"
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if "default" in schema:
        return schema["default"]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return example(schema[key][0], name, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    kind = str(kind).lower() if kind else \
        ("object" if "properties" in schema else "string")
    if kind == "object":
        props = schema.get("properties") or {}
        return {k: example(v, k, depth + 1) for k, v in props.items()}
    if kind == "array":
        n = int(schema.get("minItems") or 0)
        return [example(schema.get("items"), name, depth + 1) for _ in range(n)]
    if kind == "boolean":
        return False
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind == "null":
        return None
    return "Mock " + (name or "value")


def full_path(path, cwd):
    if os.path.isabs(path) or not cwd:
        return path
    return os.path.normpath(os.path.join(cwd, path))


def patch_lines(mark, text):
    return "".join(mark + line + "\n" for line in text.splitlines())


def patch_call(tool, patch):
    if tool.kind == "custom":
        return Call(tool, text=patch)
    return Call(tool, args=fill(tool, [(PATCH_ARGS, patch)]))


def shell_call(tools, command):
    tool = pick(tools, SHELL_TOOLS)
    if not tool:
        return None
    if tool.kind == "local_shell":
        return Call(tool, args={"type": "exec", "env": {},
                                "command": ["bash", "-lc", command]})
    return Call(tool, args=fill(tool, [(COMMAND_ARGS, command)]))


def map_step(step, tools, cwd):
    """The Call for one abstract step, or None if no offered tool fits."""
    call = map_direct(step, tools, cwd)
    if call is None:
        # Codex's "code mode": one tool runs a script that calls the others.
        for tool in tools:
            inner = map_direct(step, tool.nested, cwd) if tool.nested else None
            if inner:
                arg = inner.args if inner.text is None else inner.text
                return Call(tool, text="text(await tools.%s(%s));\n"
                            % (inner.tool.name, json.dumps(arg)))
    return call


def nested_tools(description):
    """The tools that a script tool's description says it can call."""
    nested = []
    if "apply_patch(input: string)" in description:
        nested.append(Tool("apply_patch", kind="custom"))
    if "exec_command(args:" in description:
        nested.append(Tool("exec_command", {"properties": {"cmd": {}}}))
    return nested


def map_direct(step, tools, cwd):
    kind = step["tool"]
    if kind == "raw":
        tool = pick(tools, (step["name"],)) or Tool(step["name"])
        if isinstance(step["input"], str):
            tool.kind = "custom"
            return Call(tool, text=step["input"])
        return Call(tool, args=step["input"])
    if kind == "shell":
        return shell_call(tools, step["command"])
    path = step["path"]
    absolute = full_path(path, cwd)
    if kind == "write_file":
        tool = pick(tools, WRITE_TOOLS)
        if tool:
            return Call(tool, args=fill(tool, [(PATH_ARGS, absolute),
                                               (CONTENT_ARGS, step["content"])]))
        tool = pick(tools, ("apply_patch",))
        if tool and step["content"].endswith("\n"):
            return patch_call(tool, "*** Begin Patch\n*** Add File: %s\n%s"
                              "*** End Patch\n"
                              % (path, patch_lines("+", step["content"])))
        data = base64.b64encode(step["content"].encode()).decode()
        where = shlex.quote(path)
        return shell_call(tools, 'mkdir -p -- "$(dirname -- %s)" && '
                          "printf %%s %s | base64 -d > %s" % (where, data, where))
    if kind == "edit_file":
        tool = pick(tools, EDIT_TOOLS)
        if tool:
            return Call(tool, args=fill(tool, [(PATH_ARGS, absolute),
                                               (OLD_ARGS, step["old"]),
                                               (NEW_ARGS, step["new"])]))
        tool = pick(tools, ("apply_patch",))
        if tool:
            return patch_call(tool, "*** Begin Patch\n*** Update File: %s\n@@\n%s%s"
                              "*** End Patch\n"
                              % (path, patch_lines("-", step["old"]),
                                 patch_lines("+", step["new"])))
        return shell_call(tools, "OLD=%s NEW=%s perl -0777 -pi -e "
                          "'s/\\Q$ENV{OLD}\\E/$ENV{NEW}/' -- %s"
                          % (shlex.quote(step["old"]), shlex.quote(step["new"]),
                             shlex.quote(path)))
    if kind == "read_file":
        tool = pick(tools, READ_TOOLS)
        if tool:
            return Call(tool, args=fill(tool, [(PATH_ARGS, absolute)]))
        return shell_call(tools, "cat -- " + shlex.quote(path))
    return None


# How each agent tells the model which folder it works in.
CWD_PATTERNS = [re.compile(p) for p in (
    r"<cwd>([^<\n]+)</cwd>",
    r"(?im)^\s*[-*]?\s*(?:primary )?working directory:\s*([^\n]+?)\s*$",
    r"(?i)working in (?:the )?(?:current )?director(?:y|ies):?\s*\n?\s*-?\s*(/[^\n]+?)\s*$",
    r"(?im)workspace director(?:y|ies):\**\s*\n?\s*-?\s*(/[^\n]+?)\s*$",
    r"(?im)current working directory(?: is)?:?\s*(/[^\n]+?)\s*$",
)]


def find_cwd(texts):
    for text in texts:
        for pattern in CWD_PATTERNS:
            m = pattern.search(text)
            if m and m.group(1).startswith("/"):
                return m.group(1).strip().rstrip(".")
    return None


# ----------------------------------------------------- a request, normalised

class Turn:
    """What the protocols have in common about one request."""

    def __init__(self):
        self.model = None
        self.stream = False
        self.tools = []
        self.schema = None       # the JSON schema that the answer must fit
        self.history = []        # ("calls", [ids]) or ("text", text) of the model
        self.results = []        # (id, text) of the newest tool results
        self.texts = []          # system and user texts
        self.prompt = ""         # the newest user text
        self.max_tokens = None


CALL_ID = re.compile(r"mock_(\d{4})_\d+")


def position(turn, scenario):
    """Index of the next step: found in the history that the client sent."""
    steps = scenario.steps
    pos = 0
    for kind, value in turn.history:
        if kind == "calls":
            known = [int(m.group(1)) for m in
                     (CALL_ID.search(i or "") for i in value) if m]
            pos = max(known) + 1 if known else pos + 1
        elif pos < len(steps) and "tool" not in steps[pos] \
                and "parallel" not in steps[pos] \
                and (steps[pos].get("text") or "").strip() == value.strip():
            pos += 1
    return pos


class Reply:
    """What to answer: text, or calls with an optional text before them."""

    def __init__(self, kind, text="", calls=(), step=None):
        self.kind = kind          # step, side or finished
        self.text = text
        self.calls = list(calls)
        self.step = step
        self.sleep = 0
        self.fail = None


def decide(turn, scenario):
    pos = position(turn, scenario)
    if turn.schema is not None:
        return Reply("side", json.dumps(example(turn.schema)))
    if pos >= len(scenario.steps):
        if not turn.tools:
            return Reply("side", scenario.side_text)
        return Reply("finished", FINISHED_TEXT)
    step = scenario.steps[pos]
    if not turn.tools or turn.max_tokens == 1:
        return Reply("side", scenario.side_text
                     if "tool" in step or "parallel" in step else step["text"])
    cwd = scenario.cwd or find_cwd(turn.texts)
    calls = []
    for part in step.get("parallel", [step] if "tool" in step else []):
        call = map_step(part, turn.tools, cwd)
        if call is None:
            return Reply("step", "MOCK ERROR: step %d: the client offers no tool "
                         "for %s (it offers: %s)"
                         % (pos, part["tool"],
                            ", ".join(t.name for t in turn.tools)), step=pos)
        calls.append(call)
    for n, call in enumerate(calls):
        call.id = "mock_%04d_%d" % (pos, n)
    reply = Reply("step", step.get("text", ""), calls, pos)
    reply.sleep = float(step.get("sleep", 0))
    reply.fail = scenario.take_failure(pos)
    return reply


def as_text(value):
    """Text of a tool result or message content, whatever its shape."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(t for t in map(as_text, value) if t)
    if isinstance(value, dict):
        for key in ("text", "output", "content", "error"):
            if key in value:
                return as_text(value[key])
        return json.dumps(value)
    return str(value)


def estimate(value):
    return max(1, len(json.dumps(value)) // 4)


# ------------------------------------------------------------- the protocols

class Anthropic:
    name = "anthropic"

    @staticmethod
    def parse(body, _path):
        t = Turn()
        t.model = body.get("model")
        t.stream = bool(body.get("stream"))
        t.max_tokens = body.get("max_tokens")
        for tool in body.get("tools") or []:
            t.tools.append(Tool(tool.get("name", "?"), tool.get("input_schema")))
        fmt = body.get("output_format") or \
            (body.get("output_config") or {}).get("format") or {}
        if fmt.get("type") == "json_schema":
            t.schema = fmt.get("schema") or {}
        t.texts.append(as_text(body.get("system")))
        for m in body.get("messages") or []:
            content = m.get("content")
            blocks = content if isinstance(content, list) else \
                [{"type": "text", "text": content or ""}]
            blocks = [b for b in blocks if isinstance(b, dict)]
            if m.get("role") == "assistant":
                ids = [b.get("id") for b in blocks if b.get("type") == "tool_use"]
                text = as_text([b for b in blocks if b.get("type") == "text"])
                t.history.append(("calls", ids) if ids else ("text", text))
                t.results = []
            else:
                for b in blocks:
                    if b.get("type") == "tool_result":
                        t.results.append((b.get("tool_use_id"),
                                          as_text(b.get("content"))))
                    elif b.get("type") == "text":
                        t.prompt = b.get("text", "")
                        t.texts.append(t.prompt)
        return t

    @staticmethod
    def _blocks(reply):
        blocks = []
        if reply.text or not reply.calls:
            blocks.append({"type": "text", "text": reply.text})
        for call in reply.calls:
            blocks.append({"type": "tool_use", "id": "toolu_" + call.id,
                           "name": call.tool.name, "input": call.args or {}})
        return blocks

    @classmethod
    def _message(cls, turn, reply, content, stop, out):
        return {"id": "msg_%s" % stamp(), "type": "message", "role": "assistant",
                "model": turn.model or "mock", "content": content,
                "stop_reason": stop, "stop_sequence": None,
                "usage": {"input_tokens": 10, "cache_creation_input_tokens": 0,
                          "cache_read_input_tokens": 0, "output_tokens": out}}

    @classmethod
    def whole(cls, turn, reply):
        stop = "tool_use" if reply.calls else "end_turn"
        return cls._message(turn, reply, cls._blocks(reply), stop, 10)

    @classmethod
    def events(cls, turn, reply):
        yield "message_start", {"type": "message_start", "message":
                                cls._message(turn, reply, [], None, 1)}
        for i, block in enumerate(cls._blocks(reply)):
            if block["type"] == "text":
                start = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": c}
                          for c in chunks(block["text"])]
            else:
                start = dict(block, input={})
                deltas = [{"type": "input_json_delta", "partial_json": c}
                          for c in chunks(json.dumps(block["input"]))]
            yield "content_block_start", {"type": "content_block_start",
                                          "index": i, "content_block": start}
            for d in deltas:
                yield "content_block_delta", {"type": "content_block_delta",
                                              "index": i, "delta": d}
            yield "content_block_stop", {"type": "content_block_stop", "index": i}
        stop = "tool_use" if reply.calls else "end_turn"
        yield "message_delta", {"type": "message_delta",
                                "delta": {"stop_reason": stop,
                                          "stop_sequence": None},
                                "usage": {"output_tokens": 10}}
        yield "message_stop", {"type": "message_stop"}

    @staticmethod
    def error(status, message):
        kinds = {400: "invalid_request_error", 401: "authentication_error",
                 403: "permission_error", 404: "not_found_error",
                 429: "rate_limit_error", 529: "overloaded_error"}
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"),
                                           "message": message}}


class OpenAI:
    """What the two OpenAI protocols share."""

    @staticmethod
    def error(status, message):
        code = {401: "invalid_api_key", 404: "not_found",
                429: "rate_limit_exceeded"}.get(status, "server_error")
        return {"error": {"message": message, "type": code, "param": None,
                          "code": code}}


class Responses(OpenAI):
    name = "openai-responses"

    @classmethod
    def parse(cls, body, _path):
        t = Turn()
        t.model = body.get("model")
        t.stream = bool(body.get("stream"))
        cls._tools(body.get("tools") or [], t.tools, None)
        fmt = (body.get("text") or {}).get("format") or {}
        if fmt.get("type") == "json_schema":
            t.schema = fmt.get("schema") or {}
        t.texts.append(as_text(body.get("instructions")))
        items = body.get("input") or []
        if isinstance(items, str):
            items = [{"type": "message", "role": "user", "content": items}]
        for item in items:
            kind = item.get("type") or "message"
            if kind == "message":
                text = as_text(item.get("content"))
                if item.get("role") == "assistant":
                    t.history.append(("text", text))
                    t.results = []
                else:
                    t.texts.append(text)
                    if item.get("role") == "user":
                        t.prompt = text
            elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
                t.history.append(("calls", [item.get("call_id") or item.get("id")]))
                t.results = []
            elif kind == "additional_tools":
                cls._tools(item.get("tools") or [], t.tools, None)
            elif kind.endswith("_output"):
                t.results.append((item.get("call_id"), as_text(item.get("output"))))
        return t

    @classmethod
    def _tools(cls, offered, out, namespace):
        for tool in offered:
            kind = tool.get("type", "function")
            if kind == "namespace":
                cls._tools(tool.get("tools") or [], out, tool.get("name"))
            elif kind == "local_shell":
                out.append(Tool("local_shell", kind="local_shell"))
            else:
                spec = tool.get("function") or tool
                custom = kind == "custom"
                out.append(Tool(spec.get("name") or kind, spec.get("parameters"),
                                "custom" if custom else "function", namespace,
                                nested_tools(spec.get("description") or "")
                                if custom else ()))

    @staticmethod
    def _items(reply):
        items = []
        if reply.text or not reply.calls:
            items.append({"type": "message", "id": "msg_%s" % stamp(),
                          "role": "assistant", "status": "completed",
                          "content": [{"type": "output_text", "text": reply.text,
                                       "annotations": [], "logprobs": []}]})
        for call in reply.calls:
            call_id = "call_" + call.id
            if call.tool.kind == "custom":
                item = {"type": "custom_tool_call", "id": "ctc_" + call.id,
                        "call_id": call_id, "name": call.tool.name,
                        "input": call.text, "status": "completed"}
            elif call.tool.kind == "local_shell":
                item = {"type": "local_shell_call", "id": "lsh_" + call.id,
                        "call_id": call_id, "action": call.args,
                        "status": "completed"}
            else:
                item = {"type": "function_call", "id": "fc_" + call.id,
                        "call_id": call_id, "name": call.tool.name,
                        "arguments": json.dumps(call.args or {}),
                        "status": "completed"}
            if call.tool.namespace:
                item["namespace"] = call.tool.namespace
            items.append(item)
        return items

    @staticmethod
    def _response(turn, rid, items, status):
        usage = None if status == "in_progress" else {
            "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 20}
        return {"id": rid, "object": "response", "created_at": int(time.time()),
                "status": status, "error": None, "incomplete_details": None,
                "instructions": None, "metadata": {}, "model": turn.model or "mock",
                "output": items, "parallel_tool_calls": True, "temperature": 1.0,
                "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": usage}

    @classmethod
    def whole(cls, turn, reply):
        return cls._response(turn, "resp_%s" % stamp(), cls._items(reply),
                             "completed")

    @classmethod
    def events(cls, turn, reply):
        for seq, (kind, data) in enumerate(cls._events(turn, reply)):
            yield kind, dict({"type": kind, "sequence_number": seq}, **data)

    @classmethod
    def _events(cls, turn, reply):
        rid = "resp_%s" % stamp()
        items = cls._items(reply)
        start = cls._response(turn, rid, [], "in_progress")
        yield "response.created", {"response": start}
        yield "response.in_progress", {"response": start}
        for i, item in enumerate(items):
            at = {"output_index": i, "item_id": item["id"]}
            kind = item["type"]
            empty = dict(item, status="in_progress")
            if kind == "message":
                part = item["content"][0]
                text = part["text"]
                yield "response.output_item.added", {
                    "output_index": i, "item": dict(empty, content=[])}
                at["content_index"] = 0
                yield "response.content_part.added", dict(
                    at, part=dict(part, text=""))
                for c in chunks(text):
                    yield "response.output_text.delta", dict(at, delta=c,
                                                             logprobs=[])
                yield "response.output_text.done", dict(at, text=text, logprobs=[])
                yield "response.content_part.done", dict(at, part=part)
            elif kind in ("function_call", "custom_tool_call"):
                field, event = ("arguments", "function_call_arguments") \
                    if kind == "function_call" else \
                    ("input", "custom_tool_call_input")
                yield "response.output_item.added", {
                    "output_index": i, "item": dict(empty, **{field: ""})}
                for c in chunks(item[field]):
                    yield "response.%s.delta" % event, dict(at, delta=c)
                yield "response.%s.done" % event, dict(at, **{field: item[field]})
            else:
                yield "response.output_item.added", {"output_index": i,
                                                     "item": empty}
            yield "response.output_item.done", {"output_index": i, "item": item}
        yield "response.completed", {
            "response": cls._response(turn, rid, items, "completed")}


class Chat(OpenAI):
    name = "openai-chat"

    @staticmethod
    def parse(body, _path):
        t = Turn()
        t.model = body.get("model")
        t.stream = bool(body.get("stream"))
        t.max_tokens = body.get("max_tokens")
        t.include_usage = bool((body.get("stream_options") or {})
                               .get("include_usage"))
        for tool in body.get("tools") or []:
            spec = tool.get("function") or tool
            t.tools.append(Tool(spec.get("name", "?"), spec.get("parameters")))
        fmt = body.get("response_format") or {}
        if fmt.get("type") == "json_schema":
            t.schema = (fmt.get("json_schema") or {}).get("schema") or {}
        elif fmt.get("type") == "json_object":
            t.schema = {"type": "object"}
        for m in body.get("messages") or []:
            role, text = m.get("role"), as_text(m.get("content"))
            if role == "assistant":
                ids = [c.get("id") for c in m.get("tool_calls") or []]
                t.history.append(("calls", ids) if ids else ("text", text))
                t.results = []
            elif role == "tool":
                t.results.append((m.get("tool_call_id"), text))
            else:
                t.texts.append(text)
                if role == "user":
                    t.prompt = text
        return t

    @staticmethod
    def _calls(reply, indexed):
        out = []
        for i, call in enumerate(reply.calls):
            args = call.args if call.text is None else {"input": call.text}
            c = {"id": "call_" + call.id, "type": "function",
                 "function": {"name": call.tool.name,
                              "arguments": json.dumps(args or {})}}
            out.append(dict(c, index=i) if indexed else c)
        return out

    USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}

    @classmethod
    def whole(cls, turn, reply):
        message = {"role": "assistant", "content": reply.text or None}
        if reply.calls:
            message["tool_calls"] = cls._calls(reply, False)
        return {"id": "chatcmpl-%s" % stamp(), "object": "chat.completion",
                "created": int(time.time()), "model": turn.model or "mock",
                "choices": [{"index": 0, "message": message, "logprobs": None,
                             "finish_reason":
                             "tool_calls" if reply.calls else "stop"}],
                "usage": cls.USAGE}

    @classmethod
    def events(cls, turn, reply):
        base = {"id": "chatcmpl-%s" % stamp(), "object": "chat.completion.chunk",
                "created": int(time.time()), "model": turn.model or "mock"}

        def chunk(delta, finish=None):
            return None, dict(base, choices=[{"index": 0, "delta": delta,
                                              "logprobs": None,
                                              "finish_reason": finish}])
        yield chunk({"role": "assistant", "content": ""})
        for c in chunks(reply.text):
            yield chunk({"content": c})
        for call in cls._calls(reply, True):
            args = call["function"]["arguments"]
            call["function"] = dict(call["function"], arguments="")
            yield chunk({"tool_calls": [call]})
            for c in chunks(args):
                yield chunk({"tool_calls": [{"index": call["index"], "function":
                                             {"arguments": c}}]})
        yield chunk({}, "tool_calls" if reply.calls else "stop")
        if getattr(turn, "include_usage", False):
            yield None, dict(base, choices=[], usage=cls.USAGE)
        yield None, "[DONE]"


class Gemini:
    name = "gemini"

    @staticmethod
    def parse(body, path):
        t = Turn()
        m = re.search(r"/models/([^/:]+):(\w+)$", path)
        t.wrapped = "request" in body          # the Code Assist envelope
        t.model = m.group(1) if m else body.get("model")
        t.stream = "streamGenerateContent" in path
        if t.wrapped:
            body = body["request"]
        for group in body.get("tools") or []:
            for f in group.get("functionDeclarations") or \
                    group.get("function_declarations") or []:
                t.tools.append(Tool(f.get("name", "?"), f.get("parametersJsonSchema")
                                    or f.get("parameters")))
        conf = body.get("generationConfig") or {}
        t.max_tokens = conf.get("maxOutputTokens")
        schema = conf.get("responseJsonSchema") or conf.get("responseSchema")
        if schema is not None:
            t.schema = schema
        elif conf.get("responseMimeType") == "application/json":
            t.schema = {"type": "object"}
        system = body.get("systemInstruction") or {}
        t.texts.append(as_text(system.get("parts") if isinstance(system, dict)
                               else system))
        for c in body.get("contents") or []:
            parts = [p for p in c.get("parts") or [] if isinstance(p, dict)]
            if c.get("role") == "model":
                calls = [p["functionCall"].get("id") for p in parts
                         if "functionCall" in p]
                text = as_text([p for p in parts
                                if "text" in p and not p.get("thought")])
                t.history.append(("calls", calls) if calls else ("text", text))
                t.results = []
            else:
                for p in parts:
                    if "functionResponse" in p:
                        r = p["functionResponse"]
                        t.results.append((r.get("id") or r.get("name"),
                                          as_text(r.get("response"))))
                    elif "text" in p:
                        t.prompt = p["text"]
                        t.texts.append(p["text"])
        return t

    @staticmethod
    def _chunk(turn, parts, last):
        cand = {"index": 0, "content": {"role": "model", "parts": parts}}
        if last:
            cand["finishReason"] = "STOP"
        out = {"candidates": [cand], "modelVersion": turn.model or "mock",
               "responseId": stamp(),
               "usageMetadata": {"promptTokenCount": 10,
                                 "candidatesTokenCount": 10,
                                 "totalTokenCount": 20}}
        return {"response": out} if getattr(turn, "wrapped", False) else out

    @staticmethod
    def _calls(reply):
        return [{"functionCall": {"id": call.id, "name": call.tool.name,
                                  "args": call.args if call.text is None
                                  else {"input": call.text}},
                 "thoughtSignature": base64.b64encode(b"mock").decode()}
                for call in reply.calls]

    @classmethod
    def whole(cls, turn, reply):
        parts = [{"text": reply.text}] if reply.text or not reply.calls else []
        return cls._chunk(turn, parts + cls._calls(reply), True)

    @classmethod
    def events(cls, turn, reply):
        pieces = [[{"text": c}] for c in chunks(reply.text)]
        if reply.calls:
            pieces.append(cls._calls(reply))
        if not pieces:
            pieces.append([{"text": ""}])
        for i, parts in enumerate(pieces):
            yield None, cls._chunk(turn, parts, i == len(pieces) - 1)

    @staticmethod
    def error(status, message):
        names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED",
                 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
                 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
        return {"error": {"code": status, "message": message,
                          "status": names.get(status, "INTERNAL")}}


_counter = [0]
_counter_lock = threading.Lock()


def stamp():
    with _counter_lock:
        _counter[0] += 1
        return "mock%08d" % _counter[0]


def chunks(text, size=24):
    return [text[i:i + size] for i in range(0, len(text), size)]


# ------------------------------------------------------------------- routing

MODELS = {
    "anthropic": ["claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"],
    "openai": ["gpt-5.1-codex", "gpt-5.1", "mock-model"],
    "gemini": ["gemini-2.5-pro", "gemini-2.5-flash"],
}


def protocol_for(path):
    if path.endswith("/v1/messages"):
        return Anthropic
    if path.endswith("/chat/completions"):
        return Chat
    if path.endswith("/responses"):
        return Responses
    if re.search(r":(stream)?[gG]enerateContent$", path):
        return Gemini
    return None


def model_list(path, headers):
    """The answer to a GET of a model list or of one model, or None."""
    m = re.search(r"/v1(?:beta|alpha)?/models(?:/([^/]+))?$", path) or \
        re.search(r"/codex/models()$", path)
    if not m:
        return None
    one = m.group(1)
    if "/v1beta" in path or "/v1alpha" in path:
        rows = [{"name": "models/" + n, "displayName": n, "version": "1",
                 "inputTokenLimit": 1048576, "outputTokenLimit": 65536,
                 "supportedGenerationMethods": ["generateContent", "countTokens"]}
                for n in ([one] if one else MODELS["gemini"])]
        return rows[0] if one else {"models": rows}
    if "anthropic-version" in headers:
        rows = [{"type": "model", "id": n, "display_name": n,
                 "created_at": "2025-01-01T00:00:00Z"}
                for n in ([one] if one else MODELS["anthropic"])]
        return rows[0] if one else {"data": rows, "has_more": False,
                                    "first_id": rows[0]["id"],
                                    "last_id": rows[-1]["id"]}
    rows = [{"id": n, "object": "model", "created": 0, "owned_by": "mock"}
            for n in ([one] if one else MODELS["openai"])]
    return rows[0] if one else {"object": "list", "data": rows, "models": []}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "mock-llm/1"
    timeout = 600

    def log_message(self, fmt, *args):
        if self.server.options.verbose:
            sys.stderr.write("%s %s\n" % (self.address_string(), fmt % args))

    # -- plumbing

    def _read_body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            data = b""
            while True:
                size = int(self.rfile.readline().split(b";")[0].strip() or b"0", 16)
                if size == 0:
                    while self.rfile.readline().strip():
                        pass
                    break
                data += self.rfile.read(size)
                self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        coding = self.headers.get("Content-Encoding", "").lower()
        if coding == "gzip":
            data = gzip.decompress(data)
        elif coding == "deflate":
            data = zlib.decompress(data)
        return data

    def _send(self, status, data, kind="application/json", extra=()):
        payload = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(payload)))
        for k, v in extra:
            self.send_header(k, v)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)
        self.entry["status"] = status

    def _send_events(self, events):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.entry["status"] = 200
        for name, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            event = ("event: %s\n" % name if name else "") + "data: %s\n\n" % text
            raw = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _begin(self):
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        credentials = {}
        for name in CREDENTIAL_HEADERS:
            if name in self.headers:
                credentials[name] = self.headers[name]
        if "key" in query:
            credentials["query:key"] = query["key"][0]
        self.entry = {
            "time": round(time.time(), 3), "method": self.command,
            "path": parts.path, "query": parts.query,
            "host": self.headers.get("Host"),
            "user_agent": self.headers.get("User-Agent"),
            "peer": self.client_address[0],
            "headers": [k.lower() for k in self.headers.keys()],
            "credentials": credentials, "api": None, "model": None,
            "stream": False, "tools": [], "kind": "other", "step": None,
            "calls": [], "results": [], "status": None,
        }
        return unquote(parts.path)

    def _authorized(self):
        want = self.server.options.require_credential
        if not want:
            return True
        for value in self.entry["credentials"].values():
            if value == want or value == "Bearer " + want:
                return True
        return False

    def _handle(self):
        path = self._begin()
        try:
            self._route(path)
        except (BrokenPipeError, ConnectionResetError):
            self.entry["status"] = self.entry["status"] or "client closed"
            self.close_connection = True
        except Exception as e:      # a bug or a request it cannot read
            self.entry["error"] = "%s: %s" % (type(e).__name__, e)
            self.close_connection = True
            if self.entry["status"] is None:
                try:
                    self._send(500, {"error": {"message": self.entry["error"]}})
                except OSError:
                    pass
        finally:
            self.server.record(self.entry)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = _handle

    # -- answers

    def _route(self, path):
        raw = self._read_body()
        body = None
        if raw:
            try:
                body = json.loads(raw)
            except ValueError:
                pass
            if self.server.options.log_body:
                self.entry["body"] = body if body is not None else \
                    raw.decode("utf-8", "replace")
        scenario = self.server.scenarios.default
        m = re.match(r"/s/([^/]+)(/.*)$", path)
        if m:
            scenario = self.server.scenarios.named(m.group(1))
            path = m.group(2)
            if scenario is None:
                self._send(404, {"error": {"message": "no such scenario"}})
                return
        path = re.sub(r"//+", "/", path)
        self.entry["scenario"] = scenario.name

        if self.command == "HEAD" or path == "/" or path == "/healthz":
            self._send(200, {"ok": True, "server": "mock-llm"})
            return
        if self.headers.get("Upgrade"):
            self._send(426, {"error": {"message": "no WebSocket here"}})
            return
        api = protocol_for(path) if self.command == "POST" else None
        counting = path.endswith("/count_tokens") or path.endswith(":countTokens")
        models = model_list(path, self.headers) if self.command == "GET" else None
        if api or counting or models is not None:
            if not self._authorized():
                shape = api or (Gemini if ":" in path or "/v1beta" in path else
                                Anthropic if "anthropic-version" in self.headers
                                else OpenAI)
                self.entry["kind"] = "unauthorized"
                self.entry["api"] = getattr(shape, "name", None)
                self._send(401, shape.error(401, "The credential is not valid."))
                return
        if models is not None:
            self.entry["kind"] = "models"
            self._send(200, models)
            return
        if counting:
            self.entry["kind"] = "count"
            n = estimate(body)
            self._send(200, {"input_tokens": n} if "count_tokens" in path
                       else {"totalTokens": n})
            return
        if api:
            self._answer(api, path, body, scenario)
            return
        if path.startswith("/v1internal:"):
            self._code_assist(path)
            return
        if self.command == "POST" or path.startswith("/api/"):
            self._send(200, {})     # telemetry, feature flags and the like
            return
        self._send(404, {"error": {"message": "no such path: " + path}})

    def _answer(self, api, path, body, scenario):
        self.entry["api"] = api.name
        if not isinstance(body, dict):
            self._send(400, api.error(400, "The body is not a JSON object."))
            return
        turn = api.parse(body, path)
        self.entry.update(
            model=turn.model, stream=turn.stream,
            tools=[t.name for t in turn.tools],
            results=[{"id": i, "text": t[:RESULT_LIMIT]} for i, t in turn.results])
        if self.server.options.log_prompt:
            self.entry["prompt"] = turn.prompt
        reply = decide(turn, scenario)
        self.entry["kind"] = reply.kind
        self.entry["step"] = reply.step
        self.entry["calls"] = [
            {"id": c.id, "name": c.tool.name,
             "input": c.args if c.text is None else c.text} for c in reply.calls]
        self.entry["text"] = reply.text
        if reply.sleep:
            self.server.stopping.wait(reply.sleep)
        if reply.fail:
            status = int(reply.fail.get("status", 500))
            self._send(status, api.error(status, reply.fail.get("message",
                                                                "Mock failure.")))
            return
        if not turn.stream:
            self._send(200, api.whole(turn, reply))
        elif api is Gemini and "alt=sse" not in self.entry["query"]:
            self._send(200, [d for _, d in api.events(turn, reply)])
        else:
            self._send_events(api.events(turn, reply))

    def _code_assist(self, path):
        verb = path.split(":", 1)[1]
        tier = {"id": "free-tier", "name": "mock", "isDefault": True}
        answers = {
            "loadCodeAssist": {"currentTier": tier, "allowedTiers": [tier],
                               "cloudaicompanionProject": "mock-project"},
            "onboardUser": {"done": True, "response": {"cloudaicompanionProject":
                                                       {"id": "mock-project"}}},
            "retrieveUserQuota": {"buckets": []},
        }
        self._send(200, answers.get(verb, {}))


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address, options, scenarios):
        self.options = options
        self.scenarios = scenarios
        self.stopping = threading.Event()
        self._log_lock = threading.Lock()
        self._seq = 0
        self._tls = None
        self._log = None
        if options.log:
            self._log = sys.stdout if options.log == "-" else \
                open(options.log, "a", encoding="utf-8")
        if options.tls_cert:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(options.tls_cert, options.tls_key)
            self._tls.set_alpn_protocols(["http/1.1"])
        super().__init__(address, Handler)

    def server_bind(self):
        # Not HTTPServer's: that one looks its own name up in the DNS.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def finish_request(self, request, client_address):
        if self._tls:           # the handshake runs in the request's thread
            request.settimeout(30)
            try:
                request = self._tls.wrap_socket(request, server_side=True)
            except (ssl.SSLError, OSError) as e:
                self.record({"time": round(time.time(), 3), "kind": "tls error",
                             "error": str(e), "peer": client_address[0]})
                return
            with request:       # wrapping took the socket over: close it here
                super().finish_request(request, client_address)
            return
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        if self.options.verbose:
            super().handle_error(request, client_address)

    def record(self, entry):
        if not self._log:
            return
        with self._log_lock:
            self._seq += 1
            self._log.write(json.dumps(dict({"seq": self._seq}, **entry)) + "\n")
            self._log.flush()


def main(argv=None):
    p = argparse.ArgumentParser(
        description="Mock LLM server that plays a scripted scenario.")
    p.add_argument("--scenario", metavar="FILE",
                   help="scenario JSON file (without one: a short text answer)")
    p.add_argument("--scenario-dir", metavar="DIR",
                   help="folder of NAME.json, served under the prefix /s/NAME")
    p.add_argument("--host", default="127.0.0.1",
                   help="address to listen on (default 127.0.0.1)")
    p.add_argument("--port", type=int, default=0,
                   help="port to listen on; 0, the default, picks a free one")
    p.add_argument("--port-file", metavar="FILE",
                   help="write the chosen port there, once listening")
    p.add_argument("--log", metavar="FILE",
                   help="append one JSON line for each request ('-': stdout)")
    p.add_argument("--log-body", action="store_true",
                   help="put request bodies in the log too")
    p.add_argument("--log-prompt", action="store_true",
                   help="put the newest user text in the log too")
    p.add_argument("--require-credential", metavar="VALUE",
                   help="answer 401 unless a request carries this credential")
    p.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS: PEM chain")
    p.add_argument("--tls-key", metavar="FILE", help="serve HTTPS: PEM key")
    p.add_argument("--check", action="store_true",
                   help="only check the scenario file, then exit")
    p.add_argument("--verbose", action="store_true",
                   help="trace requests on standard error")
    options = p.parse_args(argv)
    try:
        default = load_scenario(options.scenario) if options.scenario else \
            Scenario([{"text": "Hello from the mock server."}])
    except (OSError, ScenarioError) as e:
        p.exit(2, "mock_llm: %s\n" % e)
    if options.check:
        print("%s: %d steps" % (default.name, len(default.steps)))
        return 0
    server = Server((options.host, options.port), options,
                    ScenarioSet(default, options.scenario_dir))

    def stop(_signum, _frame):
        server.stopping.set()
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    port = server.server_address[1]
    print("port %d" % port, flush=True)
    if options.port_file:
        tmp = options.port_file + ".tmp"
        with open(tmp, "w", encoding="utf-8") as f:
            f.write("%d\n" % port)
        os.replace(tmp, options.port_file)
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
