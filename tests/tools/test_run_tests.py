# SPDX-License-Identifier: Apache-2.0
"""Counting: nothing is lost, and a program that dies never counts as passed."""
import mini

rt = mini.load_script("scripts", "run-tests.py")

OK = "[==========] Running 2 test(s).\n[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n"


def test_cmocka_good(tmp):
    assert rt.count_program(OK + "[       OK ] b\n[  PASSED  ] 2 test(s).\n", True) == (2, [], [])


def test_cmocka_one_failed(tmp):
    text = OK + "[  FAILED  ] b\n[  PASSED  ] 1 test(s).\n[  FAILED  ] 1 test(s), listed below:\n" \
                "[  FAILED  ] b\n"
    assert rt.count_program(text, False) == (1, ["b"], [])


def test_cmocka_died_in_the_middle(tmp):
    assert rt.count_program(OK, False) == (1, ["b"], [])


def test_died_after_the_last(tmp):
    passed, failed, _ = rt.count_program(OK + "[       OK ] b\n", False)
    assert passed == 2 and len(failed) == 1     # a leak report at exit, for instance


def test_cmocka_skipped(tmp):
    assert rt.count_program(OK + "[  SKIPPED ] b\n", True) == (1, [], ["b"])


def test_python_lines(tmp):
    text = "ok a 0.1s\n    ok indented output is no test\nFAILED b 0.2s\n"
    assert rt.count_program(text, False) == (1, ["b"], [])


def test_a_program_that_names_none(tmp):
    assert rt.count_program("17 inputs replayed\n", True) == (1, [], [])
    assert rt.count_program("", False) == (0, ["(the program itself)"], [])


mini.main(globals())
