/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The XDP filter of an interface that AF_XDP sockets share with the kernel. It passes the UDP datagrams to our address
 * and ports to the sockets, and everything else to the kernel; ours too while no socket is there.
 *
 * DPDK's net_af_xdp loads a program from an ELF object with a map xsks_map, fills the map and attaches the program to
 * the interface, where it would outlive a killed process. So:
 *
 *	xdp_probe()     checks rights
 *	xdp_remove_stale()     removes the program of a killed process, on kernels without BPF links
 *	xdp_object()    writes the filter as an object: a descriptor, and the path for xdp_prog=
 *	                (the device is created and its rings are set up)
 *	xdp_attach_link()      attaches the program by a BPF link instead, which ends with the process
 *	xdp_detach_link()   before the device is closed
 *	xdp_close_objects()    afterwards
 *
 * The program is generated as instructions with the addresses in it: no BPF compiler is needed, neither to build the
 * library nor to run it. Control thread only.
 */
#ifndef FAR_NIC_DPDK_XDP_H
#define FAR_NIC_DPDK_XDP_H

#include "nic/dpdk/frame.h"
#include "nic/nic.h"

#include <linux/bpf.h>

/* Device queues that the map has room for. */
#define XDP_QUEUES_MAX 64u
/* Program name; identifies our programs. */
#define XDP_NAME "farcall_xdp"
/* Maximum instructions of the program. */
#define XDP_INSNS_MAX 64u

/** Generates the filter for the `ports` ports of `me` into `out` and returns the number of instructions. The immediate
 * of instruction *map must be set to the descriptor of the socket map. */
unsigned xdp_program(const struct frame_addr *me, unsigned ports, struct bpf_insn out[XDP_INSNS_MAX], unsigned *map);

/** Writes the filter as an ELF object in memory; the descriptor or -errno. `path`, of `cap` bytes, opens it in this
 * process while the descriptor is open. */
int xdp_object(const struct frame_addr *me, unsigned ports, char *path, size_t cap, struct nic_err *err);

/** True if `types` are the BTF types of such an object. */
bool xdp_is_btf(const void *types, size_t len);

/** 0 if this process may use AF_XDP, or -errno with the missing right in `err`. Leaves nothing behind. */
int xdp_probe(struct nic_err *err);

/** Removes our XDP program of a dead process from the interface. -EBUSY: the program belongs to a live process, or is
 * not ours. */
int xdp_remove_stale(int index, const char *iface, struct nic_err *err);

/** Replaces the attachment that DPDK made by a BPF link and returns its descriptor. -EOPNOTSUPP: the kernel has no BPF
 * links for XDP (before 5.9); the attachment is unchanged. Other -errno: nothing is attached any more, `err` holds the
 * reason. *program is the id of the program that DPDK loaded; 0: unknown. */
int xdp_attach_link(int index, const char *iface, uint32_t *program, struct nic_err *err);

/** Detaches the filter; -1 is ignored. */
void xdp_detach_link(int link);

/** Closes the descriptors of the program, its map and its types, which DPDK leaves open. Call when the device is
 * closed. 0 is ignored. */
void xdp_close_objects(uint32_t program);

#endif
