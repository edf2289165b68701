/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Bulk: the peer reads a message from our memory by RDMA READ, through a connection (RC) that carries nothing else.
 * Packets are datagrams beside it. What rc.h states of connections holds here, too, except that these have no receive
 * buffers and send no packets, so the accepting side need not wait for a first packet.
 *
 * An exposed message is covered by a memory window of type 2, bound to the connection and to the bytes of the message,
 * with a new key each time. Memory regions are registered without remote rights. A window ends by a local invalidate,
 * or with its connection, whose windows are destroyed first. Only then does the memory belong to the caller again.
 *
 * The poller exposes and reads; the control thread and the port's threads create and destroy.
 */
#ifndef NIC_VERBS_BULK_H
#define NIC_VERBS_BULK_H

#include "nic/verbs/rc.h"

/* Windows and reads of one connection at a time, and its work requests: each window may have a bind and an invalidate
 * in flight. */
#define VERBS_WINDOWS  16u
#define VERBS_READS    16u
#define VERBS_BULK_WRS (2 * VERBS_WINDOWS + VERBS_READS)
/* Regions of a port: pieces of the engine's memory, and memory that the application registers. */
#define VERBS_MEMS_MAX 1024u
/* Pause after a registration failed. */
#define VERBS_MEM_RETRY_NS UINT64_C(1000000000)
/* bounds of bulk=, bytes */
#define VERBS_BULK_MIN 16384u
#define VERBS_BULK_MAX (16u << 20)
/* Threshold of bulk=auto: below it binding a window, sending its key and invalidating it take longer than the packets
 * that are saved. */
#define VERBS_BULK_AUTO_BYTES 65536u
/* Limit of probing memory windows, for devices that do not respond. */
#define VERBS_PROBE_NS UINT64_C(1000000000)

/** A registered region. The thread that holds the lock fills and clears it; pollers count themselves in and out. */
struct verbs_mem {
	_Atomic uintptr_t base, end;
	_Atomic uint32_t users; /* pollers that use it; VERBS_MEM_FREE: the entry is free. Acquire and release */
	struct ibv_mr *mr;
};
#define VERBS_MEM_FREE 0x80000000u

struct verbs_mems {
	_Atomic uint32_t n; /* entries ever used */
	struct verbs_mem mem[VERBS_MEMS_MAX];
	pthread_mutex_t lock; /* protects `open` and every `mr` */
	bool open;            /* the device is open */
	/* Written by the control thread; pollers read retry_at. */
	_Atomic uint64_t retry_at; /* ns; no registration before; 0: none failed */
	struct nic_err why;
	bool logged;
};

enum verbs_bulk_state {
	BULK_FREE,
	BULK_BINDING, /* window: the bind is in flight */
	BULK_BOUND,
	BULK_GOING,   /* window: the invalidate is in flight, or the connection ends */
	BULK_READING, /* a read in flight */
	BULK_OVER     /* its last event waits for recv() */
};

/** A window or a read. The poller owns it, except `mw`, which the port's threads create and destroy while the poller
 * has no access to the connection. */
struct verbs_bulk_op {
	struct verbs_conn *conn;
	struct ibv_mw *mw; /* of a window; NULL: a read */
	uint32_t rkey;     /* the window's current key */
	uint8_t state;     /* enum verbs_bulk_state */
	uint8_t event;     /* enum nic_bulk_event that recv() reports next; 0: none */
	uint64_t user;
	struct verbs_mem *mem;
	struct verbs_bulk_op *next; /* next operation with an event */
};

/** The bulk part of a connection. */
struct verbs_bulk {
	_Atomic uint32_t peer_qpn; /* number of the peer's queue pair; written by a port's thread */
	_Atomic uint32_t
		busy; /* operations that are not BULK_FREE; such a connection is not evicted. Written by the poller */
	struct verbs_bulk_op op[VERBS_WINDOWS + VERBS_READS];
};

/* ---- bulk.c: poller ---- */

extern const struct nic_bulk_ops verbs_bulk_ops;
/** Returns events as packets of NIC_PEER_BULK, after processing completions. */
unsigned verbs_bulk_recv(struct verbs_queue *q, struct nic_pkt *pkts, unsigned max);
void verbs_bulk_arm(struct verbs_queue *q);
/** Processes a completion of an existing connection. */
void verbs_bulk_completed(struct verbs_conn *c, const struct ibv_wc *wc);
/** Ends all operations of a connection whose queue pair was destroyed. */
void verbs_bulk_conn_destroyed(struct verbs_conn *c);

/* ---- bulk_open.c: control thread ---- */

/** True if the device has enough memory windows of type 2 for a connection. Without windows the peer could read more
 * than the message. */
bool verbs_has_windows(const struct ibv_device_attr *limits);
/** Checks that the device supports the value of bulk=. */
int verbs_bulk_check(const struct verbs_port *p, struct nic_err *err);
int verbs_bulk_open(struct verbs_queue *q, struct nic_err *err);
/** Frees what belongs to the device. */
void verbs_bulk_close(struct verbs_queue *q);
void verbs_bulk_free(struct verbs_queue *q);
/** The port's threads: create and destroy the windows of a connection. 0 or -errno. */
int verbs_bulk_prepare(struct verbs_conn *c);
void verbs_bulk_release(struct verbs_conn *c);

/* ---- bulk_probe.c: control thread ---- */

/** 0 if bulk is safe on this device without bulk=, or -errno with the reason, worded to follow "PORT: ".
 * Probes the device's memory windows for some milliseconds, VERBS_PROBE_NS at most. */
int verbs_bulk_probe(const struct verbs_choice *on, const struct ibv_device_attr *limits, struct nic_err *why);

/* ---- bulk_mem.c ---- */

int verbs_mems_open(struct verbs_port *p, struct nic_err *err);
/** Control thread: deregisters all regions. */
void verbs_mems_close(struct verbs_port *p);
void verbs_mems_free(struct verbs_port *p);
/** Any thread. */
int verbs_mem_register(struct nic_port *port, void *base, size_t bytes, struct nic_err *err);
int verbs_mem_unregister(struct nic_port *port, void *base, size_t bytes, struct nic_err *err);
/** Control thread: registers what pollers have requested. */
void verbs_mems_step(struct verbs_port *p, uint64_t now);
/** Poller: a region that contains these bytes; released by verbs_mem_put(). NULL: none; it is then requested, and
 * *error is -EAGAIN, or -ENOMEM if a registration failed recently. */
struct verbs_mem *verbs_mem_get(struct verbs_queue *q, const void *at, uint64_t len, int *error);

static inline void verbs_mem_put(struct verbs_mem *mem)
{
	atomic_fetch_sub_explicit(&mem->users, 1, memory_order_release);
}

#endif
