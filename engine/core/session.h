/* SPDX-License-Identifier: BSD-3-Clause */
/** Sessions with remote shards. Shard thread. */
#ifndef FAR_CORE_SESSION_H
#define FAR_CORE_SESSION_H

#include "base/copy.h"
#include "base/factor.h"
#include "base/limits.h"
#include "base/must.h"
#include "core/packet.h"
#include "core/queues.h"
#include "core/shard.h"
#include "nic/nic.h"
#include "sync/mailbox.h"

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct far_deferred;
struct nic_lane;
struct oneway;
struct paused_requests;
struct rendezvous_peer;
struct retry_callee;
struct retry_caller;
struct rref_fork;
struct rref_msg;
struct rref_pins;

/** Legal order: CLOSED → CONNECTING → UP → CLOSED or DEAD; CONNECTING → CLOSED or DEAD; DEAD → CLOSED when another
 * incarnation of the worker begins. */
enum session_state {
	SESSION_CLOSED,     /* never requested, its set-up failed, or it was lost: the next call requests it */
	SESSION_CONNECTING, /* requested of the control thread; calls wait */
	SESSION_UP,
	SESSION_DEAD /* the worker is lost */
};

/** Reasons for which requests do not go straight to dispatch(). */
enum session_block {
	SESSION_BACKPRESSURED = 1, /* answers wait for bulk memory: requests are queued meanwhile */
	SESSION_HELD = 2,          /* answers may be held back (shard.hold_answers): each request gets a record */
	SESSION_SHOWN = 4          /* interceptors see requests without fields (shard.shown) */
};

/** The present incarnation of a worker. */
struct worker_incarnation {
	uint64_t incarnation;
	bool learned; /* some entry of its struct worker_functions is set */
};

/** Function numbers of a worker, learned by any session with one of its shards. */
struct worker_functions {
	uint16_t index[FAR_FUNCTIONS_MAX]; /* by local function index: the callee's index + 1; 0: not known yet */
};

struct waiting_call;

/** Classes of the errors that end calls: session_count_error(). */
enum session_error {
	SESSION_ERROR_TIMEOUT,
	SESSION_ERROR_LOST, /* PEER_LOST, UNREACHABLE */
	SESSION_ERROR_CANCELLED,
	SESSION_ERROR_REFUSED,  /* no such function, another signature, arguments, sizes, protocol */
	SESSION_ERROR_RESOURCE, /* RESOURCE, BUSY */
	SESSION_ERROR_HANDLER,  /* the handler's own */
	SESSION_ERROR_SHUTDOWN,
	SESSION_ERROR_OTHER,
	SESSION_ERRORS
};

/** Counters of a session since the start of the shard, over all incarnations of its worker. */
struct session_counters {
	uint64_t calls_ended;            /* the calls begun: these and session.calls_active */
	uint64_t requests;               /* of the peer, one-way messages too */
	uint64_t bytes_received;         /* of bodies */
	uint32_t errors[SESSION_ERRORS]; /* of our calls */
};

/**
 * Association with one remote shard. All zero until its first use. A shard may have tens of thousands, so what only
 * some sessions need, or only at times, lies elsewhere. A call touches the first line, and the second when it waits.
 */
struct session {
	alignas(64) uint8_t state; /* enum session_state */
	uint8_t backpressured;     /* bits of enum session_block */
	uint8_t unsent_mails;      /* mails that found the mailbox full: bits by enum mail_type */
	bool protocol_error : 1;   /* the peer broke the protocol, and the control thread was notified */
	bool known : 1;            /* it is in shard.known */
	bool has_rendezvous : 1;   /* `rendezvous` is not NULL */
	bool draining : 1;         /* it is up, and calls wait for room */
	bool worker_alive : 1;     /* it was up with `incarnation`, which is not known to be lost */
	uint16_t calls_active;     /* call slots in use, [0, limits.peer_calls + 1]: a batch of control messages has a
				      credit of its own */
	uint16_t calls_max;    /* credits: limits.peer_calls; 0: not up, earlier calls wait, or calls are held back */
	uint32_t peer;         /* handle of the NIC */
	uint32_t worker;       /* rank */
	uint8_t shard;         /* of the worker */
	uint8_t port;          /* index in shard.queues */
	uint8_t paused_head;   /* first queued request in `paused` */
	uint8_t paused_n;      /* queued requests, [0, FAR_SESSION_REQUESTS_MAX] */
	uint32_t index;        /* in shard.sessions */
	struct nic_queue *q;   /* the port's queue */
	struct nic_lane *lane; /* session_no_lane: the peer has none, or the session is not up; NULL: it never was */
	struct far_deferred *open; /* records of open requests */
	uint32_t eager_max;        /* bytes of the largest eager message: min(FAR_MSG_EAGER_MAX, message_max) */
	uint16_t open_n;           /* records in `open` */
	uint16_t waiting_n;        /* calls in `waiting`, [0, limits.peer_waiting] */
	uint64_t bytes_sent;       /* of bodies, since the start of the shard */

	struct waiting_call *waiting;             /* oldest first */
	struct session *next_known, *next_unsent; /* links of shard.known and of shard.unposted */
	struct retry_caller *retry_caller;        /* of retry; NULL: no call of ours was to be repeated */
	struct retry_callee *retry_callee;        /* of retry; NULL: no call of the peer's was to be repeated */
	uint64_t message_max;                     /* bytes of the largest message that the peer takes */
	struct rendezvous_peer *rendezvous;       /* of rendezvous; NULL: no such message, no one-way message yet */
	struct oneway *oneways_early;             /* of rendezvous: one-way messages that wait for the set-up */
	/* Of references, as is the rest: forks of the peer here; results that the peer has not accepted; control
	 * messages to send, and those that are sent and not answered. */
	struct rref_fork *rref_forks;
	struct rref_pins *rref_pins;
	struct rref_msg *msgs, *msgs_in_flight;
	struct paused_requests *paused; /* NULL: paused_n is 0 */
	uint64_t incarnation;           /* rref_incarnation() of the worker: of the session that is up, or was last */
	struct rref_msg *rref_recall;   /* RECALL that is not answered; NULL: none */
	struct far_deferred *backpressured_head; /* answers that wait for memory, oldest first */

	alignas(64) struct session_counters counters;
};

static_assert(sizeof(struct session) == 256 && FAR_SESSION_REQUESTS_MAX < 256, "an idle session is small");
static_assert(offsetof(struct session, counters) == 192, "a call touches one line of its counters");
static_assert(offsetof(struct session, rref_forks) == 128, "the third line is for references and calls that wait");
static_assert(offsetof(struct session, waiting) == 64, "a call touches one line of its session");

static inline uint32_t session_index(const struct shard *s, uint32_t worker, uint32_t remote)
{
	return remote * s->world + worker;
}
/** Prefetches the session of a coming call and its counters, 2 × SESSION_PREFETCH_AHEAD calls ahead; and, half as many
 * ahead, the queue's state of its peer. */
#define SESSION_PREFETCH_AHEAD 4u
static inline void session_set_info(const struct shard *s, uint32_t worker, uint32_t remote)
{
	uint32_t index = session_index(s, worker, remote);
	__builtin_prefetch(&s->sessions[index], 1);
	__builtin_prefetch(&s->sessions[index].counters, 1);
}
static inline void session_prefetch_queue(const struct shard *s, uint32_t worker, uint32_t remote)
{
	const struct session *se = &s->sessions[session_index(s, worker, remote)];
	if (se->state != SESSION_UP || !se->q->ops->prefetch)
		return;
	se->q->ops->prefetch(se->q, se->peer);
	__builtin_prefetch(&s->queues[se->port].peer_session[se->peer]);
}
/** A lane without room. */
extern struct nic_lane session_no_lane;

/** Puts it into shard.known; `worker` and `shard` are set. */
void session_list_in(struct shard *s, struct session *se);
/** Adds to a counter of a session. */
static inline void session_count(uint64_t *counter, uint64_t n)
{
	if (FACTOR(COUNTERS))
		*counter += n;
}
/** Counts the bytes of a body, of the shard and of the session. */
static inline void session_count_sent(struct shard *s, struct session *se, uint64_t bytes)
{
	counter_add(&s->counters.bytes_sent, bytes);
	session_count(&se->bytes_sent, bytes);
}
static inline void session_count_received(struct shard *s, struct session *se, uint64_t bytes)
{
	counter_add(&s->counters.bytes_received, bytes);
	session_count(&se->counters.bytes_received, bytes);
}
/** Counts and traces a call that ended with an error. `function`: as call.fn. */
void session_count_error(struct shard *s, struct session *se, enum far_status status, bool typed, uint16_t function);
/** Reserves room for a packet, as the queue's tx_reserve(). `body`: all of its bytes, which may be sent from there
 * while session_commit() runs: then tx->body is `body`. NULL: they are written later. */
static inline int session_reserve(const struct session *se, const void *body, size_t len, struct nic_tx *tx)
{
	const struct nic_queue_ops *ops = se->q->ops;
	int error = -EOPNOTSUPP;
	if (unlikely(len >= FAR_BORROW_BYTES_MIN) && body && ops->tx_borrow)
		error = ops->tx_borrow(se->q, se->peer, body, len, tx);
	return likely(error == -EOPNOTSUPP) ? ops->tx_reserve(se->q, se->peer, len, tx) : error;
}
/** How `len` bytes are copied into a packet of the session. */
static inline copy_fn *session_copier(const struct session *se, size_t len)
{
	return unlikely(len >= FAR_STREAM_BYTES_MIN) ? se->q->ops->tx_copy : NULL;
}
/** Copies bytes into a reserved packet. */
static inline void session_copy(const struct session *se, void *to, const void *from, size_t len)
{
	copy_fn *copy = session_copier(se, len);
	if (unlikely(copy != NULL))
		copy(to, from, len);
	else
		copy_body(to, from, len);
}
/** Hands a packet to the session's queue, as its tx_commit(). */
static inline int session_commit(struct shard *s, const struct session *se, struct nic_tx *tx)
{
	if (unlikely(se->port))
		queues_touched(s, se->port);
	return se->q->ops->tx_commit(se->q, tx);
}
/** True if an answer of the peer is due: to a call, a one-way message, a fragment. */
bool session_owes(const struct shard *s, const struct session *se);
/** True if its worker is lost. Where the worker is a member again by now, the session is closed, as the mail on its way
 * will have it. */
bool session_is_dead(struct shard *s, struct session *se);
/** Requests its set-up of the control thread. */
void session_connect(struct shard *s, struct session *se);
/** Sends the mails that found the mailbox full. */
void session_retry_mails(struct shard *s);
/** By local function index: the index at the session's worker, + 1; 0: not known. */
static inline uint16_t *session_functions(const struct shard *s, const struct session *se)
{
	return s->functions[se->worker].index;
}
/** A reply carried the worker's index of function `local`. */
void session_learn(struct shard *s, const struct session *se, uint32_t local, uint32_t there);
/** Sends answers and calls that wait for room. */
unsigned session_resume(struct shard *s);
void session_on_mail(struct shard *s, const struct mail *mail);
/** Ends the session, and what former ones have left, as if the other worker was lost. `text`: for errors. */
void session_end(struct shard *s, struct session *se, const char *text);
void session_protocol_error(struct shard *s, struct session *se);
void session_close_all(struct shard *s);

#endif
