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
	bool armed, fired;
	struct ibv_wc held;
	bool is_held;
	struct fake_cq *next_of_channel;
};

struct fake_channel {
	struct ibv_comp_channel base;
	struct fake_cq *cqs; /* that wake it, by next_of_channel */
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
	int rdma; /* of a connection: the socket of reads; -1 */
	uint32_t reads_n;
	struct fake_read *reads;     /* posted, in order */
	struct fake_answer *answers; /* asked for by the other end, in order */
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
/** To the error state: what is posted comes back. With the lock, as the next two. */
void fake_pair_break(struct fake_qp *qp);
void fake_pairs_each(void (*visit)(struct fake_qp *qp));
struct ibv_wc *fake_complete(struct ibv_cq *cq, struct ibv_wc wc);

/* fake_rdma.c: regions, windows, reads */

void fake_rdma_ops(struct ibv_context *c);
/** May the device use these bytes by their key? */
bool fake_lkey_fits(const struct ibv_pd *pd, const struct ibv_sge *sge, int access);
/** Bytes that leave this process: is a key of a region among them? With keys_watched. */
void fake_keys_look(const void *bytes, size_t len);
/** Of a connection. */
void fake_reads_open(struct fake_qp *qp);
/** What is not a SEND: 0, or the error of posting it. With the lock, as the others. */
int fake_rdma_post(struct fake_qp *qp, const struct ibv_send_wr *wr);
/** All that are under way come back with an error; or are forgotten, with the pair. */
void fake_reads_flush(struct fake_qp *qp);
void fake_reads_drop(struct fake_qp *qp);

#endif
