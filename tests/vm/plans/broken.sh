# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Plans that must not pass, for tests/vm/harness.sh.
# usage: broken.sh fails|found|nothing|status|panics|hangs
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
	echo c >/proc/sysrq-trigger
	;;
hangs)
	ok "what holds" 0
	sleep 3600
	;;
esac
