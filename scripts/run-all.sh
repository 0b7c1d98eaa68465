#!/bin/bash
# run-all.sh bench|stress|soak BUILD [SECONDS] - every program of that folder of tests.
#
# Each gets the build folder, and for stress and soak the seconds it may take, as
# arguments; says its figures or findings itself; and fails by its exit status.
set -u
kind=${1:?usage: run-all.sh bench|stress|soak BUILD [SECONDS]}
build=$(cd "${2:?build folder}" && pwd) || exit 1
seconds=${3:-}
cd "$(dirname "$0")/.." || exit 1
ok=0 bad=0
for prog in tests/"$kind"/*.py tests/"$kind"/*.sh; do
	[ -f "$prog" ] || continue
	echo "== $prog"
	case $prog in
	*.py) run=python3 ;;
	*) run=bash ;;
	esac
	if $run "$prog" "$build" $seconds; then
		ok=$((ok + 1))
	else
		echo "FAILED $prog"
		bad=$((bad + 1))
	fi
done
echo "$ok passed, $bad failed"
[ "$bad" = 0 ]
