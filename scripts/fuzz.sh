#!/bin/bash
# fuzz.sh SECONDS [NAME...] - run the fuzz targets, SECONDS each, two at a time.
#
# New inputs go to build-fuzz/found/NAME, crashes to build-fuzz/crashes: a crash
# becomes a named file of tests/fuzz/corpus/NAME together with its fix.
set -u
seconds=${1:?usage: fuzz.sh SECONDS [NAME...]}
shift
cd "$(dirname "$0")/.." || exit 1
dir=build-fuzz
if [ ! -f $dir/build.ninja ]; then
	CC=clang meson setup $dir -Dfuzzers=true -Db_sanitize=address,undefined -Db_lundef=false \
		-Dbuildtype=debugoptimized >/dev/null || exit 1
fi
ninja -C $dir >$dir/ninja.log 2>&1 || { tail -n 40 $dir/ninja.log; exit 1; }
mkdir -p $dir/crashes $dir/logs
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

one() {
	local name=$1 log=$dir/logs/$1.log
	mkdir -p $dir/found/"$name"
	if $dir/tests/fuzz/fuzz_"$name" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=1024 \
		-artifact_prefix=$dir/crashes/"$name"- -print_final_stats=1 -verbosity=0 \
		$dir/found/"$name" tests/fuzz/corpus/"$name" >"$log" 2>&1; then
		echo "ok $name $(awk '/number_of_executed_units/ { print $2 }' "$log") runs"
	else
		echo "FAILED $name"
		tail -n 30 "$log" | sed 's/^/    /'
	fi
}
export -f one
export dir seconds

names=
for exe in $dir/tests/fuzz/fuzz_*; do
	[ -f "$exe" ] && [ -x "$exe" ] || continue
	name=${exe##*/fuzz_}
	[ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
	names="$names $name"
done
printf '%s\n' $names | xargs -P 2 -I{} bash -c 'one {}' | tee $dir/summary
ok=$(grep -c '^ok ' $dir/summary)
bad=$(grep -c '^FAILED ' $dir/summary)
echo "$ok passed, $bad failed"
[ "$bad" = 0 ] && [ "$ok" != 0 ]
