/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads the state of a network card on PCI before DPDK takes it over: model, bound driver, missing rights. System
 * calls only, no DPDK; any thread. */
#ifndef FAR_NIC_DPDK_HOST_PCI_H
#define FAR_NIC_DPDK_HOST_PCI_H

#include "nic/nic.h"

#include <stdbool.h>
#include <stdint.h>

#define HOST_PCI_NAME_BYTES 16 /* "0000:03:00.0" */
/* The remedy when a card is taken. */
#define HOST_PCI_ADVICE "one card, or one virtual function of it, for each process; or udp"

/** Mount points of sysfs and devices: "/sys" and "/dev"; tests use others. */
struct host_pci_roots {
	const char *sys, *dev;
};

/** How a process can access a card. */
enum host_pci_access {
	HOST_PCI_NONE,  /* not at all: bound to a network driver of the kernel, or unbound */
	HOST_PCI_VFIO,  /* vfio-pci: the IOMMU translates DMA; rights are those of a file */
	HOST_PCI_UIO,   /* uio_pci_generic, igb_uio: DMA reaches all memory; root only */
	HOST_PCI_SHARED /* mlx4, mlx5: the kernel keeps the card and shares it with us */
};

struct host_pci {
	char name[HOST_PCI_NAME_BYTES]; /* with the domain, lower case */
	uint16_t vendor, id;
	uint32_t class;   /* 0x02….: network card */
	char driver[32];  /* bound kernel driver; "": none */
	char iface[32];   /* kernel interface of the card; "": none */
	int group;        /* IOMMU group; −1: none */
	int uio;          /* N of /dev/uioN; −1: none */
	char blocker[64]; /* another device of the IOMMU group that is bound to a kernel driver, and that driver; "":
			     none */
	enum host_pci_access access;
	bool noiommu; /* vfio without an IOMMU: DMA reaches all memory */
};

/** Parses a PCI address, [domain:]bus:device.function, hexadecimal. False: not one. */
bool host_pci_name(const char *text, char out[HOST_PCI_NAME_BYTES]);

/** Reads a card. -ENODEV: no device at this address, or not a network card. */
int host_pci_read(const struct host_pci_roots *roots, const char *name, struct host_pci *out, struct nic_err *err);

/** 0 if this process could take the card over; -EBUSY: the kernel uses it; -EACCES: a right is missing; -ENOENT: a
 * kernel driver must be bound. `err` holds the remedy. */
int host_pci_usable(const struct host_pci_roots *roots, const struct host_pci *card, struct nic_err *err);

/** "0000:03:00.0 (8086:10d3, vfio-pci)", truncated to `cap`; returns `out`. */
const char *host_pci_text(const struct host_pci *card, char *out, size_t cap);

/** Reads a card and locks it against other processes of this host, until the descriptor is closed or the process ends:
 * one card serves one process, also where the kernel shares it. A container with a network namespace of its own sees
 * other sysfs entries, and not this lock. Returns the descriptor; errors as above, and -EBUSY: locked by another
 * process. */
int host_pci_claim(const struct host_pci_roots *roots, const char *name, struct host_pci *out, struct nic_err *err);

/** True if DPDK could not open the card because a process without our lock uses it. Detectable for vfio only. */
bool host_pci_is_taken(const struct host_pci_roots *roots, const struct host_pci *card);

#endif
