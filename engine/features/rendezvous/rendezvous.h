/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages in fragments, and one-way messages: what a session needs for them, apart from the session so that calls do
 * not pay for it. engine/PROTOCOL.md has the packets and the states.
 *
 * Sending: a struct large_out waits in its peer's queue for a free lane, is announced (HEAD_LARGE), and goes out by
 * fragments, one in a pass of the shard, as far as the receiver has granted and as long as fewer than FAR_LARGE_UNITS
 * of the session's LARGE, DATA and ABORT packets are unacknowledged. Every lane's life ends with one last word of its
 * sender: the fragment that completes the message, or ABORT.
 *
 * Receiving: a lane follows the sender's packets; a struct large_in has the memory. Fragments are held where they
 * arrived and copied one in a pass, so that small packets behind them are served first. A lane without a large_in waits
 * for one (`waiting`), or its message is not wanted any more and its fragments are dropped until the last word.
 */
#ifndef FAR_RENDEZVOUS_RENDEZVOUS_H
#define FAR_RENDEZVOUS_RENDEZVOUS_H

#include "core/call.h"
#include "features/features.h"

/* `source` of a large_out. */
enum large_source {
	LARGE_IDLE,
	LARGE_READING, /* the shard copies out of the parts */
	LARGE_REVOKED  /* the parts may be gone */
};

/** A message to be sent in fragments. Lies at the beginning of a buffer. */
struct large_out {
	struct shard_timer timer; /* the deadline of a one-way message; a call has its own */
	struct large_out *next;
	struct far_buf *self;
	_Atomic uint32_t refs;   /* who drops the last one releases the parts */
	_Atomic uint32_t source; /* enum large_source; compare-and-exchange by the shard and by large_out_revoke() */
	struct far_buf *copy;    /* that the parts lie in; NULL: application memory */
	bool released;           /* application memory until it is released, never revoked: packets may lie there */
	bool lent;               /* packets do, or did: they hold references of `self` */
	far_msg_release_fn *release;
	void *release_user;
	uint64_t total, sent, granted;
	uint64_t deadline; /* absolute */
	unsigned parts_n, part;
	size_t part_at;
	/* the shard's */
	struct large_peer *peer;
	enum large_kind kind;
	unsigned lane;
	struct shm_head
		head; /* of the whole message; a typed request's `fn` is the local index until it is announced */
	struct head_hash hash;
	struct far_part parts[FAR_PARTS_MAX + 1];
};

/** A message arriving in fragments, with its memory. One of FAR_LARGE_IN_MAX of the shard. */
struct large_in {
	struct shard_timer timer; /* the deadline of a request or one-way message */
	struct large_peer *peer;  /* NULL: free */
	struct large_in *next;    /* free list; ready list */
	enum large_kind kind;
	bool ready; /* complete; its session's answers are blocked */
	struct shm_head head;
	uint64_t total, copied;
	uint64_t given;   /* end of the last fragment that was given a place here before it was whole */
	uint64_t given_n; /* such bytes whose fragments have not come up yet */
	uint64_t arrived; /* when it was announced */
	struct far_buf *buf;
	uint8_t *at;
	const struct far_msg_placement *placed; /* the memory is the application's, to be given back by abandon() */
};

/** A sender's lane as the receiver sees it. */
struct large_lane {
	bool open;      /* announced, and no last word yet */
	bool waiting;   /* for a large_in */
	uint32_t epoch; /* of the lane: its messages are counted */
	enum large_kind kind;
	struct shm_head head;
	uint64_t total, accepted, granted; /* accepted: offset of the next fragment */
	uint64_t arrived;
	struct large_in *in; /* NULL: waiting, or dropped */
};

/** A fragment that was received and not copied yet. */
struct large_held {
	struct large_in *in; /* NULL: nobody wants it */
	unsigned lane;
	uint64_t offset, len, cookie;
	const uint8_t *body;
};

/** A one-way message that waits for the window, or for a long one before it. Lies at the beginning of a buffer. */
struct post {
	struct post *next;
	struct far_buf *self;
	struct large_out *large; /* NULL: bytes[0, len) */
	uint64_t deadline;
	uint64_t len;
	uint16_t fn;
	alignas(8) uint8_t bytes[];
};

struct large_peer {
	struct session *session;
	struct large_peer *next;
	bool listed; /* in the shard's list of peers to be seen to */
	/* sending */
	struct large_out *queue, **queue_tail; /* not announced */
	struct {
		struct large_out *out; /* NULL: free, or to be aborted */
		bool aborting;
		uint32_t epoch; /* of the lane: its messages are counted */
	} out[FAR_LARGE_LANES];
	unsigned turn; /* the lane that sends next */
	uint64_t units_sent, units_acked;
	/* receiving */
	struct large_lane in[FAR_LARGE_LANES];
	struct large_held held[FAR_LARGE_UNITS];
	unsigned held_first, held_n;
	unsigned oneways_n; /* one-way messages with a large_in */
	struct large_in *ready, **ready_tail;
	uint64_t units_received; /* done with */
	uint64_t units_told;
	/* one-way messages, cumulative numbers */
	struct post *posts, **posts_tail;
	struct large_out *post; /* the one that is being sent in fragments */
	uint64_t posts_sent, posts_acked, posts_received, posts_told;
	bool asked;
};

/** Of a shard. */
struct rendezvous_shard {
	struct large_peer *first, **last; /* peers with fragments or one-ways to be seen to */
	struct large_out *lent;           /* see large_lent_look() */
	struct large_in *ins, *free;      /* FAR_LARGE_IN_MAX; those that are free */
	struct shard_pool peers;
};

static inline struct rendezvous_shard *rendezvous_of(const struct shard *s)
{
	return s->state[FEATURE_RENDEZVOUS];
}

/* ---- send.c ---- */

/** Any thread. One reference, no parts, total 0; NULL without memory. */
struct large_out *large_out_new(void);
/** The same with one part of `len` bytes of engine memory to be written at `*at`. */
struct large_out *large_out_alloc(size_t len, void **at);
void large_out_ref(struct large_out *o);
/** The last one calls `release`, on this thread. */
void large_out_unref(struct large_out *o);
/** From its return on the parts are not read any more, whoever drives the shard. Waits for one fragment's copy at most.
 */
void large_out_revoke(struct large_out *o);
static inline struct large_out *large_out_in(struct far_buf *ready)
{
	return (struct large_out *)buf_data(ready);
}

/** Queues a message for its peer, taking a reference. `o->head`, `kind` and `deadline` are set. */
void large_send(struct shard *s, struct session *se, struct large_out *o);
/** A reply or one-way message that is in a buffer, of which it takes a reference. */
void large_reply(struct shard *s, struct session *se, const struct shm_head *h, struct far_buf *buf, size_t len);
/** Drops the shard's reference, as a callback in the application's eyes. */
void large_out_drop(struct shard *s, struct large_out *o);
/** Those that have ended, but for packets that lie in their memory: drops the ones that no packet holds any more. */
void large_lent_look(struct shard *s);
/** The shard ends: what devices still have, before `others`, by `next`. large_lent_end() drops them, once the ports
 * that may read it are closed. */
struct large_out *large_lent_leave(struct shard *s, struct large_out *others);
void large_lent_end(struct large_out *lent);
/** Announcements, ABORTs. */
unsigned large_announce(struct shard *s, struct large_peer *p);
/** At most one fragment. */
bool large_send_one(struct shard *s, struct large_peer *p);
/** What happened to the message of a call in CALL_LARGE; it is dropped, and the call is CALL_SENT again. */
enum call_progress large_detach(struct shard *s, struct session *se, struct call *c);
bool large_out_of_call(struct shard *s, struct large_peer *p, uint32_t slot, uint32_t gen, enum large_kind kind,
		       bool *announced);
bool large_units_acked(struct shard *s, struct large_peer *p, uint64_t done);
bool large_on_grant(struct shard *s, struct large_peer *p, const struct shm_head *h);
bool large_on_refuse(struct shard *s, struct large_peer *p, const struct shm_head *h);
void large_out_close(struct shard *s, struct large_peer *p);

/* ---- receive.c ---- */

bool large_on_announce(struct shard *s, struct large_peer *p, const struct shm_head *h, const struct nic_pkt *pkt);
/** `*held`: the packet is kept. */
bool large_on_data(struct shard *s, struct large_peer *p, const struct shm_head *h, const struct nic_pkt *pkt,
		   bool *held);
bool large_on_abort(struct shard *s, struct large_peer *p, const struct shm_head *h);
/** At most one fragment. */
bool large_copy_one(struct shard *s, struct large_peer *p);
/** Lanes that wait for memory, requests that wait for their session. */
unsigned large_admit(struct shard *s, struct large_peer *p);
/** nic_place_fn of the session's queue: its fragments go where their message is put together. */
bool large_place(struct large_peer *p, const struct shm_head *h, uint64_t len, struct nic_place *out);
/** A request that is arriving, or waits for its session: cancelled. */
bool large_in_cancel(struct shard *s, struct large_peer *p, uint32_t slot, uint32_t gen);
/** A reply that is arriving is not wanted any more. */
bool large_in_of_call(struct shard *s, struct large_peer *p, uint32_t slot, uint32_t gen);
/** Puts together and runs the one-way messages whose fragments are all there: a later one is about to run. */
void large_finish_oneways(struct shard *s, struct large_peer *p);
void large_in_close(struct shard *s, struct large_peer *p);

/* ---- oneway.c ---- */

/** Any thread. A record of a one-way message with its bytes, or of one in fragments, of which it takes a reference. */
struct post *post_new(const struct call_start *start, struct large_out *large);
void post_free(struct post *post);
/** Sends one at once: 0; -EAGAIN: it must wait its turn; else as shard_call(). */
int post_now(struct shard *s, const struct call_start *start);
/** Queues it, on the shard; the record is its own from now on. Without its peer it is dropped and counted. */
void post_queue(struct shard *s, uint32_t worker, uint32_t shard, struct post *post);
/** The session is up, or will never be: those that waited for it. */
void post_early(struct shard *s, struct session *se);
unsigned post_send_queued(struct shard *s, struct large_peer *p);
void post_on_packet(struct shard *s, struct session *se, const struct shm_head *h, const struct nic_pkt *pkt);
bool post_on_credit(struct shard *s, struct large_peer *p, const struct shm_head *h, uint64_t units);
void post_credit(struct shard *s, struct large_peer *p, unsigned flags);
/** One more of the peer's one-ways has arrived. */
void post_received(struct shard *s, struct large_peer *p);
/** Asks the peer what it is done with, unless it has been asked. */
void post_ask(struct shard *s, struct large_peer *p);
void post_ask_all(struct shard *s);
void post_close(struct shard *s, struct large_peer *p);

/* ---- rendezvous.c ---- */

/** A packet type that calls do not have. true: the packet is kept. */
bool large_receive(struct shard *s, struct session *se, const struct shm_head *h, const struct nic_pkt *pkt);
unsigned large_pump(struct shard *s);
/** The peer has something to be seen to in the next passes. */
void large_list(struct shard *s, struct large_peer *p);
/** A packet about a lane: GRANT, REFUSE (with the units that are done), ABORT. */
void large_tell(struct shard *s, struct large_peer *p, enum head_type type, unsigned lane, uint32_t life,
		uint64_t granted);
/** As new, but for its place in the shard's list. Nothing of it is under way. */
void large_clear(struct large_peer *p);
void large_open(struct session *se);
/** Of a session that is up; the first time it is made. */
struct large_peer *large_make(struct shard *s, struct session *se);
static inline struct large_peer *large_of(struct shard *s, struct session *se)
{
	return likely(se->large != NULL) ? se->large : large_make(s, se);
}
void large_close(struct shard *s, struct session *se);

#endif
