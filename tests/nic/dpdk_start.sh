#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The dpdk module: found or not, of another version, without rights, with and without huge pages; and what its frames
# look like to others.
# usage: dpdk_start.sh MEMIF PCAP MODULE FAKE_VERSION FAKE_ABI FAKE_EMPTY
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
. "$here/../e2e/cases.sh"
memif=$1
pcap=$2
module=$3

in_dir() { # a directory with this file as the module; the cases of $memif then
	rm -rf "$dir/modules"
	mkdir "$dir/modules"
	[ -z "$1" ] || cp "$1" "$dir/modules/libfarcall-nic-dpdk.so"
	FAR_MODULE_DIR="$dir/modules" bounded "$memif" released
}

# ---- the module ----

in_dir ''
[ "$rc" -eq 77 ] && says "there is no $dir/modules/libfarcall-nic-dpdk.so (FAR_MODULE_DIR)"
ok 'a missing module is named' $?
in_dir "$module"
[ "$rc" -eq 0 ]
ok 'a module in FAR_MODULE_DIR is taken' $?
in_dir "$4"
[ "$rc" -eq 77 ] && says 'is of Farcall 9.9.9' && says 'install both from one build'
ok 'a module of another version is refused' $?
in_dir "$5"
[ "$rc" -eq 77 ] && says 'has module interface 4711' && says 'install both from one build'
ok 'a module of another interface is refused' $?
in_dir "$6"
[ "$rc" -eq 77 ] && says 'has no symbol far_nic_module'
ok 'any shared object is no module' $?
seq 1000 >"$dir/text"
in_dir "$dir/text"
[ "$rc" -eq 77 ] && says 'cannot be loaded' && says 'invalid ELF header'
ok 'any file is no module' $?

# ---- EAL ----

FAR_DPDK_EAL='--no-such-option' bounded "$memif" released
[ "$rc" -eq 1 ] && says 'EAL cannot be started' && says 'see FAR_DPDK_EAL'
ok 'what FAR_DPDK_EAL must not say is refused' $?
FAR_DPDK_EAL='--log-level=pmd.net.memif:8 -m 32' bounded "$memif" released
[ "$rc" -eq 0 ] && says 'farcall: dpdk: memif'
ok 'FAR_DPDK_EAL is heeded, and what DPDK says is shown' $?
bounded "$memif" released
[ "$rc" -eq 0 ] && [ ! -s "$dir/err" ]
ok 'nothing is printed when nothing is wrong' $?
bounded "$memif" affinity
[ "$rc" -eq 0 ]
ok 'no thread is moved, and no signal reaches threads of EAL' $?

# As nobody, who has neither XDG_RUNTIME_DIR nor a home.
if [ "$(id -u)" -eq 0 ]; then
	# Copies: the user may not be able to read the build directory.
	chmod 711 "$dir"
	mkdir "$dir/copies"
	cp "$memif" "$module" "$dir/copies"
	chmod -R a+rX "$dir/copies"
	as_nobody="env -u XDG_RUNTIME_DIR FAR_MODULE_DIR=$dir/copies setpriv --reuid=65534 --regid=65534 --clear-groups"
	for case in echo restart; do
		# shellcheck disable=SC2086 # words of a command
		bounded $as_nobody "$dir/copies/${memif##*/}" $case
		ok "memif without root: $case" "$rc"
	done
	# DPDK's directory of another user in the way, as on a machine that root uses DPDK on.
	# shellcheck disable=SC2086
	bounded $as_nobody --no-new-privs "$dir/copies/${memif##*/}" released
	ok 'memif without root and without new privileges' "$rc"
else
	bounded env -u XDG_RUNTIME_DIR "$memif" echo
	ok 'memif without root: echo' "$rc"
fi

# ---- huge pages ----

pages=/proc/sys/vm/nr_hugepages
before=$(cat $pages)
FAR_TEST_HUGE=1 bounded "$memif" huge
if [ "$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)" -lt 8 ]; then
	[ "$rc" -eq 1 ] && says 'fewer than 16 MiB of huge pages are free' && says 'sysctl vm.nr_hugepages'
	ok 'huge=1 without huge pages says what is missing' $?
fi
restore() {
	echo "$before" >$pages
	rm -rf "$dir"
}
if [ -w $pages ] && trap restore EXIT && echo $((before + 64)) >$pages 2>/dev/null &&
	[ "$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)" -ge 64 ]; then
	FAR_TEST_HUGE=1 bounded "$memif" huge
	[ "$rc" -eq 0 ] && has out 'huge pages in use'
	ok 'memif with huge pages, by huge=' $?
	bounded "$memif" huge
	[ "$rc" -eq 0 ] && has out 'huge pages in use'
	ok 'memif with huge pages, because there are some' $?
	FAR_TEST_HUGE=0 bounded "$memif" huge
	[ "$rc" -eq 0 ] && has out 'no huge pages in use'
	ok 'memif without them, though there are some' $?
else
	skip 'memif with huge pages' 'setting vm.nr_hugepages'
fi
echo "$before" >$pages 2>/dev/null

# ---- frames, as others see them ----

for v in 6 4; do
	bounded "$pcap" "$dir" write$v
	ok "frames of IPv$v are written to a file" "$rc"
	bounded "$pcap" "$dir" read$v
	ok "frames of IPv$v are read as they were written" "$rc"
done
bounded "$pcap" "$dir" others
ok 'unexpected frames and broken ones are counted apart' "$rc"
decode() {
	tshark -r "$dir/$1" -o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -T fields -E separator=';' -d udp.port==7471,data \
		-e frame.protocols -e udp.dstport -e ip.checksum.status -e udp.checksum.status -e _ws.malformed \
		-e _ws.expert.severity 2>/dev/null
}
if command -v tshark >/dev/null; then
	for v in 4 6; do
		# 1: good; nothing malformed, no remark of an expert.
		want='^eth:ethertype:ip:udp:data;7471;1;1;;$'
		[ $v = 6 ] && want='^eth:ethertype:ipv6:udp:data;7471;;1;;$'
		decode v$v.pcap >"$dir/decoded"
		[ "$(grep -c "$want" "$dir/decoded")" -eq 400 ] && [ "$(wc -l <"$dir/decoded")" -eq 400 ]
		ok "tshark decodes all frames of IPv$v, with good checksums" $?
	done
else
	skip_data 'tshark decodes all frames' 'tshark'
fi
finish
