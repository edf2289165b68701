/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the host says of a network card on PCI, before DPDK takes it over: which it is, who has it, and what is missing.
 * Pure system calls, no DPDK; any thread.
 */
#ifndef FAR_NIC_DPDK_HOST_PCI_H
#define FAR_NIC_DPDK_HOST_PCI_H

#include "nic/nic.h"

#include <stdbool.h>
#include <stdint.h>

#define HOST_PCI_NAME_BYTES 16 /* "0000:03:00.0" */
/* Who finds a card taken. */
#define HOST_PCI_ADVICE "one card, or one virtual function of it, for each process; or udp"

/** Where the kernel tells of devices: "/sys" and "/dev", unless a test has others. */
struct host_pci_roots {
	const char *sys, *dev;
};

/** How a program gets at a card. */
enum host_pci_way {
	HOST_PCI_NONE,  /* not at all: it has the kernel's own driver, or none */
	HOST_PCI_VFIO,  /* vfio-pci: DMA is translated; rights are those of a file */
	HOST_PCI_UIO,   /* uio_pci_generic, igb_uio: DMA goes to any address; root only */
	HOST_PCI_SHARED /* the kernel keeps it beside us: mlx4, mlx5 */
};

struct host_pci {
	char name[HOST_PCI_NAME_BYTES]; /* with the domain, lower case */
	uint16_t vendor, id;
	uint32_t class;   /* 0x02….: a network card */
	char driver[32];  /* the kernel's; "": none */
	char iface[32];   /* its interface; "": none */
	int group;        /* of the IOMMU; −1: none */
	int uio;          /* the number of its /dev/uioN; −1: none */
	char blocker[64]; /* another device of the group that still has a driver of the kernel's, and which; "": none */
	enum host_pci_way way;
	bool noiommu; /* vfio without an IOMMU: DMA goes to any address */
};

/** Reads PCI addresses, [domain:]bus:device.function, in hexadecimal. False: `text` is none. */
bool host_pci_name(const char *text, char out[HOST_PCI_NAME_BYTES]);

/** Looks at a card. -ENODEV: there is none of that address, or it is no network card. */
int host_pci_read(const struct host_pci_roots *roots, const char *name, struct host_pci *out, struct nic_err *err);

/**
 * Whether this process could take it over: 0; -EBUSY: the kernel has it; -EACCES: a right is missing; -ENOENT: a driver
 * of the kernel's is. `err` says what to do.
 */
int host_pci_usable(const struct host_pci_roots *roots, const struct host_pci *card, struct nic_err *err);

/** "0000:03:00.0 (8086:10d3, vfio-pci)", cut to `cap`; returns `out`. */
const char *host_pci_text(const struct host_pci *card, char *out, size_t cap);

/**
 * Looks at a card that is to be used, and claims it among this host's processes until the descriptor is closed, or the
 * process ends: a card serves one, also where the kernel keeps it. Who sees other files of the kernel, as in a
 * container with a network of its own, does not see the claim. The descriptor; errors of the two above, and -EBUSY:
 * another has it.
 */
int host_pci_take(const struct host_pci_roots *roots, const char *name, struct host_pci *out, struct nic_err *err);

/** DPDK could not open it: because another process, which knows of no claims, has it? vfio alone can tell. */
bool host_pci_is_taken(const struct host_pci_roots *roots, const struct host_pci *card);

#endif
