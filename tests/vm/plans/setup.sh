# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The lists of commands of nic/SETUP.md, as the page has them.
# usage: setup.sh soft-roce|vfio|uio    with card 0, which the kernel has; vfio: and an IOMMU
. "$VM_TOP/tests/vm/guest.sh"
export PATH="$VM_BUILD:$PATH"
[ "$1" != soft-roce ] || unset FAR_MODULE_DIR
huge_pages 0
bind 0 kernel
ok "a card of the kernel's" $?
page=$VM_TOP/nic/SETUP.md
rm -f /run/group.key # of the list before
bounded python3 "$VM_TOP/tests/vm/setup_page.py" "$page" "$1" "eth0=$(interface 0)" "0000:03:00.0=$(card 0)"
did "$1, as the page has it"
cp "$dir/out" "$VM_RUN/setup-$1"
# What the page does not have is found out.
sed 's/not available/nowhere to be found/; s/not ready: /ready: /' "$page" >"$dir/SETUP.md"
rm -f /run/group.key
rdma link delete rxe0 2>/dev/null
modprobe -r rdma_rxe 2>/dev/null
bind 0 kernel
bounded python3 "$VM_TOP/tests/vm/setup_page.py" "$dir/SETUP.md" "$1" "eth0=$(interface 0)" "0000:03:00.0=$(card 0)"
[ "$rc" -ne 0 ] && has err 'has not printed'
ok "another page is refused" $?
if [ "$1" != soft-roce ]; then
	# The error of a card's second worker names the remedies.
	bind 0 "$(if [ "$1" = vfio ]; then echo vfio-pci; else echo uio_pci_generic; fi)" && huge_pages 64
	hold_card "$(card 0),ip=10.0.0.5/24"
	FAR_KEY_FILE=/run/group.key bounded farcall info --nic "dpdk:$(card 0),ip=10.0.0.6/24"
	shows "a card serves one process" out "is another process' already.*one card, or one virtual function of it, for each process; or udp"
	let_card_go
fi
bind 0 kernel
ip addr flush dev "$(interface 0)"
finish
