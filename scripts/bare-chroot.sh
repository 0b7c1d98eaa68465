#!/bin/bash
# bare-chroot.sh [12|13] [root|sudo|plain] [WORD...] - the README's two commands in bare Debian systems.
#
# Makes a minimal Debian 12 and 13 with mmdebstrap (plus make, and sudo where the
# variant has it), clones this repository's HEAD into it, and runs `make demo` and
# `make test` there:
#   root   as root
#   sudo   as an ordinary user with sudo
#   plain  as an ordinary user without sudo: the first `make demo` must print the
#          apt-get line and exit 1; root runs exactly that line; then both commands
# Without words: both releases, all variants. Needs root, here and not inside.
#
# Mirror, keyring and apt's transport settings are those of this machine at run
# time. Each run gets mount, pid, ipc and uts namespaces of its own and a
# pivot_root: in a mere chroot the kernel refuses user namespaces, which cloche's
# cages and mmdebstrap use. The network is the machine's.
#
# Environment: BARE_DIR (default /var/tmp/cloche-bare, wants 15 GB),
# BARE_COMMANDS ("demo test"), BARE_KEEP=1 (leave the systems), BARE_TIMEOUT (7200).
set -u -o pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
dir=${BARE_DIR:-/var/tmp/cloche-bare}
commands=${BARE_COMMANDS:-demo test}
passed=0 failed=0

die() { echo "bare-chroot: $*" >&2; exit 1; }

# --- inside: make the new root our root, then run what is asked ---------------

enter() { # ROOT USER COMMAND: called again in the new namespaces
	local root=$1 user=$2 command=$3 release
	release=${1##*/}
	release=${release%%-*}
	set -e
	mount --make-rprivate /
	mount --bind "$root" "$root"
	mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
	mount -t sysfs -o ro,nosuid,nodev,noexec sys "$root/sys"
	mount -t tmpfs -o nosuid,mode=755 dev "$root/dev"
	mkdir "$root/dev/pts" "$root/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=0666,gid=5,mode=620 devpts "$root/dev/pts"
	mount -t tmpfs -o nosuid,nodev,mode=1777 shm "$root/dev/shm"
	ln -s pts/ptmx "$root/dev/ptmx"
	ln -s /proc/self/fd "$root/dev/fd"
	for n in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${n%%:*}" "$root/dev/${n#*:}"; done
	for n in null zero full random urandom tty kvm; do
		[ -e "/dev/$n" ] || continue
		: >"$root/dev/$n"
		mount --bind "/dev/$n" "$root/dev/$n"
	done
	mount -t tmpfs -o nosuid,nodev,mode=755 run "$root/run"
	mkdir "$root/run/lock"
	chmod 1777 "$root/run/lock"
	[ ! -d "$dir/debs-$release" ] ||
		mount --bind "$dir/debs-$release" "$root/var/cache/apt/archives"
	cd "$root"
	mkdir -p .old
	pivot_root . .old
	umount -l /.old
	rmdir /.old 2>/dev/null || true
	cd /
	hostname bare 2>/dev/null || true
	if [ "$user" = root ]; then
		exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
			TERM=dumb LANG=C.UTF-8 USER=root ${CLOCHE_PASS_ENV:-} \
			setsid -w bash -c "cd /root/cloche 2>/dev/null || cd /; $command" </dev/null
	fi
	exec env -i PATH=/usr/local/bin:/usr/bin:/bin TERM=dumb LANG=C.UTF-8 ${CLOCHE_PASS_ENV:-} \
		setsid -w su "$user" -s /bin/bash -c "export HOME=/home/$user; cd ~/cloche; $command" </dev/null
}

if [ "${1:-}" = --enter ]; then
	shift
	enter "$@"
fi

[ "$(id -u)" = 0 ] || die "making a system needs root"
command -v mmdebstrap >/dev/null || die "mmdebstrap is missing"

# --- a bare system ------------------------------------------------------------

debian_uri() { # LABEL: the mirror of this machine for Debian itself, or its security suite
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' |
		awk -F'|' -v l="$1" '$1 == "Debian" && $2 == l { print $3; exit }'
}

make_system() { # RELEASE: $dir/RELEASE.tar
	local release=$1 suite uri security opts=()
	case $release in
	12) suite=bookworm ;;
	13) suite=trixie ;;
	esac
	[ ! -f "$dir/$release.tar" ] || return 0
	uri=$(debian_uri Debian)
	security=$(debian_uri Debian-Security)
	[ -n "$uri" ] || die "no Debian mirror among this machine's apt sources (apt-get update first?)"
	# how this machine reaches the mirror: proxies, certificates, retries
	while IFS= read -r line; do
		opts+=(--aptopt="$line")
	done < <(apt-config dump | grep -E '^Acquire::(https?|Retries)(::| )' | grep -v '""')
	{
		echo "deb $uri $suite main"
		[ -z "$security" ] || echo "deb $security $suite-security main"
	} >"$dir/$release.list"
	echo "== making a bare Debian $release"
	mmdebstrap --variant=minbase --mode=root --format=tar "${opts[@]}" \
		--include=make,ca-certificates,passwd,login \
		--keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
		"$suite" "$dir/$release.tar.part" "$dir/$release.list" >"$dir/$release.log" 2>&1 ||
		{ tail -n 30 "$dir/$release.log"; die "mmdebstrap failed"; }
	mv "$dir/$release.tar.part" "$dir/$release.tar"
}

inside() { # ROOT USER COMMAND
	timeout --kill-after=30 "${BARE_TIMEOUT:-7200}" \
		unshare --mount --pid --ipc --uts --fork --kill-child -- "$0" --enter "$@"
}

step() { # NAME COMMAND...: shows the output's end on a failure
	local name=$1 t=$SECONDS
	shift
	if "$@" >"$log" 2>&1; then
		passed=$((passed + 1))
		echo "ok $name $((SECONDS - t))s    $(tail -n 1 "$log" | cut -c1-100)"
	else
		failed=$((failed + 1))
		echo "FAILED $name $((SECONDS - t))s (all of it: $log)"
		tail -n 60 "$log" | sed 's/^/    /'
		return 1
	fi
}

# The system has no git of its own before the set-up, so the clone comes from here.
put_clone() { # FOLDER
	git clone -q --no-hardlinks "$here" "$1" && git -C "$1" remote remove origin
}

groups_of() { # COMMAND: the package groups that the Makefile asks for
	case $1 in
	demo) echo build run ;;
	*) echo build run test ;;
	esac
}

refused() { # ROOT USER: `make demo` says what to install, and fails
	local rc=0
	inside "$1" "$2" "make demo" || rc=$?
	[ $rc != 0 ] && grep -q '^apt-get update && apt-get install' "$log"
}

run_variant() { # RELEASE VARIANT
	local release=$1 variant=$2 name="$1-$2" root user=tester c
	root=$dir/$name
	rm -rf --one-file-system "$root"
	mkdir -p "$root" "$dir/debs-$release/partial"
	tar -C "$root" --numeric-owner -xf "$dir/$release.tar"
	cp -L /etc/resolv.conf "$root/etc/resolv.conf"
	cp -L /etc/hosts "$root/etc/hosts"
	echo "== Debian $release, $variant"
	if [ "$variant" = root ]; then
		user=root
		put_clone "$root/root/cloche"
	else
		chroot "$root" useradd -m -s /bin/bash tester
		put_clone "$root/home/tester/cloche"
		chroot "$root" chown -R tester:tester /home/tester
	fi
	log=$dir/$name-setup.log
	case $variant in
	sudo)
		step "$name install sudo" inside "$root" root \
			"apt-get update -q && apt-get install -qy --no-install-recommends sudo &&
			echo 'tester ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/tester" || return
		;;
	plain)
		step "$name refusal names the packages" refused "$root" tester || return
		for c in $commands; do
			log=$dir/$name-setup.log
			# what `make test` needs beyond `make demo` comes the same way
			local line
			inside "$root" tester "scripts/setup.sh $(groups_of "$c")" >"$log" 2>&1 || true
			line=$(grep '^apt-get update && apt-get install' "$log" | head -n 1)
			[ -z "$line" ] || step "$name root runs the line for $c" inside "$root" root "$line" || return
			log=$dir/$name-$c.log
			step "$name make $c" inside "$root" tester "make $c"
		done
		;;
	esac
	if [ "$variant" != plain ]; then
		for c in $commands; do
			log=$dir/$name-$c.log
			step "$name make $c" inside "$root" "$user" "make $c"
		done
	fi
	[ -n "${BARE_KEEP:-}" ] || rm -rf --one-file-system "$root"
}

releases= variants=
for w in "$@"; do
	case $w in
	12 | 13) releases="$releases $w" ;;
	root | sudo | plain) variants="$variants $w" ;;
	*) die "unknown word: $w (known: 12 13 root sudo plain)" ;;
	esac
done
mkdir -p "$dir"
chmod 755 "$dir"
for r in ${releases:-12 13}; do
	make_system "$r"
	for v in ${variants:-root sudo plain}; do
		run_variant "$r" "$v"
	done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
