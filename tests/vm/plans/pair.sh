# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What two machines promise to plans, joined by card 0, which the kernel drives.
. "$VM_TOP/tests/vm/guest.sh"

here=1 there=2
[ "$VM_ID" = A ] || here=2 there=1
bind 0 kernel && at=$(interface 0) && ip addr add "10.7.0.$here/24" dev "$at" && ip link set "$at" up
ok "a card" $?
meet up
ok "the other machine is met" $?
answers() { ping -c 1 -W 5 "10.7.0.$there" >/dev/null; }
within 120 answers
ok "the other machine answers" $?
echo "$VM_ID" >"$VM_RUN/from-$VM_ID" && meet written && grep -q "$VM_OTHER" "$VM_RUN/from-$VM_OTHER"
ok "what it has written is here" $?
meet end
finish
