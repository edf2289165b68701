#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Installs what the tests need, builds with gcc and clang and under sanitizers, runs every test, counts the cases.
set -u

packages="meson ninja-build gcc g++ clang spin tcc pkg-config libc6-dev libsodium-dev libcurl4-openssl-dev libjansson-dev libzstd-dev libcriterion-dev libclang-rt-dev libjemalloc-dev binutils
gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user valgrind abigail-tools python3 procps util-linux iproute2 nftables
libdpdk-dev dpdk libibverbs-dev librdmacm-dev librdmacm1 ibverbs-providers tshark tcpdump ethtool iputils-ping
qemu-system-x86 seabios busybox-static kmod cpio gzip make xz-utils gnuplot-nox
libopenblas0-serial ccache lld man-db groff-base cmake zsh libevent-dev libuv1-dev systemtap-sdt-dev bpftrace openssh-client libwrap0
libmicrohttpd-dev debhelper dpkg-dev lintian"
# What runs in the default build: in both tiers, and in --all alone.
quick_suites="unit fuzz nic sim e2e conformance install"
long_suites="models arm64 e2e-udp sim-long conformance-net debian vm"
builds_of_all="clang asan tsan docker"

usage() {
	cat <<'END'
usage: sh tests/run.sh [--all | --suite NAME] [--no-sanitizers] [--no-docker] [--no-vm]

Installs the packages that the tests need and that are missing (as root, or with sudo), builds into build/, and checks the
whole product once in this build (aim: 10 minutes on two cores). tests/README.md describes the suites.

Each suite prints a line when it begins and one when it ends, with its time; a long one prints every 20 s which tests are
running. What this run leaves out is printed, a line each. The last line is 'N passed, N failed, N skipped', in test
cases. The exit status is 0 if none failed.

  --all            every suite in every build: also build-clang/, build-asan/ and build-tsan/, the emulated machines and
                   the containers (aim: 35 minutes on two cores)
  --suite NAME     only this suite: unit, fuzz, nic, sim, e2e, conformance, install, models, arm64, e2e-udp, sim-long,
                   conformance-net, debian or vm; the tests of one build: clang, asan or tsan; or docker
                   (docker/test.sh)
  --no-sanitizers  --all without build-asan/ and build-tsan/
  --no-docker      --all without docker/test.sh
  --no-vm          --all without the emulated machines
  --help           print this text and exit

environment: FAR_TESTS_STRICT=1  warnings are errors, and a skip is a failure unless external data are missing
             FAR_TESTS_BUILD     the directory of the build directories (default: the top of the tree)
             FAR_TESTS_LIMIT_S   seconds of the run after which --all begins the tests of no further build: each that is
                                 left out is named and counted as a skip (default: none)
END
}

say() { echo "tests: $*"; }

die() {
	say "$*"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
}

only=
all=
sanitizers=yes
docker=yes
vm=yes
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		usage
		exit 0
		;;
	--all) all=yes ;;
	--suite)
		only=${2:-}
		case " $quick_suites $long_suites $builds_of_all " in
		*" $only "*) ;;
		*)
			echo "tests: --suite: '$only' is not one of: $quick_suites $long_suites $builds_of_all" >&2
			exit 2
			;;
		esac
		shift
		;;
	--no-sanitizers) sanitizers= ;;
	--no-docker) docker= ;;
	--no-vm) vm= ;;
	*)
		echo "tests: unknown option $1; --help lists the options" >&2
		exit 2
		;;
	esac
	shift
done
if [ -n "$all" ] && [ -n "$only" ]; then
	echo "tests: --all and --suite exclude each other" >&2
	exit 2
fi

top=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
builds=${FAR_TESTS_BUILD:-$top}
mkdir -p "$builds" || die "cannot make $builds"
counts=$(mktemp) || die "mktemp failed"
containers_run=
ahead_run=
cleanup() {
	for run in $containers_run $ahead_run; do
		kill "$run" && wait "$run"
	done 2>/dev/null
	rm -f "$counts" "$counts".*
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
began=$(date +%s)
# The first tier has each command once, with one choice of what it varies.
unset FAR_TESTS_BRIEF
[ -n "$all$only" ] || export FAR_TESTS_BRIEF=1

# ---- packages ----

# shellcheck disable=SC2086 # words
installed=$(dpkg-query -W -f '${Package}: ${Status}\n' $packages 2>/dev/null | sed -n 's/: install ok installed$//p')
missing=
for p in $packages; do
	echo "$installed" | grep -qxF "$p" || missing="$missing $p"
done
if [ -n "$missing" ]; then
	sudo=
	[ "$(id -u)" -eq 0 ] || sudo="sudo"
	say "installing:$missing"
	# Another apt may hold the lock: wait for it.
	apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300"
	# shellcheck disable=SC2086 # words of a command
	$apt install -y --no-install-recommends $missing >"$counts.log" 2>&1 </dev/null ||
		{ $apt update && $apt install -y --no-install-recommends $missing; } >"$counts.log" 2>&1 </dev/null || {
		cat "$counts.log"
		die "installing failed:$missing"
	}
fi

# A python3 that is a script which looks for the interpreter (pyenv) takes ten times as long to start as the interpreter,
# and tests start hundreds.
python=$(python3 -c 'import sys; print(sys.executable)') && PATH=${python%/*}:$PATH

# ---- what this machine permits ----

permits() { # what, command...
	what=$1
	shift
	if "$@" >/dev/null 2>&1 </dev/null; then say "permitted here: $what"; else say "not permitted here: $what"; fi
}
user="env"
[ "$(id -u)" -ne 0 ] || user="setpriv --reuid=65534 --regid=65534 --clear-groups"
# shellcheck disable=SC2086 # words of a command
[ "$(id -u)" -ne 0 ] || permits "becoming an unprivileged user" $user true
# shellcheck disable=SC2086
permits "user namespaces for an unprivileged user" $user unshare -Ur true
# shellcheck disable=SC2086
permits "mounting and network devices in them" $user unshare -Urmn sh -c 'mount -t tmpfs x /dev/shm && ip link set lo up'
say "$(nproc) cores, Linux $(uname -r)"

# ---- builds and suites ----

# One test builds the product once more, as users do: its objects are those of the default build, out of the cache. The
# compiler that compiles says which files it read: none is run to learn it. Objects of another clone will do. Shell tests
# have a locale of their own, which changes the compiler's messages and no object.
export CCACHE_DEPEND=1 CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="$top" CCACHE_SLOPPINESS=locale

seconds() { echo $(($(date +%s) - began)); }
# Processor seconds of the children that have ended; a subshell would have its own.
processor() {
	times >"$counts.times"
	used=$(sed -n '2s/[ms]/ /gp' "$counts.times" | awk '{ printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }')
}
begin() {
	from=$(seconds)
	processor
	used_before=$used
}
spent() {
	processor
	took="$(($(seconds) - from)) s, $((used - used_before)) s of processors"
}

# One failure. The end of the output names all of them again, because a reader may see only that.
failed() { # what
	say "FAILED: $*"
	echo "FAILED: $*" >>"$counts.failed"
	echo "0 1 0" >>"$counts"
}
failed_build() {
	tail -n 100 "$counts.log"
	failed "$1 does not build"
}

targets=all # of ninja; nothing: what the suites in $of_build need, $also, and the objects of all programs but of $no_objects
also=
no_objects=all
wanted_targets() {
	# shellcheck disable=SC2086 # words
	python3 "$top/tests/suites.py" --targets "$where" $of_build
	# shellcheck disable=SC2086
	[ "$no_objects" = all ] || python3 "$top/tests/suites.py" --objects "$where" $no_objects
	echo "$also"
}
build() { # directory, compiler, meson options...
	where=$builds/$1
	label=$1
	compiler=$2
	shift 2
	begin
	say "$label: building with $compiler"
	if [ ! -f "$where/build.ninja" ]; then
		cxx=$(echo "$compiler" | sed 's/gcc/g++/; s/clang/clang++/')
		CC=$compiler CXX=$cxx $aside meson setup "$where" "$top" "$@" >"$counts.log" 2>&1 || {
			failed_build "$label"
			return 1
		}
	else # apps/quickstart.sh, for one, configures it with other options
		{ meson configure "$where" -Dtests=true "$@" && $aside ninja -C "$where" build.ninja; } >"$counts.log" 2>&1 || {
			failed_build "$label"
			return 1
		}
	fi
	# shellcheck disable=SC2046,SC2086 # words
	$aside ninja -k 0 -C "$where" ${targets:-$(wanted_targets)} >"$counts.log" 2>&1 || {
		failed_build "$label"
		return 1
	}
	spent
	say "$label: built with $compiler, $took"
}

# Runs a command on idle cores: at the lowest priority, in a session of its own, because the kernel divides the cores
# between sessions first. When this shell ends, the session ends.
idly() {
	setsid sh -c 'echo 19 >/proc/self/autogroup; exec nice -n 19 "$@"' sh "$@" &
	echo $! >"$all_counts.session"
	trap 'kill -TERM -$!; exit 143' TERM
	wait $!
}
# What waits for such a command lets it run as fast as others, if it may.
hurry() {
	read -r session <"$counts.session" && echo 0 >"/proc/$session/autogroup" && renice -n 0 -g "$session"
} >/dev/null 2>&1
aside=

# Reports of the sanitizers in this run are printed, and count as one failure. They go to files, because Criterion hides
# those that are written when the process of a case ends, as leaks are.
show_reports() { # directory
	[ -n "$(ls -A "$builds/$1/reports")" ] || return
	head -n 40 "$builds/$1/reports"/*
	failed "$1: reports of the sanitizers, above: $(cat "$builds/$1/reports"/* | grep -m 1 -E 'ERROR|WARNING|runtime error')"
}

run() { # directory, suites...
	where=$builds/$1
	label=$1
	shift
	rm -rf "$where/reports"
	mkdir "$where/reports"
	log="log_path=$where/reports/report:log_exe_name=1"
	ASAN_OPTIONS=detect_leaks=1:abort_on_error=1:$log UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:$log \
		TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:$log \
		python3 "$top/tests/suites.py" "$where" "$label" "$counts" "$@" </dev/null || failed "$label: tests/suites.py"
	show_reports "$label"
}

# Whether --suite does not exclude it, and this tier runs it.
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }
chosen() { if [ -n "$only" ]; then [ "$only" = "$1" ]; else [ -n "$all" ]; fi; }

ended() { # name
	spent
	say "$1: $(tail -n 1 "$counts" | awk '{print $1 " passed, " $2 " failed, " $3 " skipped"}'), $took"
}

strict=false
[ "${FAR_TESTS_STRICT:-}" != 1 ] || strict=true

# The instructions of a call, against their bounds.
gate() { # directory
	begin
	say "$1, instructions: begins"
	sh "$top/perf/instructions.sh" --check "$builds/$1"
	case $? in
	0) echo "1 0 0" >>"$counts" ;;
	77) echo "0 0 1" >>"$counts" ;;
	*) failed "$1: instructions: sh perf/instructions.sh --check" ;;
	esac
	ended "$1, instructions"
}

# The code of both compilers sends the same packets in the simulator's clusters.
same() {
	begin
	say "gcc and clang, simulated packets: begins"
	if sh "$top/tests/sim/cluster_same.sh" "$builds/build/tests/sim/cluster_trace" "$builds/build-clang/tests/sim/cluster_trace"; then
		echo "1 0 0" >>"$counts"
	else
		failed "the builds of gcc and clang send different packets: tests/sim/cluster_same.sh"
	fi
	ended "gcc and clang, simulated packets"
}

# The image and the groups of containers: beside everything else, because they mostly wait. With counts and output of
# their own.
containers() {
	counts=$counts.docker
	begin
	FAR_TESTS_BUILD=$builds sh "$top/docker/test.sh" >"$counts.log" 2>&1 </dev/null &
	trap 'kill $!' TERM
	wait $!
	sed -n -e '/^FAIL/p' -e '/^SKIP/p' -e '/^the image/p' -e 's/^PASS/tests: docker:/p' "$counts.log"
	tail -n 1 "$counts.log" | awk -v strict="$strict" '
		!/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { print "0 1 0"; exit }
		strict == "true" { print $1, $3 + $5, 0; exit }
		{ print $1, $3, $5 }' >>"$counts"
	if grep -q '^FAIL' "$counts.log" || ! grep -q '^[0-9]* passed' "$counts.log"; then
		cat "$counts.log"
		{
			echo "FAILED: docker/test.sh:"
			grep '^FAIL' "$counts.log" || tail -n 5 "$counts.log"
		} >>"$counts.failed"
	fi
	ended docker
}

# ---- the other builds ----

sanitized="--buildtype=debugoptimized -Dwerror=$strict -Dc_args=-gline-tables-only -Dcpp_args=-gline-tables-only -Db_lundef=false"
sanitize=
if [ -n "$sanitizers" ]; then
	! chosen asan || sanitize="$sanitize sanitize"
	if [ -n "$vm" ] && chosen vm; then sanitize="$sanitize vm-sanitize"; fi
fi

# Unit tests that the sanitizers' build runs, with the same compiler and more checks, are left out.
of_clang="unit clang"
case $sanitize in
*" sanitize"*) of_clang="unit!sanitize clang" ;;
esac
# What neither this build's tests run nor the sanitizers' build compiles is compiled and not linked.
build_clang() {
	targets=
	also="perf/step tests/sim/cluster_trace"
	of_build=$of_clang
	no_objects=$of_build$sanitize
	build build-clang "ccache clang" --buildtype=release -Dwerror=$strict
}
# Reports name lines and nothing else. lld links such a program in less than half of the processor time.
build_asan() {
	targets=
	also=
	of_build=$sanitize
	no_objects=all
	# shellcheck disable=SC2086 # words
	CC_LD=lld CXX_LD=lld build build-asan "ccache clang" $sanitized -Db_sanitize=address,undefined
}
build_tsan() {
	targets=tests-tsan
	# shellcheck disable=SC2086 # words
	CC_LD=lld CXX_LD=lld build build-tsan "ccache clang" $sanitized -Db_sanitize=thread
}

others=
! chosen clang || others="$others clang"
[ -z "$sanitize" ] || others="$others asan"
if [ -n "$sanitizers" ] && chosen tsan; then others="$others tsan"; fi

# Builds the others one after the other, on cores that are idle. Each has counts of its own, and a file that says that it
# was built.
build_ahead() {
	aside=idly
	all_counts=$counts
	for one in $others; do
		counts=$all_counts.$one
		"build_$one" </dev/null && : >"$counts.built"
		: >"$counts.over"
	done
}
if [ -n "$others" ]; then
	build_ahead &
	ahead_run=$!
fi
# Waits for one of them. Fails when it was not built, or when a machine on which all before it took so long would not end
# in time.
built() {
	case " $others " in
	*" $1 "*) ;;
	*) return 1 ;;
	esac
	if [ -n "${FAR_TESTS_LIMIT_S:-}" ] && [ "$(seconds)" -ge "$FAR_TESTS_LIMIT_S" ]; then
		say "SKIP: $1: this machine is too slow: $(seconds) s have passed, FAR_TESTS_LIMIT_S is $FAR_TESTS_LIMIT_S"
		echo "0 0 1" >>"$counts"
		return 1
	fi
	while [ ! -e "$counts.$1.over" ] && kill -0 "$ahead_run" 2>/dev/null; do
		hurry
		sleep 0.3
	done
	cat "$counts.$1" >>"$counts" 2>/dev/null
	cat "$counts.$1.failed" >>"$counts.failed" 2>/dev/null
	[ -e "$counts.$1.built" ]
}

if [ -n "$docker" ] && chosen docker; then
	say "docker: begins, beside everything else"
	containers >"$counts.containers" &
	containers_run=$!
fi

# ---- the default build ----

of_build=
for s in $quick_suites; do
	# build-asan runs the same corpora, with more checks.
	if [ "$s" = fuzz ] && [ -n "$all" ] && [ -n "$sanitizers" ]; then continue; fi
	! wanted "$s" || of_build="$of_build $s"
done
for s in $long_suites; do
	[ "$s" != vm ] || [ -n "$vm" ] || continue
	! chosen "$s" || of_build="$of_build $s"
done
# The table of conformance-net has a column of the suite conformance.
[ "$only" != conformance-net ] || of_build="conformance conformance-net"
case "$of_build" in
*sim-long*) targets="all tests/sim/farcall-mutants tests/sim/lease-mutants tests/sim/keys-mutants tests/sim/ps_service_mutants" ;;
esac
if [ -n "$of_build" ] && build build "ccache gcc" --buildtype=release -Dwerror=$strict; then
	# shellcheck disable=SC2086 # words
	run build $of_build
	if wanted e2e; then gate build; fi
fi

# ---- the tests of the other builds ----

if built clang; then
	# shellcheck disable=SC2086 # words
	run build-clang $of_clang # fuzz: by clang, too, in build-asan
	gate build-clang
	[ ! -x "$builds/build/tests/sim/cluster_trace" ] || same
fi
# shellcheck disable=SC2086 # words
! built asan || run build-asan $sanitize
! built tsan || run build-tsan tsan
kill -0 "$ahead_run" 2>/dev/null || ahead_run=
if [ -n "$containers_run" ]; then
	wait "$containers_run"
	containers_run=
	cat "$counts.containers"
	cat "$counts.docker" >>"$counts"
	cat "$counts.docker.failed" >>"$counts.failed" 2>/dev/null
fi

# ---- what was left out ----

skip() { # suite, option, what it shows
	say "SKIP: $1: left out by $2: $3"
	echo "0 0 1" >>"$counts"
}
leave() { # option, what it shows
	say "left out: $2: sh tests/run.sh $1"
}
machines="DPDK on network cards, and verbs on soft-RoCE and iWARP, in emulated machines with Debian's own kernel"
containers="the image of docker/Dockerfile, and training in containers over udp and shm"
if [ -n "$all" ]; then
	[ -n "$sanitizers" ] || skip "asan, tsan" --no-sanitizers "address, undefined-behaviour and thread sanitizers"
	[ -n "$vm" ] || skip vm --no-vm "$machines"
	[ -n "$docker" ] || skip docker --no-docker "$containers"
elif [ -z "$only" ]; then
	leave "--suite models" "the models of the protocols and of the lock-free structures, and their broken variants"
	leave "--suite arm64" "fibers on arm64, emulated"
	leave "--suite e2e" "further cases of its scripts: roles of a job that die, trainings, measurements"
	leave "--suite nic" "two thirds of the repetitions of a driver's second and further ways"
	leave "--suite fuzz" "six of seven flipped bits of the corpora"
	leave "--suite e2e-udp" "the programs of e2e once more, over udp"
	leave "--suite conformance-net" "the reference's tests over udp, over a lossy network, over memif, and without the fast path"
	leave "--suite sim-long" "thousands of seeds of references in the simulator, and the planted defects that it must find"
	leave "--suite debian" "the packages of Debian: built, checked by lintian, unpacked, used"
	leave "--suite clang" "the unit tests and a part of the others, compiled by clang"
	leave "--suite asan" "the address and undefined-behaviour sanitizers"
	leave "--suite tsan" "the thread sanitizer"
	leave "--suite vm" "$machines"
	leave "--suite docker" "$containers"
	leave "--all" "all of this, in one run"
fi

if [ -s "$counts.once" ]; then
	say "UNSTEADY: what failed once, and then ran alone:"
	cut -c 1-300 "$counts.once" | head -n 40
fi
if [ -s "$counts.failed" ]; then
	say "what failed, again:"
	cut -c 1-300 "$counts.failed" | head -n 80
fi
say "$(seconds) s in all"
awk '{ p += $1; f += $2; s += $3 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p + s == 0 }' "$counts"
