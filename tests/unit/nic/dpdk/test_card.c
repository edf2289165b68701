/* SPDX-License-Identifier: BSD-3-Clause */
/** What a port does with its card, where it has none, and the remarks on a link. The test's thread. */
#include "nic/dpdk/dpdk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static struct dpdk_port p;
static struct nic_err err;

Test(dpdk_card, a_card_that_is_not_there)
{
	struct dpdk_args args = {.pci = true, .name = "ffff:ff:1f.7"};
	cr_assert_eq(dpdk_card_probe(&args, &err), -ENODEV);
	cr_assert(strstr(err.text, "ffff:ff:1f.7"), "%s", err.text);
	p.args = args;
	cr_assert_eq(dpdk_card_open(&p, &err), -ENODEV);
	cr_assert_eq(p.claim, -1);
	dpdk_card_close(&p);
	cr_assert_eq(p.claim, -1);
}

/* The lock ends with the descriptor. */
Test(dpdk_card, closes_its_lock_once)
{
	p.claim = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int fd = p.claim;
	dpdk_card_close(&p);
	cr_assert(p.claim == -1 && fcntl(fd, F_GETFD) == -1);
	int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	dpdk_card_close(&p);
	cr_assert_neq(fcntl(other, F_GETFD), -1);
	close(other);
}

/* A device whose memory accesses no IOMMU translates. */
Test(dpdk_card, physical_addresses)
{
	static const struct {
		enum host_pci_access access;
		bool noiommu, physical;
	} cases[] = {{HOST_PCI_NONE, false, false},
		     {HOST_PCI_VFIO, false, false},
		     {HOST_PCI_VFIO, true, true},
		     {HOST_PCI_UIO, false, true},
		     {HOST_PCI_SHARED, false, false}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		p.card = (struct host_pci){.access = cases[i].access, .noiommu = cases[i].noiommu};
		cr_assert_eq(dpdk_card_is_physical(&p), cases[i].physical, "%u", i);
	}
}

/* Virtual devices are no cards; nothing is remarked of a link that cannot be read. */
Test(dpdk_card, without_a_card)
{
	p.args = (struct dpdk_args){.class = DPDK_OWN, .name = "net_null0"};
	cr_assert_str_eq(dpdk_card_advice(&p), "");
	snprintf(err.text, sizeof err.text, "before");
	dpdk_link_remark(&p, &err);
	cr_assert_str_eq(err.text, "before");
	p.args = (struct dpdk_args){.class = DPDK_IFACE, .name = "net_af_packet0", .iface = "nowhere0"};
	dpdk_link_remark(&p, &err);
	cr_assert_str_eq(err.text, "before");
}
