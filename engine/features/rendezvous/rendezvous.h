/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages in fragments (rendezvous messages) and one-way messages: what a session keeps for them, apart from the
 * session, so that calls do not touch it. Shard thread, but where a function notes otherwise. engine/PROTOCOL.md has
 * the packets and the states.
 *
 * Sending: a struct rendezvous_out waits in its peer's queue for a free lane, is announced (PACKET_RENDEZVOUS), and
 * leaves by fragments, one in a pass of the shard, once the receiver has granted it and while fewer than
 * FAR_RENDEZVOUS_PACKETS of the session's RENDEZVOUS, DATA and ABORT packets are unacknowledged. The sender ends each
 * epoch of a lane with one last packet: the fragment that completes the message, or ABORT.
 *
 * Receiving: a lane follows the sender's packets; a struct rendezvous_in has the memory. Fragments are held where they
 * arrived and copied one in a pass, so that small packets behind them are served first. A lane without a rendezvous_in
 * waits for one (`waiting`), or drops the fragments of a message that is not wanted any more, until the last packet.
 *
 * Where the receiver can read the sender's memory, RENDEZVOUS offers the message: the addresses of its parts. The
 * receiver pulls it, a piece in a pass, in place of grants; it grants if it cannot. The sender withdraws the offer
 * (`offer.tag`) before the parts may change. The receiver reads the offer after the last byte: what was withdrawn was
 * not received.
 *
 * Parts in shared memory that the receiver has mapped are referred to. The handler of a raw message in one part reads
 * it there (struct rendezvous_view), and a function its large arguments; other messages are copied from there. The
 * sender holds the parts, also when the call has ended, until the receiver reports that nobody reads them any more, or
 * the session ends.
 */
#ifndef FAR_RENDEZVOUS_RENDEZVOUS_H
#define FAR_RENDEZVOUS_RENDEZVOUS_H

#include "core/packet.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "features/features.h"

#include "value/encoding_split.h"

#include <assert.h>
#include <farcall/message.h>

/** The struct packet_offer that receivers read. */
struct rendezvous_offer {
	uint64_t from, to;
	_Atomic uint64_t tag; /* writer: who has `source`, or the last reference */
};

/* `source` of a rendezvous_out. */
enum rendezvous_source {
	RENDEZVOUS_IDLE,
	RENDEZVOUS_READING, /* the shard copies out of the parts, or offers them */
	RENDEZVOUS_REVOKED  /* the parts may be gone */
};

/** A message to be sent in fragments. Lies at the beginning of a buffer. */
struct rendezvous_out {
	struct shard_timer timer; /* the deadline of a one-way message; a call has its own */
	struct rendezvous_out *next;
	struct far_buf *self;
	_Atomic uint32_t refs; /* the thread that drops the last one releases the parts */
	_Atomic uint32_t
		source; /* enum rendezvous_source; compare-and-exchange by the shard and by rendezvous_out_revoke() */
	struct far_buf *copy; /* that the parts lie in; NULL: application memory */
	bool released;        /* application memory that is released, never revoked: packets may refer to it */
	bool zero_copy;       /* packets do, or did: each holds a reference of `self` */
	bool offered;         /* the receiver may pull it */
	bool granted;         /* the receiver has memory for it */
	bool referred;        /* the receiver may read it in place: the parts stay until it has ended that */
	struct rendezvous_offer offer;
	far_msg_release_fn *release;
	void *release_user;
	void *piece; /* memory/heads.h: what precedes arguments in shared memory; NULL: none */
	uint64_t total, sent;
	uint64_t deadline; /* absolute */
	unsigned parts_n, part;
	size_t part_at;
	/* the shard's */
	struct rendezvous_peer *peer;
	unsigned lane;
	uint32_t epoch; /* of the lane, once it is announced */
	union packet_head
		head; /* of the message; `handler` of a typed request is the local index until it is announced */
	struct packet_hash hash;
	struct far_buf *tlv; /* a reference: holds a struct tlv_block, which follows the hash; NULL: none */
	struct far_part parts[FAR_PARTS_MAX + 2];
};

/** A message that arrives in fragments, with its memory. One of FAR_RENDEZVOUS_IN_MAX of the shard. */
struct rendezvous_in {
	struct shard_timer timer;     /* the deadline of a request or one-way message */
	struct rendezvous_peer *peer; /* NULL: free */
	struct rendezvous_in *next;   /* free list; ready list */
	bool ready;                   /* complete; its session's answers are blocked */
	union packet_head head;
	uint64_t total, copied;
	uint64_t given;   /* end of the last fragment whose destination here was given to the driver */
	uint64_t given_n; /* bytes of such fragments that have not been received yet */
	uint64_t arrived; /* ns, when it was announced */
	struct far_buf *buf;
	const uint8_t *view; /* the message in the sender's memory, held by `buf`; NULL: it is copied to `at` */
	bool scattered;      /* `view`: the first piece of it, far_req.scattered */
	uint8_t *at;
	const struct far_msg_placement
		*placed; /* the memory is the application's, and abandon() returns it; else NULL */
};

/** A lane of the peer, at the receiver. `open` ends with the last packet; `waiting` ends with `in`, which ends when the
 * message is complete or dropped. */
struct rendezvous_lane {
	bool open;      /* announced, and not ended by its last packet */
	bool waiting;   /* for a rendezvous_in */
	bool granted;   /* its fragments may come */
	bool refused;   /* REFUSE was sent */
	bool pulled;    /* not open, since it was pulled: an ABORT may have crossed that */
	uint32_t epoch; /* number of its message, from 1 on */
	union packet_head head;
	uint64_t total, accepted; /* accepted: offset of the next fragment */
	uint64_t arrived;
	struct rendezvous_in *in; /* NULL: waiting, or dropped */
	/* To be pulled, while parts_n is not 0: parts of the sender's memory, `total` in all; where its offer is and
	 * what that must be. */
	unsigned parts_n;
	struct iovec parts[FAR_PULL_PARTS_MAX];
	bool referred; /* `iov_base` of the parts are references of the driver, and there is no offer */
	void *offer_at;
	struct packet_offer offer;
};

/** A message that is read in the sender's memory. Lies at the beginning of a buffer: one reference for
 * rendezvous_peer.views, the others for its readers. */
struct rendezvous_view {
	buf_end_fn *end;
	void (*unmap)(void *hold);
	void *hold[FAR_PULL_PARTS_MAX]; /* [0, holds_n) */
	unsigned holds_n;
	unsigned lane;
	uint32_t epoch;
	struct far_buf *self;
	uint64_t total;
	/* Where handlers find the parts; of typed arguments the first one is a copy, right behind. */
	struct values_scattered pieces;
	uint8_t first[];
};
static_assert(offsetof(struct rendezvous_view, first) % 64 == 0, "elements in the first piece are aligned");
static_assert(offsetof(struct rendezvous_view, first) ==
		      offsetof(struct rendezvous_view, pieces) + sizeof(struct values_scattered),
	      "values_scattered_of() finds the pieces before the first one");
static_assert(VALUES_PARTS_MAX <= FAR_PULL_PARTS_MAX, "pieces of arguments are parts of a message");

/** A fragment that is received and not copied yet. */
struct rendezvous_held {
	struct rendezvous_in *in; /* NULL: its message was dropped */
	unsigned lane;
	uint64_t offset, len, cookie;
	const uint8_t *body;
};

/** A one-way message that waits for the window, or for one in fragments before it. Lies at the beginning of a buffer.
 */
struct oneway {
	struct oneway *next;
	struct far_buf *self;
	struct rendezvous_out *rendezvous; /* NULL: bytes[0, len) */
	uint64_t deadline;
	uint64_t len;
	uint16_t fn;
	struct call_extra extra; /* of the start: `tlv` is a reference */
	alignas(8) uint8_t bytes[];
};

struct rendezvous_peer {
	struct session *session;
	struct rendezvous_peer *next;
	bool listed; /* in rendezvous_shard.first: it has something to do in the next pass */
	/* sending */
	struct rendezvous_out *queue, **queue_tail; /* not announced */
	struct {
		struct rendezvous_out *out; /* NULL: free, or `aborting` */
		bool aborting;
		uint32_t epoch; /* number of its message, from 1 on */
	} out[FAR_RENDEZVOUS_LANES];
	unsigned turn; /* the lane that sends next */
	uint64_t packets_sent, packets_acked;
	struct rendezvous_out
		*referred; /* referred messages that have left their lane, and that the receiver still reads */
	unsigned referred_n;
	/* receiving */
	struct rendezvous_view *views[FAR_REFERRED_MAX]; /* [0, views_n) */
	unsigned views_n;
	struct rendezvous_lane in[FAR_RENDEZVOUS_LANES];
	struct rendezvous_held held[FAR_RENDEZVOUS_PACKETS];
	unsigned held_first, held_n;
	unsigned pull_turn; /* pieces pulled */
	unsigned oneways_n; /* one-way messages with a rendezvous_in */
	struct rendezvous_in *ready, **ready_tail;
	uint64_t packets_received; /* RENDEZVOUS, DATA and ABORT packets that are processed; cumulative */
	uint64_t packets_reported;
	/* one-way messages, cumulative numbers */
	struct oneway *oneways, **oneways_tail;
	struct rendezvous_out *oneway; /* the one that is being sent in fragments */
	uint64_t oneways_sent, oneways_acked, oneways_received, oneways_reported;
	bool credit_requested;
};

/** Of a shard. */
struct rendezvous_shard {
	struct rendezvous_peer *first, **last; /* peers that have something to do in the next pass */
	struct rendezvous_out *zero_copy;      /* messages that have ended, and that packets still refer to */
	struct rendezvous_in *ins, *free;      /* FAR_RENDEZVOUS_IN_MAX; those that are free */
	struct shard_pool peers;
};

static inline struct rendezvous_shard *rendezvous_of(const struct shard *s)
{
	return s->state[FEATURE_RENDEZVOUS];
}

/* ---- out.c ---- */

/** Any thread. One reference, no parts, total 0; NULL without memory. */
struct rendezvous_out *rendezvous_out_new(void);
/** The same with one part of `len` bytes of engine memory to be written at `*at`. */
struct rendezvous_out *rendezvous_out_alloc(size_t len, void **at);
void rendezvous_out_ref(struct rendezvous_out *o);
/** The last one calls `release`, on this thread. */
void rendezvous_out_unref(struct rendezvous_out *o);
/** Any thread. After its return no thread reads the parts. Waits for the copy of one fragment at most. */
void rendezvous_out_revoke(struct rendezvous_out *o);
static inline struct rendezvous_out *rendezvous_out_in(struct far_buf *ready)
{
	return (struct rendezvous_out *)buf_data(ready);
}

/** The fields that follow the message. */
void rendezvous_out_fields(struct rendezvous_out *o, struct far_buf *tlv);
/** Begins to read the parts; false: they may be gone. Shard thread, as rendezvous_source_give(), which ends it. */
bool rendezvous_source_take(struct rendezvous_out *o);
void rendezvous_source_give(struct rendezvous_out *o);

/* ---- zero_copy.c ---- */

/** Drops the shard's reference; the release function runs as a callback. */
void rendezvous_out_drop(struct shard *s, struct rendezvous_out *o);
/** Drops the messages of rendezvous_shard.zero_copy that no packet refers to any more. */
void zero_copy_reap(struct shard *s);
/** The shard ends: puts the rest of rendezvous_shard.zero_copy before `others` and returns the list. zero_copy_end()
 * drops it, once the ports that may read the memory are closed. */
struct rendezvous_out *zero_copy_hand_to_agent(struct shard *s, struct rendezvous_out *others);
void zero_copy_end(struct rendezvous_out *zero_copy);

/* ---- send.c ---- */

/** Queues a message for its peer, taking a reference. `o->head`, `kind` and `deadline` are set. */
void rendezvous_send(struct shard *s, struct session *se, struct rendezvous_out *o);
/** A reply or one-way message in a buffer; takes a reference to the buffer. */
void rendezvous_reply(struct shard *s, struct session *se, const struct packet_reply *h, struct far_buf *buf,
		      size_t len, struct far_buf *tlv);
/** Announcements, ABORTs. */
unsigned rendezvous_announce(struct shard *s, struct rendezvous_peer *p);
/** At most one fragment. */
bool rendezvous_send_one(struct shard *s, struct rendezvous_peer *p);
/** Drops the message of a call in CALL_RENDEZVOUS, which is CALL_SENT again; returns how far it had come. */
enum call_progress rendezvous_detach(struct shard *s, struct session *se, struct call *c);
bool rendezvous_out_of_call(struct shard *s, struct rendezvous_peer *p, uint32_t slot, uint32_t gen,
			    enum packet_type type, enum call_progress *progress);
bool rendezvous_packets_acked(struct shard *s, struct rendezvous_peer *p, uint64_t done);
bool rendezvous_on_grant(struct shard *s, struct rendezvous_peer *p, const struct packet_grant *h);
bool rendezvous_on_refuse(struct shard *s, struct rendezvous_peer *p, const struct packet_lane *h);
void rendezvous_out_close(struct shard *s, struct rendezvous_peer *p);

/* ---- refer.c ---- */

/** Makes the parts references for the announcement, if they lie in memory that the receiver has mapped. */
bool rendezvous_refer(const struct rendezvous_peer *p, const struct rendezvous_out *o, struct packet_announced *a);
/** Keeps a referred message that leaves its lane; takes the shard's reference. */
void rendezvous_lend(struct rendezvous_peer *p, struct rendezvous_out *o);
/** The receiver reads the message of this epoch no more: drops it, if it is a referred one. */
void rendezvous_referred_end(struct shard *s, struct rendezvous_peer *p, unsigned lane, uint32_t epoch);
void rendezvous_lent_close(struct shard *s, struct rendezvous_peer *p);
/** Begins to read the lane's message in the sender's memory: `in->view` and `in->buf`. false: it is to be copied. */
bool rendezvous_view(struct shard *s, struct rendezvous_peer *p, unsigned lane, struct rendezvous_in *in);
/** Copies message bytes [at, at + len) from the sender's memory; false: the references are not valid. */
bool rendezvous_copy_referred(const struct rendezvous_peer *p, const struct rendezvous_lane *l, uint64_t at,
			      uint64_t len, uint8_t *to);
/** Reports the views that have no reader any more. */
void rendezvous_views_reap(struct shard *s, struct rendezvous_peer *p);
void rendezvous_views_close(struct rendezvous_peer *p);

/* ---- receive.c ---- */

bool rendezvous_on_announce(struct shard *s, struct rendezvous_peer *p, const struct packet_rendezvous *h,
			    const struct nic_pkt *pkt);
/** `*held`: the packet is kept. */
bool rendezvous_on_data(struct shard *s, struct rendezvous_peer *p, const struct packet_data *h,
			const struct nic_pkt *pkt, bool *held);
bool rendezvous_on_abort(struct shard *s, struct rendezvous_peer *p, const struct packet_lane *h);
/** At most one fragment. */
bool rendezvous_copy_one(struct shard *s, struct rendezvous_peer *p);
/** Lanes that wait for memory, requests that wait for their session. */
unsigned rendezvous_admit(struct shard *s, struct rendezvous_peer *p);
/** nic_placement_fn of the session's queue: the destination of a fragment in the memory of its message. */
bool rendezvous_place(struct rendezvous_peer *p, const struct packet_data *h, uint64_t len, struct nic_placement *out);
/** A request that is arriving, or waits for its session: cancelled. */
bool rendezvous_in_cancel(struct shard *s, struct rendezvous_peer *p, uint32_t slot, uint32_t gen);
/** Drops a reply that is arriving. */
bool rendezvous_in_of_call(struct shard *s, struct rendezvous_peer *p, uint32_t slot, uint32_t gen);
/** Copies and runs the one-way messages whose fragments are all there: a later one is about to run. */
void rendezvous_finish_oneways(struct shard *s, struct rendezvous_peer *p);
void rendezvous_in_close(struct shard *s, struct rendezvous_peer *p);
/** Grants the lane's message, once: there is memory for all of it. */
void rendezvous_grant(struct shard *s, struct rendezvous_peer *p, unsigned lane);
/** The message is there: delivers it, or keeps it until its session is no longer backpressured. */
void rendezvous_complete(struct shard *s, struct rendezvous_in *in);

/* ---- pull.c ---- */

/** The parts of message bytes [at, at + len). Returns how many. */
unsigned rendezvous_parts_of(const struct rendezvous_lane *l, uint64_t at, uint64_t len, struct iovec *out);
/** True if the announcement of `bytes` bytes offers nothing, or parts that are `total` bytes in all. */
bool rendezvous_offer_fits(const struct packet_announced *a, size_t bytes, uint64_t total);
/** The lane was announced with an offer: it will be pulled, if the driver can. */
void rendezvous_offered(struct shard *s, const struct session *se, struct rendezvous_lane *l,
			const struct packet_rendezvous *h, const struct packet_announced *a);
/** At most one piece of FAR_CHUNK_BYTES. */
bool rendezvous_pull_one(struct shard *s, struct rendezvous_peer *p);
static inline bool rendezvous_pulls(const struct rendezvous_lane *l)
{
	return l->in && l->parts_n;
}

/* ---- oneway.c ---- */

/** Any thread. The record of a one-way message with its bytes, or of one in fragments: it takes a reference to them. */
struct oneway *oneway_new(const struct call_start *start, struct rendezvous_out *rendezvous);
void oneway_free(struct oneway *oneway);
/** Sends one at once: 0; -EAGAIN: it must wait its turn; else as shard_call(). */
int oneway_send_now(struct shard *s, const struct call_start *start);
/** Queues the message and takes the record. A message to a lost peer is dropped and counted. */
void oneway_enqueue(struct shard *s, uint32_t worker, uint32_t shard, struct oneway *oneway);
/** The set-up of the session has succeeded or failed: queues or drops the messages that waited for it. */
void oneway_session_settled(struct shard *s, struct session *se);
unsigned oneway_send_queued(struct shard *s, struct rendezvous_peer *p);
void oneway_on_packet(struct shard *s, struct session *se, const union packet_head *h, const struct nic_pkt *pkt);
bool oneway_on_credit(struct shard *s, struct rendezvous_peer *p, const struct packet_credit *h, uint64_t packets);
void oneway_send_credit(struct shard *s, struct rendezvous_peer *p, unsigned flags);
/** Counts a one-way message that has arrived. */
void oneway_received(struct shard *s, struct rendezvous_peer *p);
/** Requests an acknowledgement of the peer, unless a request is under way. */
void oneway_request_credit(struct shard *s, struct rendezvous_peer *p);
void oneway_request_credit_all(struct shard *s);
void oneway_close(struct shard *s, struct rendezvous_peer *p);

/* ---- rendezvous.c ---- */

/** Handles a packet that is not about a call. true: the packet is kept. */
bool rendezvous_receive(struct shard *s, struct session *se, const union packet_head *h, const struct nic_pkt *pkt);
/** Lists the peer: it has something to do in the next passes. */
void rendezvous_list(struct shard *s, struct rendezvous_peer *p);
/** Sends a packet about a lane of the peer, GRANT or REFUSE, with the acknowledged packets. After GRANT with
 * PACKET_PULLED the sender is done with the message. */
void rendezvous_send_control(struct shard *s, struct rendezvous_peer *p, unsigned lane, enum packet_type type,
			     unsigned flags);
/** Resets the record, but for its link in the shard's list. Nothing of it is under way. */
void rendezvous_clear(struct rendezvous_peer *p);
void rendezvous_open(struct session *se);
/** The record of a session that is up; made at the first use. */
struct rendezvous_peer *rendezvous_make(struct shard *s, struct session *se);
static inline struct rendezvous_peer *rendezvous_peer_of(struct shard *s, struct session *se)
{
	return likely(se->rendezvous != NULL) ? se->rendezvous : rendezvous_make(s, se);
}
void rendezvous_close(struct shard *s, struct session *se);

#endif
