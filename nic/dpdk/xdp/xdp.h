/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The XDP filter of an interface that we share with the kernel by AF_XDP sockets: it hands them the UDP datagrams to
 *our address and ports, and everything else goes the kernel's usual way, as do ours while no socket is there.
 *
 * The net_af_xdp driver of DPDK loads a program from an ELF object with a map called xsks_map, fills the map and
 *attaches the program to the interface, where it would stay after a killed process. So:
 *
 *	xdp_probe()     have we the rights
 *	xdp_sweep()     takes away what a killed process left, where the kernel has no links
 *	xdp_object()    the filter as an object: a descriptor, and the path for xdp_prog=
 *	                (the device is created and its queues are set up)
 *	xdp_keep()      attaches the program by a link instead, which ends with the process
 *	xdp_release()   before the device is closed
 *	xdp_forget()    afterwards
 *
 * The program is written here as instructions, with the addresses in it, and needs no compiler for BPF: neither where
 * the library is built nor where it runs. Control core only.
 */
#ifndef FAR_NIC_DPDK_XDP_H
#define FAR_NIC_DPDK_XDP_H

#include "nic/dpdk/frame.h"
#include "nic/nic.h"

#include <linux/bpf.h>

/* Queues of a device that the map has room for. */
#define XDP_QUEUES_MAX 64u
/* The program's name, by which it is recognised. */
#define XDP_NAME "farcall_xdp"
/* Instructions of a program at most. */
#define XDP_INSNS_MAX 64u

/**
 * Writes the filter for `me` and its `ports` ports into `out`; how many instructions it has. The immediate value of the
 * instruction at *map is to become the descriptor of the map of sockets.
 */
unsigned xdp_program(const struct frame_addr *me, unsigned ports, struct bpf_insn out[XDP_INSNS_MAX], unsigned *map);

/**
 * The same as an ELF object in memory; the descriptor, or -errno. `path`, of `cap` bytes, is what this process can open
 * it by as long as the descriptor is open.
 */
int xdp_object(const struct frame_addr *me, unsigned ports, char *path, size_t cap, struct nic_err *err);

/** Are these the types in such an object. */
bool xdp_is_types(const void *types, size_t len);

/** May this process use AF_XDP: 0, or -errno with the missing right in `err`. Leaves nothing behind. */
int xdp_probe(struct nic_err *err);

/**
 * Sees to it that the interface has no XDP program: removes one of ours whose process is dead. -EBUSY: there is
 * somebody else's, or a live process'.
 */
int xdp_sweep(int index, const char *iface, struct nic_err *err);

/**
 * Replaces the attachment that DPDK made by a link. The link's descriptor; -EOPNOTSUPP: the kernel has no links for XDP
 * (before 5.9), the attachment is as it was; other -errno: there is none any more, with the reason in `err`. `*program`
 * is the number of the program that DPDK loaded; 0: it is not known.
 */
int xdp_keep(int index, const char *iface, uint32_t *program, struct nic_err *err);

/** Takes the filter off the interface; -1 is ignored. */
void xdp_release(int link);

/** When the device is closed: closes the descriptors of the program and of what belongs to it, which DPDK leaves open.
 * 0 is ignored. */
void xdp_forget(uint32_t program);

#endif
