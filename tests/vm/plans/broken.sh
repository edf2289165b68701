# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Plans that must not pass, for tests/vm/harness.sh.
# usage: broken.sh fails|found|nothing|status|panics|hangs|leaves
. "$VM_TOP/tests/vm/guest.sh"
case $1 in
fails)
	ok "what holds" 0
	bounded sh -c 'echo said before >&2; exit 3'
	did "what does not"
	finish
	;;
found)
	ok "what holds" 0
	"$VM_BUILD/tests/vm/planted"
	finish
	;;
nothing) exit 0 ;;
status)
	ok "what holds" 0
	exit 9
	;;
panics)
	ok "what holds" 0
	stty -F /dev/ttyS0 "$(stty -F /dev/ttyS0 -g)" # it returns when all has been sent: a panic drops the rest
	echo c >/proc/sysrq-trigger
	;;
hangs)
	ok "what holds" 0
	sleep 3600
	;;
leaves) # of two machines, the second
	if [ "$VM_ID" = B ]; then
		echo o >/proc/sysrq-trigger
		sleep 3600
	fi
	meet here
	ok "never reached" 0
	;;
esac
