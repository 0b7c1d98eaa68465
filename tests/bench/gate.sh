#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# CPU time of the gate for a frame; the argument is the build folder.
exec "$1/tests/bench/bench_gate"
