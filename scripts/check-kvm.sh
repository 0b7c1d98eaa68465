#!/bin/sh
# check-kvm.sh CLOCHE - a report for a machine with KVM: probe, boot, session.
#
# Prints one line a step and the time it took. Exit 0 when all hold, 3 when
# this machine has no usable KVM, 1 when a step fails that should have worked.
set -u
cloche=${1:?usage: check-kvm.sh CLOCHE}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir "$work/project"
echo hello >"$work/project/file"

echo "machine: $(uname -srm), $(nproc) CPUs, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
qemu-system-x86_64 --version | head -n 1

"$cloche" doctor
case $? in
0) ;;
3) echo "probe: no usable KVM here; nothing further to check"; exit 3 ;;
*) echo "probe: FAILED"; exit 1 ;;
esac

step() { # NAME WANT COMMAND...
	name=$1 want=$2
	shift 2
	t0=$(date +%s%N)
	got=$("$@" 2>"$work/err" </dev/null)
	rc=$?
	ms=$((($(date +%s%N) - t0) / 1000000))
	if [ $rc = 0 ] && [ "$got" = "$want" ]; then
		echo "$name: ok, $ms ms"
	else
		echo "$name: FAILED (status $rc), $ms ms"
		sed 's/^/    /' "$work/err"
		exit 1
	fi
}
"$cloche" image build base || exit 1
step "first boot" hello "$cloche" run shell "$work/project" --accel kvm --apply=none -- cat file
for i in 1 2 3 4 5; do
	step "boot $i" hello "$cloche" run shell "$work/project" --accel kvm --apply=none -- cat file
done
"$cloche" run shell "$work/project" --accel kvm --apply=none --timings -- true </dev/null
