/* SPDX-License-Identifier: BSD-3-Clause */
/** Network cards on PCI: whether a card is usable, and the lock against other processes of the host. Control thread. */
#include "nic/dpdk/dpdk.h"

#include <unistd.h>

static const struct host_pci_roots roots = {"/sys", "/dev"};

int dpdk_card_probe(const struct dpdk_args *args, struct nic_err *err)
{
	struct host_pci card;
	int error = host_pci_read(&roots, args->name, &card, err);
	if (!error)
		error = host_pci_usable(&roots, &card, err);
	if (!error && err)
		host_pci_text(&card, err->text, sizeof err->text);
	return error;
}

int dpdk_card_open(struct dpdk_port *p, struct nic_err *err)
{
	int fd = host_pci_claim(&roots, p->args.name, &p->card, err);
	p->claim = fd < 0 ? -1 : fd;
	return fd < 0 ? fd : 0;
}

const char *dpdk_card_advice(const struct dpdk_port *p)
{
	return p->args.pci && host_pci_is_taken(&roots, &p->card)
		       ? "; another process has it, and a card serves one: " HOST_PCI_ADVICE
		       : "";
}

static bool link_is_down(const struct dpdk_port *p)
{
	struct rte_eth_link link;
	if (p->args.class == DPDK_IFACE)
		return !host_iface_has_carrier(p->args.iface);
	return p->args.pci && rte_eth_link_get_nowait(p->ethdev, &link) == 0 && !link.link_status;
}

void dpdk_link_remark(const struct dpdk_port *p, struct nic_err *err)
{
	if (link_is_down(p))
		dpdk_error(err, 0, "dpdk: the link of %s is down: see its cable and the peer's",
			   p->args.class == DPDK_IFACE ? p->args.iface : p->args.name);
}

bool dpdk_card_is_physical(const struct dpdk_port *p)
{
	return p->card.access == HOST_PCI_UIO || p->card.noiommu;
}

void dpdk_card_close(struct dpdk_port *p)
{
	if (p->claim >= 0)
		close(p->claim);
	p->claim = -1;
}
