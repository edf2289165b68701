/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What of a queue's messages is exposed to their receivers, and read from their senders, without packets.
 *
 * The driver has the memory from expose() or read() until its event, which may come long after the message has ended:
 * by a time-out, a cancel or the other side's death. So an entry here holds the body's buffer for the driver, and the
 * message only as long as it lives. An entry goes once, by the driver's last event: no other way frees memory that
 * may still be read, or written.
 *
 * free -> asked -> exposed -> leaving -> free, from asked to leaving or free, too; free -> reading -> free.
 *
 * The holder of the queue's shard.
 */
#ifndef FAR_TRANSPORT_ONESIDED_H
#define FAR_TRANSPORT_ONESIDED_H

#include "base/limits.h"
#include "memory/buf.h"
#include "nic/nic.h"

#include <stdbool.h>
#include <stdint.h>

enum link_onesided_state {
	LINK_ONESIDED_FREE,
	LINK_ONESIDED_ASKED,   /* the peer cannot read it yet */
	LINK_ONESIDED_EXPOSED, /* it can */
	LINK_ONESIDED_LEAVING, /* withdrawn by us: nothing but WITHDRAWN counts */
	LINK_ONESIDED_READING
};

struct link_onesided {
	void *owner;             /* the message; NULL: it has ended */
	struct far_buf *buf;     /* one reference */
	uint32_t handle;         /* the driver's, of what is exposed */
	uint32_t generation;     /* of the entry: events of an earlier one are not its */
	uint32_t offset, len;    /* of what is read, in the message */
	struct nic_bulk_key key; /* of what is exposed */
	uint64_t since;
	uint8_t state; /* enum link_onesided_state */
};

/** A message that is read; its number is message->onesided - 1. */
struct link_reading {
	void *message; /* NULL: free */
	struct nic_bulk_key key;
	uint32_t out;   /* reads under way */
	bool failed;    /* one did: no other is begun */
	uint64_t until; /* none could be begun so far: when that is given up; 0: not so */
};

struct link_onesideds {
	struct link_onesided entry[FAR_LINK_ONESIDED];
	struct link_reading reading[FAR_LINK_ONESIDED];
	uint64_t unread_until; /* nothing is read before: there was no memory to read into */
	uint32_t n;            /* not free */
	uint32_t exposed_n;    /* of them, not read */
	uint32_t stray;        /* events, ever, that no entry waited for */
};

struct link_onesided_news {
	enum nic_bulk_event event;
	uint32_t offset, len; /* READ, READ_FAILED */
};

/** Exposes at[0, len), of `buf`, to a peer of the driver below. 0 and the entry's number, or -errno of
 * nic_bulk_ops.expose; -EAGAIN, too, when too many entries are taken. `owner` is not NULL. */
int link_onesided_expose(struct link_onesideds *o, struct nic_queue *lower, uint32_t lower_peer, struct far_buf *buf,
			 const void *at, uint64_t len, void *owner, uint64_t now, uint32_t *entry);
/** Nobody is to read it any more; its owner hears nothing more of it. */
void link_onesided_withdraw(struct link_onesideds *o, struct nic_queue *lower, uint32_t entry);
/** Reads `len` bytes from `offset` on into `to`, of `buf`. 0 or -errno as above, of nic_bulk_ops.read. */
int link_onesided_read(struct link_onesideds *o, struct nic_queue *lower, uint32_t lower_peer,
		       const struct nic_bulk_key *key, uint32_t offset, struct far_buf *buf, void *to, uint32_t len,
		       void *owner);
/** The owner ends: what it exposed is withdrawn, what it reads comes to nobody. */
void link_onesided_forget(struct link_onesideds *o, struct nic_queue *lower, const void *owner);
/** A packet of NIC_PEER_BULK. The owner that is to hear of it; NULL: nobody is. */
void *link_onesided_event(struct link_onesideds *o, const struct nic_pkt *pkt, struct link_onesided_news *news);
/** The driver below is closed: nothing is its any more. */
void link_onesideds_end(struct link_onesideds *o);

#endif
