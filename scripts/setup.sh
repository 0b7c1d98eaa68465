#!/bin/sh
# setup.sh [GROUP...] - have the Debian packages of scripts/packages.txt.
#
# Installs what is missing as root or through sudo. Where neither is possible it
# prints the command that an administrator has to run, and exits 1. Silent and
# quick when nothing is missing. Groups: build run test check (default: the
# first three).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- build run test

wanted=
for group in "$@"; do
	names=$(sed -e 's/#.*//' "$here/packages.txt" | awk -v g="$group" '$1 == g { print $2 }')
	[ -n "$names" ] || { echo "setup: no such group of packages: $group" >&2; exit 1; }
	wanted="$wanted $names"
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	echo "setup: this is not a Debian system; cloche needs what these packages hold:" >&2
	echo "setup:   "$wanted >&2
	exit 1
fi

missing=
for p in $wanted; do
	case $(dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null) in
	installed) ;;
	*) missing="$missing $p" ;;
	esac
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
	as_root=
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
	as_root=sudo
else
	echo "setup: these Debian packages are missing, and neither root nor sudo is at hand." >&2
	echo "setup: have an administrator run:" >&2
	echo "apt-get update && $install" >&2
	exit 1
fi

echo "setup: installing$missing"
# a source of somebody else may be broken; ours may be fine all the same
$as_root apt-get update -q || echo "setup: apt-get update failed; trying with the lists at hand" >&2
if ! $as_root env DEBIAN_FRONTEND=noninteractive $install; then
	echo "setup: could not install:$missing" >&2
	exit 1
fi
