# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What the machine itself promises to plans. With two cards on a hub, which the kernel drives.
. "$VM_TOP/tests/vm/guest.sh"
# shellcheck disable=SC2086 # words of $as_user

# Prints this machine's clock, the host's, as the time of a file that the host makes, and this machine's again.
clocks() { # a name
	read -r before _ </proc/uptime
	: >"$VM_RUN/clock-$VM_ID-$1"
	read -r after _ </proc/uptime
	echo "$before $(stat -c %.2Y "$VM_RUN/clock-$VM_ID-$1") $after"
}
first_clocks=$(clocks first)
test "$(id -u)" -eq 0
ok root $?
bounded $as_user sh -c 'test "$(id -u)" -ne 0 && ! touch /usr/x 2>/dev/null'
did user
touch /usr/written-here
ok "writes stay in the machine" $?
bounded modprobe virtio_net
did "modules of the kernel"
bounded "$VM_BUILD/farcall" --version
did "programs of the build, root"
chmod 777 "$dir"
bounded $as_user env FAR_RUNTIME_DIR="$dir/user" "$VM_BUILD/farcall" run -n 2 -- "$VM_BUILD/tests/e2e/api_message"
did "programs of the build, user"

bind 0 kernel && bind 1 kernel
ok "cards of the kernel" $?
first=$(interface 0)
second=$(interface 1)
ip addr add 10.7.0.1/24 dev "$first" && ip link set "$first" up
unshare -n sleep 600 &
holder=$!
apart() { [ "$(readlink "/proc/$holder/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
within 60 apart
ok "a network namespace" $?
ip link set "$second" netns "$holder"
nsenter -t "$holder" -n ip addr add 10.7.0.2/24 dev "$second" && nsenter -t "$holder" -n ip link set "$second" up
answers() { ping -c 1 -W 5 10.7.0.2 >/dev/null; }
carrier() { [ "$(cat "/sys/class/net/$first/carrier")" = "$1" ]; }
within 60 answers
ok "cards of a hub see each other" $?
# What may stand on the monitor's line before a command: a prompt, and what a run that was ended has left of one.
printf '(qemu) ' >"$(echo /dev/vport*p1)" && link 0 down && within 60 carrier 0
ok "link down, behind a prompt" $?
printf '{"execute": "set_' >"$(echo /dev/vport*p1)" && link 0 up && within 60 carrier 1
ok "link up, behind half a command" $?
link 0 down && within 60 carrier 0
ok "link down" $?
link 0 up && within 60 carrier 1 && within 60 answers
ok "link up" $?
! monitor '{"execute": "no-such-thing"}' >/dev/null
ok "the monitor refuses nonsense" $?
if [ -n "$VM_OTHER" ]; then
	meet here
	ok "the other machine" $?
fi
sleep 5
# This machine's clock was read before and behind each of the two files.
echo "$first_clocks $(clocks second)" | awk '{ host = $5 - $2; least = $4 - $3; most = $6 - $1
	printf "%.1f to %.1f s, %.1f s of the host\n", least, most, host
	exit !(least < host * 1.1 + 0.5 && most > host * 0.9 - 0.5) }' >"$dir/out"
ok "its clock runs as the host's does" $?
kill "$holder" && reap "$holder" 60 "the holder of a namespace"
finish
