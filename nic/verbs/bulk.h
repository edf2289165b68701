/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Bulk: the other end reads a message where it lies, by a connection that carries nothing else. Packets are datagrams
 * beside it; what rc.h says of connections is true of these, but that they have no buffers, and that nothing is sent by
 * them: who took one need not have heard its first packet.
 *
 * What is exposed is behind a window of type 2, bound to the connection and to the bytes of one message; its key is new
 * each time. Regions themselves are registered without any right of others. A window ends by a local invalidate, or
 * with its connection, before which it is destroyed: only then does the memory belong to the caller again.
 */
#ifndef NIC_VERBS_BULK_H
#define NIC_VERBS_BULK_H

#include "nic/verbs/rc.h"

/* Of a connection at once, and so the work requests of one: a window may have a bind and an invalidate under way. */
#define VERBS_WINDOWS  16u
#define VERBS_READS    16u
#define VERBS_BULK_WRS (2 * VERBS_WINDOWS + VERBS_READS)
/* Regions of a port: pieces of the engine's memory, and what the application registers. */
#define VERBS_MEMS_MAX 1024u
/* After one could not be registered, none is tried for so long. */
#define VERBS_MEM_RETRY_NS UINT64_C(1000000000)
/* bulk=, bytes */
#define VERBS_BULK_MIN 16384u
#define VERBS_BULK_MAX (16u << 20)
/* bulk=auto: below it a window's bind, its key's way and its invalidate take longer than the packets that are spared.
 */
#define VERBS_BULK_AUTO_BYTES 65536u
/* That trying windows out may take, where a device does not answer. */
#define VERBS_TRY_NS UINT64_C(1000000000)

/** A region. Who has the lock fills it and takes it back; holders count themselves in and out. */
struct verbs_mem {
	_Atomic uintptr_t base, end;
	_Atomic uint32_t users; /* VERBS_MEM_FREE: it is none. Acquire and release */
	struct ibv_mr *mr;
};
#define VERBS_MEM_FREE 0x80000000u

struct verbs_mems {
	_Atomic uint32_t n; /* that were ever used */
	struct verbs_mem mem[VERBS_MEMS_MAX];
	pthread_mutex_t lock; /* of `open`, and of every `mr` */
	bool open;            /* the device is there */
	/* The control core's, but that holders read it. */
	_Atomic uint64_t retry_at; /* 0: none failed */
	struct nic_err why;
	bool logged;
};

enum verbs_bulk_state {
	BULK_FREE,
	BULK_BINDING, /* a window: the bind is under way */
	BULK_BOUND,
	BULK_GOING,   /* the invalidate is under way, or the connection is */
	BULK_READING, /* a read */
	BULK_OVER     /* its last event is to be told */
};

/** A window, or a read; the holder's, but for `mw`, which threads make and destroy while it knows nothing of them. */
struct verbs_bulk_op {
	struct verbs_conn *conn;
	struct ibv_mw *mw; /* of a window */
	uint32_t rkey;     /* last one of it */
	uint8_t state;     /* enum verbs_bulk_state */
	uint8_t event;     /* enum nic_bulk_event, to be told; 0: none */
	uint64_t user;
	struct verbs_mem *mem;
	struct verbs_bulk_op *next; /* with an event */
};

/** What a connection has for it. */
struct verbs_bulk {
	_Atomic uint32_t peer_qpn; /* of the other end's pair */
	_Atomic uint32_t busy;     /* ops that are not free: it is not closed for another one's sake */
	struct verbs_bulk_op op[VERBS_WINDOWS + VERBS_READS];
};

/* ---- bulk.c: the queue's holder ---- */

extern const struct nic_bulk_ops verbs_bulk_ops;
/** What there is to be told of, after taking what completed. */
unsigned verbs_bulk_recv(struct verbs_queue *q, struct nic_pkt *pkts, unsigned max);
void verbs_bulk_arm(struct verbs_queue *q);
/** A completion of a connection that is there. */
void verbs_bulk_completed(struct verbs_conn *c, const struct ibv_wc *wc);
/** Its pair is gone. */
void verbs_bulk_bury(struct verbs_conn *c);

/* ---- bulk_open.c: control core ---- */

/** Those without which nothing of ours is read by others: enough for a connection. */
bool verbs_has_windows(const struct ibv_device_attr *limits);
/** Can the device do what bulk= asks for? */
int verbs_bulk_check(const struct verbs_port *p, struct nic_err *err);
int verbs_bulk_open(struct verbs_queue *q, struct nic_err *err);
/** What belongs to the device. */
void verbs_bulk_close(struct verbs_queue *q);
void verbs_bulk_free(struct verbs_queue *q);
/** Threads: the windows of a connection. 0 or -errno. */
int verbs_bulk_prepare(struct verbs_conn *c);
void verbs_bulk_forget(struct verbs_conn *c);

/* ---- bulk_probe.c: control core ---- */

/** Is bulk safe there without being asked for: 0, or -errno with the reason, whose subject is the port. Tries the
 * device's windows, some milliseconds; VERBS_TRY_NS at most. */
int verbs_bulk_auto(const struct verbs_choice *on, const struct ibv_device_attr *limits, struct nic_err *why);

/* ---- bulk_mem.c ---- */

int verbs_mems_open(struct verbs_port *p, struct nic_err *err);
/** Lets go of all. */
void verbs_mems_close(struct verbs_port *p);
void verbs_mems_free(struct verbs_port *p);
/** Any thread. */
int verbs_mem_register(struct nic_port *port, void *base, size_t bytes, struct nic_err *err);
int verbs_mem_unregister(struct nic_port *port, void *base, size_t bytes, struct nic_err *err);
/** The control core: what holders asked for. */
void verbs_mems_step(struct verbs_port *p, uint64_t now);
/** The holder: a region with these bytes, to be put back; NULL: there is none. Then it is asked for, and `*error` is
 * -EAGAIN, or -ENOMEM: that failed of late. */
struct verbs_mem *verbs_mem_get(struct verbs_queue *q, const void *at, uint64_t len, int *error);

static inline void verbs_mem_put(struct verbs_mem *mem)
{
	atomic_fetch_sub_explicit(&mem->users, 1, memory_order_release);
}

#endif
