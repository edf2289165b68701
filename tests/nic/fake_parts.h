/* SPDX-License-Identifier: BSD-3-Clause */
/** What the parts of the tests' own libibverbs and librdmacm share. */
#ifndef FAKE_PARTS_H
#define FAKE_PARTS_H

#include "fake_verbs.h"

#include <pthread.h>

enum { RING = 32768, GRH = 40, PACKET = 8192 };

struct fake_cq {
	struct ibv_cq base;
	bool receives; /* it is some pair's receive queue's */
	struct ibv_wc ring[RING];
	uint32_t head, tail;
	bool armed;
	struct ibv_wc held;
	bool is_held;
};

struct fake_channel {
	struct ibv_comp_channel base;
	struct fake_cq *cq;
	int event_fd;
};

struct posted {
	uint64_t wr_id;
	struct ibv_sge sge;
};

/* Receive buffers that are posted; the ring of a pair, or a shared one. */
struct fake_ring {
	uint32_t max;
	struct posted at[RING];
	uint32_t head, tail;
};

struct fake_srq {
	struct ibv_srq base;
	struct fake_ring ring;
};

struct fake_qp {
	struct ibv_qp base;
	int socket;
	uint32_t qkey;
	enum ibv_qp_state state;
	uint32_t peer; /* of a connection: the other end's number; 0: none yet */
	struct fake_ring own, *ring;
	struct fake_qp *next;
};

struct fake_ah {
	struct ibv_ah base;
	struct ibv_ah_attr attr;
};

struct packet {
	uint32_t qkey, from;
	uint8_t bytes[PACKET];
};

/* Recursive; held by whatever looks at pairs, rings and ids: threads make and end connections. */
extern pthread_mutex_t fake_lock;
extern struct ibv_device fake_devices[FAKE_DEVICES_MAX];

/* The operations of a context. */
void fake_pair_ops(struct ibv_context *c);
/** The other end of a connection, by number. */
void fake_pair_connect(uint32_t qpn, uint32_t peer);

#endif
