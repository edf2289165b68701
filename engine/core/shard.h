/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A shard: one polling core and all that it owns. Shard thread: the thread that holds the progress token, here "the
 * thread that holds the shard". What other threads touch lies in structures of engine/sync, each on lines of its own.
 *
 * engine/PROTOCOL.md has the states of a call and what frees what on which event, engine/README.md the resources.
 */
#ifndef FAR_CORE_SHARD_H
#define FAR_CORE_SHARD_H

#include "base/clock.h"
#include "base/must.h"
#include "core/context.h"
#include "core/feature.h"
#include "core/head.h"
#include "core/queues.h"
#include "core/request.h"
#include "core/timer.h"
#include "nic/nic.h"
#include "sync/mailbox.h"
#include "sync/progress.h"
#include "sync/submit.h"
#include "value/encoding.h"
#include "value/registry.h"

#include <farcall/agent.h>
#include <farcall/message.h>
#include <farcall/rpc.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

struct shard;
struct call;
struct call_cancel_note;
struct fiber;
struct fiber_pool;
struct fiber_wait;
struct faults;
struct rref_fork;
struct rref_note;
struct rref_open;
struct rref_pins;
struct rref_shard;

/** Work of another thread for the shard, done once in the next pass. The memory is the callee's again then. */
struct shard_errand {
	struct shard_errand *next;
	void (*run)(struct shard *s, struct shard_errand *errand);
};

/* ---- sessions ---- */

enum session_state {
	SESSION_CLOSED,     /* not asked for yet, its set-up failed, or it ended by silence: the next call asks */
	SESSION_CONNECTING, /* the control core was asked; calls wait */
	SESSION_UP,
	SESSION_DEAD /* until another life of the worker begins */
};

enum session_block {
	SESSION_BLOCKED = 1, /* answers wait for bulk memory: requests are parked meanwhile */
	SESSION_KEPT = 2     /* answers may be held back: each request gets a record */
};

/** Requests that wait, of a session whose answers are blocked. */
struct parked_requests {
	struct parked_requests *next_free;
	struct parked_request ring[FAR_SESSION_REQUESTS_MAX];
};

/** A worker, in its present life. */
struct worker_life {
	uint64_t incarnation;
	bool learned; /* something is in its struct worker_functions */
};

/** What is known of a worker's functions by all sessions with its shards. */
struct worker_functions {
	uint16_t index[FAR_FUNCTIONS_MAX]; /* by local function index: the callee's index + 1; 0: not known yet */
};

/** Address space for as many things as the shard has sessions: what was used becomes memory, and is used again. */
struct shard_pool {
	char *base;
	size_t bytes;
	uint32_t carved; /* those below were used */
};

struct waiting_call;

/** Association with one remote shard. All zero until it is first used. What only some sessions need, or only now and
 * then, is apart: a shard may have tens of thousands of them. */
struct session {
	alignas(64) uint8_t state; /* enum session_state */
	uint8_t blocked;           /* bits of enum session_block */
	uint8_t unposted;          /* mails that found the mailbox full, a bit of each enum mail_type */
	bool poisoned : 1;         /* it broke the protocol; the control core was told */
	bool known : 1;            /* it is in the shard's list */
	bool has_large : 1;        /* `large` is not NULL */
	bool flushing : 1;         /* up, and calls wait for room */
	bool life_open : 1;        /* it was up in the incarnation of the worker, which is not known to be lost */
	uint16_t calls_active;     /* slots in use, [0, limits.peer_calls] */
	uint16_t calls_max;        /* limits.peer_calls, or 0: not up, or calls wait that came before */
	uint32_t peer;             /* the NIC's */
	uint32_t worker;           /* rank */
	uint8_t shard;             /* the worker's */
	uint8_t port;              /* the NIC's: place in the shard's `queues` */
	uint8_t parked_head, parked_n;
	uint32_t index;      /* in the shard's table */
	struct nic_queue *q; /* that leads to it */
	struct far_deferred *open;
	uint32_t
		whole_max; /* bytes of a message that goes in one packet: FAR_MSG_WHOLE_MAX, or message_max when less */
	uint16_t open_n;
	uint16_t waiting_n;             /* [0, limits.peer_waiting] */
	struct parked_requests *parked; /* NULL: parked_n is 0 */
	struct far_deferred *blocked_head;

	struct waiting_call *waiting;
	struct session *next_known, *next_unposted;
	struct retry_caller *retry_caller; /* NULL: no call could be repeated yet */
	struct retry_callee *retry_callee;
	uint64_t message_max; /* bytes of a message that the peer takes */
	struct large_peer
		*large; /* features/rendezvous/rendezvous.h: fragments, one-way messages; NULL: there was none yet */
	struct post *posts_early; /* one-ways that wait for the set-up */
	/* rref.h: forks that the peer has here, results that it has not said to have taken, words to be sent and those
	 * that were and are not answered */
	struct rref_fork *rref_forks;
	struct rref_pins *rref_pins;
	struct rref_note *notes, **notes_tail, *notes_out;
	struct shard *home;   /* of whoever is told of the end of those */
	uint64_t incarnation; /* of the worker, as in the names that it gives; of the last session, while none is up */
	struct rref_note *rref_recall; /* rref_recall.c: not answered yet; NULL: there is none */
};

static_assert(sizeof(struct session) == 192 && FAR_SESSION_REQUESTS_MAX < 256, "an idle session is small");
static_assert(offsetof(struct session, rref_forks) == 128, "and the last line is for references and calls that wait");
static_assert(offsetof(struct session, waiting) == 64, "a call looks at one line of its session");

/* ---- the shard ---- */

struct shard_counters {
	_Atomic uint64_t calls_sent, calls_completed, calls_failed, calls_timed_out;
	_Atomic uint64_t requests_received, replies_sent, replies_late, calls_repeated, requests_repeated;
	_Atomic uint64_t bytes_sent, bytes_received;
	_Atomic uint64_t packets_dropped, busy_refusals, wakeups;
	_Atomic uint64_t calls_ended, requests_active; /* slots given back: those in use are calls_sent - calls_ended */
	_Atomic uint64_t calls_waiting;                /* for their session to be set up */
	_Atomic uint64_t posts_sent, posts_received, posts_dropped;
	_Atomic uint64_t large_sent, large_received, large_active;
	/* One-way messages, fragments and messages in fragments that were begun, and that the peer is done with: a
	 * shutdown waits until they are the same. */
	_Atomic uint64_t sends_begun, sends_ended;
	_Atomic uint64_t hedges_sent, hedges_won;
};

/** Single writer, any reader. */
static inline void counter_add(_Atomic uint64_t *c, uint64_t n)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

/** Written by threads that do not hold the shard too. Every writer of the counter must use it. */
static inline void counter_add_shared(_Atomic uint64_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

/**
 * Ring slots of one direction that a session can fill. Calls: our requests, the cancels of calls that are still pending
 * and of calls whose answer crossed the cancel, and our answers; a batch of words about references and the answer to
 * one, which are never cancelled. One-way messages, their CREDITs, one ASK with its
 * answer. Fragments and ABORTs; GRANTs and REFUSEs: each tells of a packet that was not told of before, but for a first
 * GRANT and a REFUSE in a lane's life, and lives begin and end with packets of that window (engine/PROTOCOL.md).
 */
#define SHARD_RING_SLOTS                                                                                               \
	(4u * FAR_SESSION_CALLS_MAX + 2u + FAR_POSTS_WINDOW + FAR_POSTS_WINDOW / FAR_POSTS_BATCH + 2u +                \
	 2u * FAR_LARGE_UNITS + FAR_LARGE_UNITS + 2u * FAR_LARGE_LANES)

/** Bounds that the application may choose; 0: the default. <farcall/agent.h> has their ranges, base/limits.h the
 * reasons. */
struct shard_limits {
	uint32_t submit_slots, mailbox_slots; /* powers of two */
	uint32_t calls, deferred;
	uint32_t peer_calls, peer_waiting, retry_window; /* of a session */
};

struct shard_config {
	struct far_agent *agent;
	void (*closing)(struct shard *s); /* its sessions are about to be closed for good; NULL: nobody cares */
	uint32_t index;                   /* among the agent's shards */
	bool cpu_scarce;                  /* a quota leaves it less than a CPU: it must not spin */
	bool stepped; /* no thread drives it: by shard_turn() only, and threads outside of fibers do not wait */
	struct shard_port ports[FAR_PORTS_MAX]; /* best first; [0, ports_n), 1 at least */
	unsigned ports_n;
	uint32_t world;
	const char *name; /* this worker's, for origins */
	const struct clock_source *clock;
	const struct registry *registry;
	enum far_driver driver;
	enum far_idle idle;
	const struct shard_feature *const *features; /* NULL ends them */
	_Atomic(struct blocking_pool *) *blocking;   /* of blocking handlers; made when the first is registered */
	uint64_t message_bytes_max;                  /* what is taken in fragments; 0: no limit */
	struct shard_limits limits;
	void (*ctl_wake)(void *ctx); /* the control core has mail */
	void *ctl_ctx;
	/** Where the caller of a call wants a reply of `len` bytes that comes in fragments; NULL: nowhere in
	 * particular. May be NULL itself. */
	void *(*place)(call_done_fn *done, void *user, size_t len);
	/** Completes a future of the agent, as the call it stands for ended. */
	void (*complete)(struct far_future *f, const struct outcome *o);
	/** Writes the name of a worker, of FAR_NAME_MAX bytes. */
	void (*name_of)(const struct far_agent *agent, uint32_t rank, char *name);
	uint32_t rank;
	uint64_t incarnation;
	struct faults *faults;  /* may be NULL */
	uint64_t rref_retry_ns; /* 0: the default */
};

struct shard {
	/* the pass */
	struct shard_queue queues[FAR_PORTS_MAX]; /* best first; [0, queues_n) */
	unsigned queues_n;
	uint32_t others_left;               /* passes until the queues beyond the first are looked at: 1 is the next */
	uint32_t others_step;               /* what it was then */
	bool others_dirty;                  /* they are to be flushed */
	struct session *sessions;           /* by session_index() */
	struct worker_functions *functions; /* by worker */
	struct worker_life *lives;          /* likewise */
	uint32_t world;
	struct call *calls;
	uint32_t calls_n;    /* slots */
	uint32_t calls_used; /* slots that were ever taken: the sweep looks at these */
	uint64_t sweep_at;   /* when the next sweep is due */
	uint32_t calls_free; /* slot + 1 */
	uint32_t passes;
	uint32_t poll_due;              /* bits of the features that have something to do in the next pass */
	uint32_t poll_idle;             /* bits of the features that have something to do when nothing else is */
	uint32_t blocked_n;             /* sessions whose answers or calls wait for room, once for each */
	uint32_t flushing_n;            /* of those, for calls */
	struct session *known;          /* every session that was ever used */
	_Atomic uint32_t *posts_queued; /* by session; any thread: one-ways on their way into its queue or in it */
	_Atomic uint32_t *calls_queued; /* by session; any thread: calls in the submission ring or in `waiting`. Whoever
					 * adds one looks at limits.peer_waiting first */
	bool place_held;                /* the call that is being started was in the ring, and counts there */
	struct session *unposted;       /* sessions with mails that found the mailbox full, oldest first */
	uint32_t undetached_n;          /* of these, with a MAIL_DETACHED: until it is posted they may not open again */
	uint64_t waiting_until;         /* no waiting call's deadline comes before; TIME_NEVER: none */
	uint64_t now;                   /* last reading of the clock */
	uint32_t now_pass;              /* the pass it was made in */
	const struct registry *registry;
	struct shard_context context;
	struct fiber *ready_head, **ready_tail; /* fibers whose wait is over */
	struct private_body *body;              /* that is dispatched: its memory need not be copied; NULL: none */
	struct shard_counters counters;
	struct far_deferred *answered; /* by the inline handler that has just returned; NULL: by none */
	struct far_deferred *deferred_free;
	struct far_deferred *deferred;
	struct rref_shard *rrefs;
	void *state[SHARD_FEATURES_MAX]; /* of features, by place */
	bool hold_calls;                 /* a feature may hold calls back: no session has credits */
	bool hold_answers;               /* likewise answers: sessions are marked SESSION_KEPT */
	uint32_t deferred_n;             /* records */
	char *strings;                   /* FAR_STRINGS_BYTES_MAX, for the arguments of the handler that runs */
	struct values_arena arena;       /* the same strings, and what else those arguments need */
	struct shard_config config;
	struct feature_hooks hooks; /* of config.features */
	struct call_cancel_note
		*cancels_taken; /* off `cancels`; to be run when what came before them in the ring has */
	bool armed; /* the queue's wake-up is armed and the keeper sleeps on it, though nobody holds the token */
	bool stopped;
	bool send_stalled; /* a fragment found no bulk memory */
	struct shard_pool parked;
	struct parked_requests *parked_free;
	struct timer_wheel wheel;      /* of struct shard_timer */
	struct timer_wheel call_wheel; /* of struct call, which has no room for a function: its slot is one line */

	/* other threads */
	_Atomic bool ask; /* somebody wants to know when everything has been acknowledged */
	struct driver driver;
	alignas(64) _Atomic(struct far_deferred *) answers; /* deferred answers, newest first; any thread pushes */
	_Atomic(struct fiber_wait *) resumed;               /* waits that other threads ended, newest first */
	_Atomic(struct fiber_pool *) fibers;                /* made when the first fiber handler is registered */
	_Atomic(struct call_cancel_note *) cancels;         /* asked for by other threads */
	_Atomic(struct shard_errand *) errands;             /* likewise, newest first */
	_Atomic uint32_t errands_n;                         /* of those, and of those that are being run */
	_Atomic uint32_t fanouts_begun, fanouts_ended;      /* ever; the difference is under way or handed over */
	_Atomic uint32_t oneways_n; /* one-way messages that came and whose handlers have left the burst: a shutdown
				     * waits for them, since nobody else does */
	_Atomic bool stop;          /* for the keeper */
	_Atomic uint32_t visitors;  /* threads that are handing an answer in: the shard is not freed under them */
	_Atomic bool keeper_asleep; /* writer: the keeper; set while it holds the token, cleared when it has woken */
	_Atomic uint32_t sessions_opened; /* ever; init waits for all of them */
	struct mailbox mail_in, mail_out;
	struct submit_ring submit;
};

/* shard.c */
/** Zeros aligned to 64 bytes, NULL: no memory. What is not used of many is not touched, whatever the allocator does
 * with its zeros. */
void *shard_zeroed(size_t n, size_t size);
void shard_zeroed_free(void *p);
struct shard *shard_create(const struct shard_config *config);
void shard_destroy(struct shard *s);
/** Takes / gives back the token for the calling thread. shard_enter(): false when somebody else holds it. */
bool shard_enter(struct shard *s);
/** Of a thread that waits, and of the keeper: does what others handed over first, handlers and callbacks included. */
void shard_leave(struct shard *s);
/**
 * Of a thread that does not wait: runs no handler, callback or destructor of the application. Sends the calls and
 * answers that others handed over; the rest is the keeper's, whose nap ends. `left`: there is something for it anyway.
 */
void shard_give(struct shard *s, bool left);
const char *shard_find_handler(void);
/** A number that each thread has of its own: where its thread-local pointer lies. */
uintptr_t shard_thread_mark(void);
struct fiber *shard_find_fiber(void);
/** The request that the calling flow serves, if it may wait; NULL in inline handlers and callbacks. */
const struct far_req *shard_request(void);
/** Any thread, after it put something into a ring of the shard: has it looked at soon. Runs nothing of the application
 * on this thread. */
void shard_nudge(struct shard *s);
/** Any thread: a handler of a one-way message, counted in `oneways_n`, has returned. */
static inline void oneway_ended(struct shard *s)
{
	atomic_fetch_sub_explicit(&s->oneways_n, 1, memory_order_release); /* pairs with outstanding() */
}
/** Any thread: has the errand run by the shard's driver soon. */
void shard_post(struct shard *s, struct shard_errand *errand);

/** Any thread: ends the sleep of whoever sleeps on the shard's queues. */
static inline void shard_wake(struct shard *s)
{
	s->queues[0].ops->wake(s->queues[0].q);
}

/* loop.c */
unsigned shard_pass(struct shard *s);
/** A burst of one queue. Returns packets. */
unsigned shard_receive(struct shard *s, struct shard_queue *sq);
/** What was committed leaves. */
static inline void shard_flush(struct shard *s)
{
	s->queues[0].ops->flush(s->queues[0].q);
	if (unlikely(s->others_dirty))
		queues_flush(s);
}
/** Messages of the control core; a pass looks at them now and then. */
unsigned shard_take_mail(struct shard *s);
unsigned shard_take_cancels(struct shard *s);
unsigned shard_take_errands(struct shard *s);
/** Starts the calls that others handed over, in order, up to the first that cannot be started or is none. Runs nothing
 * of the application. */
unsigned shard_take_calls(struct shard *s);
static inline bool shard_has_cancels(const struct shard *s)
{
	return s->cancels_taken || atomic_load_explicit(&s->cancels, memory_order_relaxed);
}
unsigned shard_run_timers(struct shard *s, uint64_t now);

/**
 * The time, read at most once for a handler and once for all completion callbacks of a pass. The price: a callback that
 * computes for long shortens the deadlines of calls that later callbacks of the same burst start.
 */
static inline uint64_t shard_now(struct shard *s)
{
	if (s->now_pass != s->passes) {
		s->now = clock_now(s->config.clock);
		s->now_pass = s->passes;
	}
	return s->now;
}

/** After an empty pass of somebody whose passes may be far between. */
static inline void shard_idle(struct shard *s)
{
	if (unlikely(s->queues_n > 1))
		queues_due(s, clock_now(s->config.clock));
}

/* idle.c */
struct idler {
	uint32_t empty;
	uint64_t since; /* 0: not idle */
};
/** One step of idling after a pass that found nothing. `awaiting`: the driver waits for an answer. true: time to sleep.
 */
bool idler_step(struct shard *s, struct idler *i, bool awaiting);
/** Sleeps until woken, a timer is due, or `until`. The caller holds the token throughout. */
void shard_sleep(struct shard *s, uint64_t until);
/**
 * Waits until the future is done or `until` has come: a fiber parks, a thread drives the shard when it can. Not in an
 * inline handler. 0, or why a fiber did not wait until then: -ECANCELED (whoever called it gave up, or the agent
 * stops), -ENOMEM (no record for its open request, or for the wait). -EDEADLK: not on a fiber, of a stepped shard.
 */
int shard_wait(struct shard *s, struct far_future *f, uint64_t until);
/** The shard's own thread. */
void *keeper_main(void *shard);

/** The driver of a stepped shard, between its turns. All zero at first. */
struct shard_turns {
	struct idler idler;
	bool asleep; /* armed: the next turn is due when a queue is woken, or at the time that shard_turn() said */
	uint64_t turns, work;
};
/**
 * One turn of a shard that no thread drives: a pass that leaves nothing out; after as long without work as a keeper
 * polls, it arms the queues and sleeps. Nobody holds the token in between. Returns when the next one is due (absolute):
 * now, when there was something to do. Until it sleeps it polls: whoever knows when a packet arrives calls it then.
 */
uint64_t shard_turn(struct shard *s, struct shard_turns *t);

/* dispatch.c */
/** The handler's part of a request: reads the arguments, calls, and sees to the answer. `strings[0, cap)` is room for
 * the arguments' texts. Where the handler runs. */
void dispatch_typed(struct far_req *req, const uint8_t *body, uint64_t len, char *strings, size_t cap);
void dispatch_message(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len);
/** Bytes of an answer that the caller takes. */
static inline uint64_t dispatch_limit(const struct far_req *req)
{
	return req->record ? req->record->limit : req->session->message_max;
}
/** Sends what the handler has answered so far, if it has. */
void dispatch_flush(struct far_req *req);
/** Parts the request from its record, which is answered by whoever has it. */
void dispatch_part(struct far_req *req);
/** The same, now that the record has the answer: it is handed to the shard. */
void dispatch_finish(struct far_req *req);
/** Answers with an error, in the way the request is answered. */
void dispatch_error(struct far_req *req, enum far_status status, enum far_executed executed, int32_t code,
		    const char *text, size_t len);
/** The function of these hashes; NULL: the request was refused. */
const struct function *dispatch_find(struct far_req *req, const struct head_hash *hash);
/** Runs a request's handler and sends its answer. The body is readable until it returns. */
void dispatch(struct shard *s, struct session *se, const struct shm_head *h, const uint8_t *body, uint64_t len,
	      uint64_t waited);
/** The same, of any session: where answers may be held back, too. */
void dispatch_slowly(struct shard *s, struct session *se, const struct shm_head *h, const uint8_t *body, uint64_t len,
		     uint64_t waited);

/* answer.c */
/** Sends an answer; on -ENOBUFS (no bulk memory now) it is kept and sent later. Never fails: what cannot be kept
 * becomes an error. */
void answer_send(struct shard *s, struct session *se, uint32_t call, uint32_t gen, const struct function *fn,
		 bool hashed, const void *data, size_t len);
/** The same without keeping: 0, or why not (-ENOBUFS, -EAGAIN). For an answer that its handler gives while it runs. */
int answer_now(const struct far_req *req, const void *data, size_t len);
/** The text for an answer of `len` bytes for which there is no memory: its length. Any thread. */
size_t answer_no_memory(char text[FAR_ERR_TEXT_MAX], size_t len);
void answer_error(struct shard *s, struct session *se, uint32_t call, uint32_t gen, enum far_status status,
		  enum far_executed executed, int32_t code, const char *text, size_t len);
/** Header-only packet. */
void answer_bare(struct shard *s, struct session *se, enum head_type type, enum far_executed executed, uint32_t call,
		 uint32_t gen);
/** A cancel. It may be lost. */
void answer_cancel(struct shard *s, struct session *se, uint32_t call, uint32_t gen, unsigned flags);
/** Sends a record's answer, or keeps it until there is memory, and sees to the record. */
void answer_deferred(struct shard *s, struct far_deferred *d);
/** Sends a record's answer: 0, -ENOBUFS, -EAGAIN, -EPIPE. */
int answer_kept(struct shard *s, struct session *se, const struct far_deferred *d, unsigned flags);
/** Any packet that has a slot of its own: 0, or why it cannot go now. */
int answer_packet(struct shard *s, struct session *se, const struct shm_head *h, const void *data, size_t len);
/** The ring has no slot for an answer: the peer sends more than its credits, or gives nothing back. It is taken down.
 */
void answer_no_room(struct shard *s, struct session *se);
void answer_fill_head(uint8_t *head, const struct far_req *req);
/** Answers of blocked sessions, then their parked requests. */
unsigned answer_unblock(struct shard *s);
void answer_park_request(struct shard *s, struct session *se, const struct shm_head *h, const struct nic_pkt *pkt);
void answer_drop_all(struct shard *s, struct session *se);

/* deferred.c */
struct far_deferred *deferred_alloc(struct shard *s, struct session *se, uint32_t call, uint32_t gen,
				    const struct function *fn, bool hashed);
void deferred_free(struct shard *s, struct far_deferred *d);
/** Room for an answer of `len` bytes in the record; NULL: an error was put there instead. Whoever owns it. */
void *deferred_room(struct far_deferred *d, size_t len);
void deferred_error(struct far_deferred *d, enum far_status status, enum far_executed executed, int32_t code,
		    const char *text, size_t len);
/** Hands the record, its answer filled in, to the shard. Any thread. FAR_CANCELLED: nobody waits for it. */
enum far_status deferred_finish(struct far_deferred *d);
/** Puts a record among the answers to be sent. Any thread. */
void deferred_push(struct shard *s, struct far_deferred *d);
/** Deferred answers that other threads finished. */
unsigned deferred_drain(struct shard *s);
/** The same, but for those whose end runs something of the application: they stay. */
unsigned deferred_drain_quietly(struct shard *s);
/** Was there an open request (deferred or parked) to cancel. */
bool deferred_cancel(struct shard *s, struct session *se, uint32_t call, uint32_t gen);
void deferred_all_gone(struct shard *s, struct session *se);

/* session.c */
static inline uint32_t session_index(const struct shard *s, uint32_t worker, uint32_t shard)
{
	return shard * s->world + worker;
}
/** A call to it is to come: has the caches fetch the session, 2 × SESSION_EXPECT calls ahead; and then, half as many
 * ahead, what its queue has of it. */
#define SESSION_EXPECT 4u
static inline void session_expect(const struct shard *s, uint32_t worker, uint32_t shard)
{
	__builtin_prefetch(&s->sessions[session_index(s, worker, shard)], 1);
}
static inline void session_expect_soon(const struct shard *s, uint32_t worker, uint32_t shard)
{
	const struct session *se = &s->sessions[session_index(s, worker, shard)];
	if (se->state == SESSION_UP && se->q->ops->expect)
		se->q->ops->expect(se->q, se->peer);
}
/** Makes it one of the shard's list, with its name filled in. */
void session_know(struct shard *s, struct session *se);
/** Hands a packet to the session's queue, as its tx_commit(). */
static inline int session_commit(struct shard *s, const struct session *se, struct nic_tx *tx)
{
	if (unlikely(se->port))
		queues_touched(s, se->port);
	return se->q->ops->tx_commit(se->q, tx);
}
/** Is an answer of the peer awaited: to a call, a one-way message, a fragment. */
bool session_owes(const struct shard *s, const struct session *se);
/** Asks the control core to set it up. */
void session_connect(struct shard *s, struct session *se);
/** Mails that found the mailbox full. */
void session_post_again(struct shard *s);
/** By local function index: what the session's worker calls it, + 1. */
static inline uint16_t *session_functions(const struct shard *s, const struct session *se)
{
	return s->functions[se->worker].index;
}
/** A reply has told how the worker calls a function of ours. */
void session_learn(struct shard *s, const struct session *se, uint32_t local, uint32_t there);
/** A pool of `n` things: address space alone. false: none is left. */
bool shard_pool_init(struct shard_pool *pool, size_t n, size_t size);
void shard_pool_fini(struct shard_pool *pool);
/** Another one of the pool. There is one for each session. */
void *shard_pool_carve(struct shard_pool *pool, size_t size);
/** Answers and calls that wait for room. */
unsigned session_unblock(struct shard *s);
void session_on_mail(struct shard *s, const struct mail *mail);
void session_poisoned(struct shard *s, struct session *se);
void session_close_all(struct shard *s);

/**
 * The head's place in a packet being written. Its fields are stored there one by one: a head put together on the stack
 * and then copied would be read back in wider pieces than it was written in, which stalls (perf/NOTES.md, "heads").
 */
static inline struct shm_head *head_at(uint8_t *bytes)
{
	return (struct shm_head *)(void *)bytes;
}

/** A body of exactly one line, the usual one, is copied without a call. */
static inline void copy_body(void *dst, const void *src, size_t len)
{
	if (len == FAR_LINE_PAYLOAD)
		__builtin_memcpy(dst, src, FAR_LINE_PAYLOAD);
	else if (len)
		__builtin_memcpy(dst, src, len);
}

/** Name of the inline handler or callback that the calling flow is in, of any shard; NULL: none, or a fiber. */
static inline const char *shard_in_handler(void)
{
	return likely(!shard_context_top()) ? NULL : shard_find_handler();
}

/** The fiber that the calling flow is; NULL: none, or an inline handler inside it. */
static inline struct fiber *shard_in_fiber(void)
{
	return likely(!shard_context_top()) ? NULL : shard_find_fiber();
}

/** Is the calling flow a handler of any kind, or a callback. */
static inline bool shard_serving(void)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		if (c->handler || c->fiber || c->req)
			return true;
	return false;
}

/** Does the calling thread hold it. Nearly always it holds one shard at most. */
static inline bool shard_held(const struct shard *s)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		if (c->shard == s)
			return true;
	return false;
}

/** In debug builds: ends the process unless the calling thread holds the shard. First in the functions that only such a
 * thread may call. */
static inline void shard_own(const struct shard *s)
{
	debug_must(shard_held(s));
}

static inline uint64_t head_time(const struct shm_head *h)
{
	return (uint64_t)h->time_high << 32 | h->time_low;
}

#endif
