/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Table of a queue's one-sided transfers: messages that are exposed to their receivers, and messages that are read from
 * their senders. Poller.
 *
 * The driver owns the memory from expose() or read() until its event, which may come long after the message has ended
 * by a time-out, a cancel or the end of the peer. So an entry holds a reference of the body's buffer for the driver,
 * and a pointer to the message only while that exists. Nothing but the driver's last event frees an entry: until then
 * the memory may be read or written.
 *
 * States: FREE, EXPOSING, EXPOSED, WITHDRAWING, FREE; EXPOSING may go to WITHDRAWING or FREE, EXPOSED to FREE. FREE,
 * READING, FREE.
 */
#ifndef FAR_TRANSPORT_ONESIDED_H
#define FAR_TRANSPORT_ONESIDED_H

#include "base/limits.h"
#include "memory/buf.h"
#include "nic/nic.h"

enum transport_onesided_state {
	TRANSPORT_ONESIDED_FREE,
	TRANSPORT_ONESIDED_EXPOSING,    /* expose() is in progress: the peer cannot read it yet */
	TRANSPORT_ONESIDED_EXPOSED,     /* the peer can read it */
	TRANSPORT_ONESIDED_WITHDRAWING, /* withdraw() was called: waits for WITHDRAWN */
	TRANSPORT_ONESIDED_READING      /* read() is in progress */
};

/** An entry: one expose() or one read(). */
struct transport_onesided {
	void *owner;             /* the message. NULL: it has ended */
	struct far_buf *buf;     /* one reference */
	uint32_t handle;         /* of the driver, for withdraw() */
	uint32_t generation;     /* of the entry, in the `user` of its events; grows with each use */
	uint32_t offset, len;    /* READING: range of the message, bytes */
	struct nic_bulk_key key; /* EXPOSED */
	uint64_t since;          /* EXPOSING: time of expose(), ns */
	uint8_t state;           /* enum transport_onesided_state */
};

/** A message that is read; its index is message->onesided - 1. */
struct transport_reading {
	void *message; /* NULL: free */
	struct nic_bulk_key key;
	uint32_t out;   /* reads in flight */
	bool failed;    /* a read failed: no other is started */
	uint64_t until; /* no read could be started: when to give up, ns. 0: reads could be started */
};

struct transport_onesided_table {
	struct transport_onesided entry[FAR_TRANSPORT_ONESIDED];
	struct transport_reading reading[FAR_TRANSPORT_ONESIDED];
	uint64_t unread_until; /* no message is read before, since memory to read into was missing, ns */
	uint32_t n;            /* entries that are not FREE */
	uint32_t exposed_n;    /* of them, those of expose() */
	uint32_t stray;        /* events without an entry so far */
};

/** A decoded event. */
struct transport_onesided_result {
	enum nic_bulk_event event;
	uint32_t offset, len; /* READ, READ_FAILED */
};

/** What a transfer is about. */
struct transport_onesided_request {
	struct nic_queue *lower;
	uint32_t lower_peer; /* peer of the driver below */
	uint32_t len;        /* bytes at `at` */
	struct far_buf *buf; /* holds them */
	void *at;
	void *owner; /* the message */
};

/** Exposes at[0, len) to a peer of the driver below. 0 and the entry's index, or -errno of nic_bulk_ops.expose; -EAGAIN
 * also if too many entries are in use. */
int transport_onesided_expose(struct transport_onesided_table *o, const struct transport_onesided_request *r,
			      uint64_t now, uint32_t *entry);
/** Withdraws an exposure and detaches its owner. */
void transport_onesided_withdraw(struct transport_onesided_table *o, struct nic_queue *lower, uint32_t entry);
/** Reads the bytes from `offset` of the exposed message on into at[0, len). 0 or -errno of nic_bulk_ops.read; -EAGAIN
 * as above. */
int transport_onesided_read(struct transport_onesided_table *o, const struct transport_onesided_request *r,
			    const struct nic_bulk_key *key, uint32_t offset);
/** Detaches an owner that ends: withdraws what it exposed, and ignores what it reads. */
void transport_onesided_forget(struct transport_onesided_table *o, struct nic_queue *lower, const void *owner);
/** Processes a packet of NIC_PEER_BULK. Returns the owner of the event; NULL: none. */
void *transport_onesided_event(struct transport_onesided_table *o, const struct nic_pkt *pkt,
			       struct transport_onesided_result *news);
/** Releases all entries: the driver below is closed. */
void transport_onesided_table_end(struct transport_onesided_table *o);

#endif
