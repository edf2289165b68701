/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A libibverbs of the tests' own, linked in place of the real one: a device whose queue pairs are UDP sockets of
 * loopback, numbered by their ports, so it also works between processes. What it does, and does wrong, is said in
 * `fake_verbs`. Keys are checked as a device does; packets for whom no buffer is posted are lost. Connections read each
 * other's memory through windows of type 2 (fake_rdma.c).
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { FAKE_DEVICES_MAX = 4, FAKE_GIDS_MAX = 8 };

struct fake_verbs {
	unsigned devices;  /* fake0, fake1 … */
	const char *entry; /* where the kernel tells of the devices; NULL: nowhere */
	enum ibv_transport_type transport;
	int open_error; /* errno of ibv_open_device() and so on; 0: it works */
	int reg_error, qp_error, cq_error, ah_error, srq_error, mw_error;
	_Atomic unsigned reg_refused; /* of the next regions: no memory may be locked */
	size_t reg_most;              /* bytes of a region that may be locked; 0: any */
	bool windows_loose;        /* of a window's bounds only those of its region are looked at, as soft-RoCE does */
	int loose_end;             /* likewise, but beyond this end alone: -1 before, 1 behind */
	_Atomic bool keys_watched; /* keys of regions are looked for in all that is sent; what of it was looked at: */
	_Atomic uint64_t keys_seen, keys_most, keys_looked; /* of all; of the one that was seen most; bytes */
	_Atomic bool reads_held;                            /* no read is answered, until this is false again */
	unsigned inline_max;                                /* beyond it queue pairs are refused */
	struct ibv_device_attr limits;
	struct ibv_port_attr port; /* all ports alike; `state` of the next is taken when asked for */
	_Atomic int port_state;    /* enum ibv_port_state */
	struct ibv_gid_entry gids[FAKE_GIDS_MAX];
	unsigned gids_n;
	_Atomic unsigned ah_delay_ms;        /* that making a handle takes */
	bool (*spoil_rx)(struct ibv_wc *wc); /* NULL: they are as they are; false: it is held back behind the next */
	bool (*spoil_tx)(struct ibv_wc *wc);
	int (*post_send)(struct ibv_send_wr *wr); /* errno to refuse this one with; NULL: none is */
	int (*post_recv)(struct ibv_recv_wr *wr);
	/* Counted: */
	_Atomic unsigned contexts, pds, cqs, qps, mrs, channels, ahs, resets, srqs, mws;
	_Atomic unsigned reads, read_naks, binds, invalidated;
	_Atomic unsigned sent, sent_inline, signalled, posts, recv_posts, qkey_violations;
	_Atomic uint8_t classes[16]; /* traffic class or service level of the last packets, by sequence % 16 */
};

extern struct fake_verbs fake_verbs;

/** As at the start. */
void fake_verbs_reset(void);
/** An asynchronous event of the device, that is open. */
void fake_verbs_event(enum ibv_event_type type);
/** To the error state: all that is posted comes back with an error. By the thread that polls its queues. */
void fake_verbs_break(uint32_t qpn);
/** All pairs of that type likewise; how many they were. */
unsigned fake_verbs_break_all(enum ibv_qp_type type);
/** The remote key of the region that holds a byte; 0: none does. */
uint32_t fake_verbs_region_key(const void *at);
/** A packet from nowhere to a queue pair, with that key. */
void fake_verbs_inject(uint32_t qpn, uint32_t qkey, const void *bytes, size_t len);

/** Of the librdmacm beside it (fake_cm.c). */
struct fake_cm {
	bool absent;                       /* the library */
	int channel_error;                 /* errno; 0: it works */
	_Atomic unsigned connect_delay_ms; /* that rdma_connect() takes */
	_Atomic int connect_error;
	_Atomic bool addr_error, silent; /* the event in place of a resolved address; no answer ever comes */
	/* Changes what a connect request, or an accept, carries, 56 bytes at most; NULL: nothing. */
	void (*spoil)(bool is_request, uint8_t *words, uint32_t *len);
	/* Counted: */
	_Atomic unsigned ids, channels, connecting, connecting_most, connects, accepts, rejects;
};
extern struct fake_cm fake_cm;

#endif
