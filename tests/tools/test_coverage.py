# SPDX-License-Identifier: Apache-2.0
"""docs/coverage.md is complete, and the tests that it names exist."""
import os
import re

import mini

STATUS = {"done", "part", "open", "later", "void"}


def rows():
    with open(os.path.join(mini.ROOT, "docs", "coverage.md"), encoding="utf-8") as f:
        for line in f:
            m = re.match(r"^\| ([CL]\d+) \| (.*) \| (\w+) \| (.*?) ?\|$", line.rstrip())
            if m:
                yield m.groups()
            else:
                assert not re.match(r"^\| [CL]\d", line), f"not a row: {line}"


def test_every_number_once(tmp):
    got = [r[0] for r in rows()]
    assert got == [f"C{i}" for i in range(1, 266)] + [f"L{i}" for i in range(1, 156)]


def test_status_and_reason(tmp):
    for number, what, status, why in rows():
        assert status in STATUS, f"{number}: {status}"
        assert what.strip(), number
        if status in ("done", "part", "void"):
            assert why.strip(), f"{number}: {status}, but by what?"


def test_named_tests_exist(tmp):
    for number, _, status, why in rows():
        for rel, function in re.findall(r"`(?:tests/)?((?:unit|e2e|oracle|tools|fuzz|stress|soak|lib|workspace|net|review|super|pty|disk|bench)/[\w/]+\.(?:c|py))"
                                        r"(?::(\w+))?`", why):
            path = os.path.join(mini.ROOT, "tests", rel)
            assert os.path.exists(path), f"{number}: {rel}"
            if function:
                with open(path, encoding="utf-8") as f:
                    assert re.search(rf"\b{function}\b", f.read()), f"{number}: {rel}:{function}"


mini.main(globals())
