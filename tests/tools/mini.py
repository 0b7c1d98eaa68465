# SPDX-License-Identifier: Apache-2.0
"""A minimal runner: every function test_* of the calling file, one line each."""
import importlib.util
import os
import shutil
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load_script(*parts):
    """A script of the repository as a module, whatever its name."""
    path = os.path.join(ROOT, *parts)
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3].replace("-", "_"), path)
    mod = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mod)
    return mod


os.umask(0o022)            # that of users differs, and modes are compared


def main(namespace):
    """Run them; each gets a scratch folder."""
    bad = 0
    for name, f in list(namespace.items()):
        if not name.startswith("test_") or not callable(f):
            continue
        tmp = tempfile.mkdtemp(prefix="cloche-tools-")
        t0 = time.monotonic()
        try:
            f(tmp)
            word = "ok"
        except Exception:
            traceback.print_exc(file=sys.stdout)
            word = "FAILED"
            bad += 1
        finally:
            shutil.rmtree(tmp, ignore_errors=True)
        print(f"{word} {name[5:]} {time.monotonic() - t0:.1f}s", flush=True)
    sys.exit(1 if bad else 0)
