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
struct call_cancel_msg;
struct fiber;
struct fiber_pool;
struct fiber_wait;
struct faults;
struct rref_fork;
struct rref_msg;
struct rref_open;
struct rref_pins;
struct rref_shard;

/** A task of another thread for the shard: run once, in the next pass. The memory belongs to `run` from then on. */
struct shard_task {
	struct shard_task *next;
	void (*run)(struct shard *s, struct shard_task *task);
};

/* ---- sessions ---- */

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
	SESSION_HELD = 2           /* answers may be held back (shard.hold_answers): each request gets a record */
};

/** Queued requests of a session whose answers wait for memory. */
struct paused_requests {
	struct paused_requests *next_free;
	struct paused_request ring[FAR_SESSION_REQUESTS_MAX];
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

/** Address space for one thing of each session. A page becomes memory when it is first used. */
struct shard_pool {
	char *base;
	size_t bytes;
	uint32_t carved; /* things [0, carved) have been used */
};

struct waiting_call;

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
	uint16_t calls_max;  /* credits: limits.peer_calls; 0: not up, earlier calls wait, or calls are held back */
	uint32_t peer;       /* handle of the NIC */
	uint32_t worker;     /* rank */
	uint8_t shard;       /* of the worker */
	uint8_t port;        /* index in shard.queues */
	uint8_t paused_head; /* first queued request in `paused` */
	uint8_t paused_n;    /* queued requests, [0, FAR_SESSION_REQUESTS_MAX] */
	uint32_t index;      /* in shard.sessions */
	struct nic_queue *q; /* the port's queue */
	struct far_deferred *open;      /* records of open requests */
	uint32_t eager_max;             /* bytes of the largest eager message: min(FAR_MSG_EAGER_MAX, message_max) */
	uint16_t open_n;                /* records in `open` */
	uint16_t waiting_n;             /* calls in `waiting`, [0, limits.peer_waiting] */
	struct paused_requests *paused; /* NULL: paused_n is 0 */
	struct far_deferred *backpressured_head; /* answers that wait for memory, oldest first */

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
	struct rref_msg *msgs, **msgs_tail, *msgs_in_flight;
	struct shard *home;           /* the session's shard, for the completion of those */
	uint64_t incarnation;         /* rref_incarnation() of the worker: of the session that is up, or was last */
	struct rref_msg *rref_recall; /* RECALL that is not answered; NULL: none */
};

static_assert(sizeof(struct session) == 192 && FAR_SESSION_REQUESTS_MAX < 256, "an idle session is small");
static_assert(offsetof(struct session, rref_forks) == 128, "and the last line is for references and calls that wait");
static_assert(offsetof(struct session, waiting) == 64, "a call touches one line of its session");

/* ---- the shard ---- */

struct shard_counters {
	_Atomic uint64_t calls_sent, calls_completed, calls_failed, calls_timed_out;
	_Atomic uint64_t requests_received, replies_sent, replies_late, calls_retried, requests_duplicate;
	_Atomic uint64_t bytes_sent, bytes_received;
	_Atomic uint64_t packets_dropped, busy_refusals, wakeups;
	_Atomic uint64_t calls_ended, requests_active; /* slots given back: those in use are calls_sent - calls_ended */
	_Atomic uint64_t calls_waiting;                /* for their session to be set up */
	_Atomic uint64_t oneways_sent, oneways_received, oneways_dropped;
	_Atomic uint64_t rendezvous_sent, rendezvous_received, rendezvous_active;
	/* One-way messages, fragments and messages in fragments: begun, and acknowledged or given up. A shutdown waits
	 * until the two are equal. */
	_Atomic uint64_t sends_begun, sends_ended;
	_Atomic uint64_t hedges_sent, hedges_won;
};

/** Single writer, any reader. */
static inline void counter_add(_Atomic uint64_t *c, uint64_t n)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

/** Any thread. Every writer of the counter must use it. */
static inline void counter_add_shared(_Atomic uint64_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

/**
 * Ring slots of one direction that a session can fill. Calls: our requests, the cancels of calls that are still pending
 * and of calls whose answer crossed the cancel, and our answers; a batch of words about references and the answer to
 * one, which are never cancelled. One-way messages, their CREDITs, one ASK with its
 * answer. Fragments and ABORTs; GRANTs and REFUSEs: each reports a packet that was not reported before, except a first
 * GRANT and a REFUSE in a lane's epoch, and epochs begin and end with packets of that window (engine/PROTOCOL.md).
 */
#define SHARD_RING_SLOTS                                                                                               \
	(4u * FAR_SESSION_CALLS_MAX + 2u + FAR_ONEWAYS_WINDOW + FAR_ONEWAYS_WINDOW / FAR_ONEWAYS_BATCH + 2u +          \
	 2u * FAR_RENDEZVOUS_UNITS + FAR_RENDEZVOUS_UNITS + 2u * FAR_RENDEZVOUS_LANES)

/** Bounds that the application may choose; 0: the default. <farcall/agent.h> has their ranges, base/limits.h the
 * reasons. */
struct shard_limits {
	uint32_t submit_slots, mailbox_slots; /* powers of two */
	uint32_t calls, deferred;
	uint32_t peer_calls, peer_waiting, retry_window; /* of a session */
};

struct shard_config {
	struct far_agent *agent;
	void (*closing)(struct shard *s); /* called before its sessions are closed for good; may be NULL */
	uint32_t index;                   /* among the agent's shards */
	bool cpu_scarce;                  /* a CPU quota leaves it less than one CPU: it must not spin */
	bool stepped; /* polled by shard_turn() alone: it has no poller, and threads outside of fibers do not wait */
	struct shard_port ports[FAR_PORTS_MAX]; /* best first; [0, ports_n), 1 at least */
	unsigned ports_n;
	uint32_t world;
	const char *name; /* this worker's, for origins */
	const struct clock_source *clock;
	const struct registry *registry;
	enum far_progress progress;
	enum far_idle idle;
	const struct shard_feature *const *features; /* NULL ends them */
	_Atomic(struct blocking_pool *) *blocking;   /* of blocking handlers; made when the first is registered */
	uint64_t message_bytes_max;                  /* largest message that is received in fragments; 0: no limit */
	struct shard_limits limits;
	void (*ctl_wake)(void *ctx); /* notifies the control thread of mail */
	void *ctl_ctx;
	/** Returns where the caller wants a reply of `len` bytes that arrives in fragments; NULL: anywhere. May be NULL
	 * itself. */
	void *(*place)(call_done_fn *done, void *user, size_t len);
	/** Completes a future of the agent with the completion of its call. */
	void (*complete)(struct far_future *f, const struct completion *o);
	/** Writes the name of a worker, of FAR_NAME_MAX bytes. */
	void (*name_of)(const struct far_agent *agent, uint32_t rank, char *name);
	uint32_t rank;
	uint64_t incarnation;
	struct faults *faults;  /* may be NULL */
	uint64_t rref_retry_ns; /* 0: the default */
};

struct shard {
	/* the pass */
	struct shard_queue queues[FAR_PORTS_MAX]; /* best port first; [0, queues_n) */
	unsigned queues_n;
	uint32_t others_left;               /* passes until the schedule of the other queues is read; 1: the next */
	uint32_t others_step;               /* value of others_left when it was set */
	bool others_dirty;                  /* the other queues are to be flushed */
	struct session *sessions;           /* by session_index() */
	struct worker_functions *functions; /* by worker */
	struct worker_incarnation *incarnations; /* by worker */
	uint32_t world;                          /* workers of the group */
	struct call *calls;
	uint32_t calls_n;    /* slots */
	uint32_t calls_used; /* slots [0, calls_used) were ever taken: the sweep reads these */
	uint64_t sweep_at;   /* ns, when the next sweep is due */
	uint32_t calls_free; /* slot + 1 of the first free one */
	uint32_t passes;
	uint32_t poll_due;        /* bits of the features that have something to do in the next pass */
	uint32_t poll_idle;       /* bits of the features that have something to do when nothing else is */
	uint32_t backpressured_n; /* sessions whose answers wait for memory, and sessions whose calls wait for room */
	uint32_t draining_n;      /* of those, the latter */
	struct session *known;    /* all sessions that were ever used */
	_Atomic uint32_t
		*oneways_queued;        /* by session; any thread: one-way messages on the way to its queue, or in it */
	_Atomic uint32_t *calls_queued; /* by session; any thread: calls in the submission ring or in `waiting`; whoever
					 * adds one checks limits.peer_waiting first */
	bool waiting_slot_held;         /* the call that is being started counts in calls_queued: it was in the ring */
	struct session *unsent_mails;   /* sessions with mails that found the mailbox full, oldest first */
	uint32_t undetached_n;          /* of these, with a MAIL_DETACHED: no session opens before it is sent */
	uint64_t waiting_until;         /* ns, no deadline of a waiting call is earlier; TIME_NEVER: none */
	uint64_t now;                   /* ns, last reading of the clock */
	uint32_t now_pass;              /* value of `passes` then */
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
	bool hold_answers;               /* likewise answers: sessions are marked SESSION_HELD */
	uint32_t deferred_n;             /* records */
	char *strings;                   /* FAR_STRINGS_BYTES_MAX, for the arguments of the handler that runs */
	struct values_arena arena;       /* the same strings, and what else those arguments need */
	struct shard_config config;
	struct feature_hooks hooks;            /* of config.features */
	struct call_cancel_msg *cancels_taken; /* off `cancels`; to be run when what came before them in the ring has */
	bool armed; /* the queue's wake-up is armed and the poller sleeps on it, without holding the shard */
	bool stopped;
	bool send_stalled; /* a fragment found no bulk memory */
	struct shard_pool paused;
	struct paused_requests *paused_free;
	struct timer_wheel wheel;      /* of struct shard_timer */
	struct timer_wheel call_wheel; /* of struct call, which has no room for a function: its slot is one line */

	/* other threads */
	_Atomic bool ask; /* somebody wants to know when everything has been acknowledged */
	struct progress progress;
	alignas(64) _Atomic(struct far_deferred *) answers; /* deferred answers, newest first; any thread pushes */
	_Atomic(struct fiber_wait *) resumed;               /* waits that other threads ended, newest first */
	_Atomic(struct fiber_pool *) fibers;                /* made when the first fiber handler is registered */
	_Atomic(struct call_cancel_msg *) cancels;          /* cancels of other threads, newest first */
	_Atomic(struct shard_task *) tasks;                 /* tasks of other threads, newest first */
	_Atomic uint32_t tasks_n;                           /* tasks in `tasks` or running */
	/* Fan-outs ever begun and ended; writers: any thread, the shard. The difference is under way or handed over. */
	_Atomic uint32_t fanouts_begun, fanouts_ended;
	/* One-way messages whose handlers have left the burst: a shutdown waits for them, since no caller does. */
	_Atomic uint32_t oneways_n;
	_Atomic bool stop;          /* the poller is to end */
	_Atomic uint32_t producers; /* threads that are handing something over: the shard is not freed meanwhile */
	_Atomic bool poller_asleep; /* writer: the poller; set while it holds the shard, cleared when it has woken */
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
/** Takes the shard for the calling thread. false: another thread holds it. */
bool shard_enter(struct shard *s);
/** Gives it back: a thread that waits, or the poller. Runs first what other threads handed over, handlers and callbacks
 * included. */
void shard_leave(struct shard *s);
/**
 * Gives it back: a thread that does not wait. Runs no handler, callback or destructor of the application. Sends the
 * calls and answers that other threads handed over, and wakes the poller for the rest. `left`: there is some in any
 * case.
 */
void shard_leave_quietly(struct shard *s, bool left);
const char *shard_find_handler(void);
/** The identity of the calling thread: the address of its thread-local pointer. */
uintptr_t shard_thread_mark(void);
struct fiber *shard_find_fiber(void);
/** The request of the calling fiber or blocking handler; NULL in inline handlers and callbacks. */
const struct far_req *shard_request(void);
/** Any thread, after it put something into a ring of the shard: polls the shard, or wakes the thread that sleeps on it.
 * Runs nothing of the application on this thread. */
void shard_notify(struct shard *s);
/** Any thread: a handler of a one-way message that is counted in `oneways_n` has returned. */
static inline void oneway_ended(struct shard *s)
{
	atomic_fetch_sub_explicit(&s->oneways_n, 1, memory_order_release); /* pairs with outstanding() */
}
/** Any thread: hands over a task. */
void shard_add_task(struct shard *s, struct shard_task *task);

/** Any thread: wakes the thread that sleeps on the shard's queues. */
static inline void shard_wake(struct shard *s)
{
	s->queues[0].ops->wake(s->queues[0].q);
}

/* loop.c */
unsigned shard_pass(struct shard *s);
/** A burst of one queue. Returns packets. */
unsigned shard_receive(struct shard *s, struct shard_queue *sq);
/** Sends what was committed. */
static inline void shard_flush(struct shard *s)
{
	s->queues[0].ops->flush(s->queues[0].q);
	if (unlikely(s->others_dirty))
		queues_flush(s);
}
/** Mail of the control thread; one pass in 64 reads it. */
unsigned shard_take_mail(struct shard *s);
unsigned shard_take_cancels(struct shard *s);
unsigned shard_take_tasks(struct shard *s);
/** Starts the calls that other threads handed over, in order, up to the first entry that cannot be started or is no
 * call. Runs nothing of the application. */
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

/** After an empty pass, when the next one may be late. */
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
/** One step of idling after a pass that found nothing. `awaiting`: the thread waits for an answer. true: it is to
 * sleep. */
bool idler_step(struct shard *s, struct idler *i, bool awaiting);
/** Sleeps until woken, a timer is due, or `until`. The caller holds the shard throughout. */
void shard_sleep(struct shard *s, uint64_t until);
/**
 * Waits until the future is done or until `until`: a fiber parks, a thread polls the shard when it can. Not in an
 * inline handler. 0, or why a fiber returned early: -ECANCELED (its caller gave up, or the agent stops), -ENOMEM (no
 * record for its open request, or for the wait). -EDEADLK: a thread outside of fibers, and the shard is stepped.
 */
int shard_wait(struct shard *s, struct far_future *f, uint64_t until);
/** Main function of the poller. */
void *poller_main(void *shard);

/** State of a stepped shard between its turns. All zero at first. */
struct shard_turns {
	struct idler idler;
	bool asleep; /* armed: the next turn is due when a queue is woken, or at the time that shard_turn() returned */
	uint64_t turns, work;
};
/**
 * One turn of a shard without a poller: a full pass; once it has been idle for as long as a poller polls, it arms the
 * queues and sleeps. No thread holds the shard between turns. Returns when the next turn is due, ns absolute: now, when
 * there was something to do. Until it sleeps it polls: the caller calls it when a packet arrives.
 */
uint64_t shard_turn(struct shard *s, struct shard_turns *t);

/* dispatch.c */
/** Reads the arguments of a request, calls its handler, and settles the answer. `strings[0, cap)` is room for the texts
 * of the arguments. The thread of the handler. */
void dispatch_typed(struct far_req *req, const uint8_t *body, uint64_t len, char *strings, size_t cap);
void dispatch_message(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len);
/** Bytes of an answer that the caller takes. */
static inline uint64_t dispatch_limit(const struct far_req *req)
{
	return req->record ? req->record->limit : req->session->message_max;
}
/** Sends what the handler has answered so far, if it has. */
void dispatch_flush(struct far_req *req);
/** Detaches the request from its record: the owner of the record answers it. */
void dispatch_detach(struct far_req *req);
/** The same, and hands the record, which has the answer, to the shard. */
void dispatch_finish(struct far_req *req);
/** Answers with an error: through the record, or at once. */
void dispatch_error(struct far_req *req, enum far_status status, enum far_executed executed, int32_t code,
		    const char *text, size_t len);
/** The function of these hashes; NULL: the request was refused. */
const struct function *dispatch_find(struct far_req *req, const struct head_hash *hash);
/** Runs a request's handler and sends its answer. The body is readable until it returns. */
void dispatch(struct shard *s, struct session *se, const struct shm_head *h, const uint8_t *body, uint64_t len,
	      uint64_t waited);
/** The same for any session, SESSION_HELD included. */
void dispatch_checked(struct shard *s, struct session *se, const struct shm_head *h, const uint8_t *body, uint64_t len,
		      uint64_t waited);

/* reply.c */
/** Sends an answer; on -ENOBUFS (no bulk memory now) keeps it and sends it later. Never fails: an answer that cannot be
 * kept becomes an error. */
void answer_send(struct shard *s, struct session *se, uint32_t call, uint32_t gen, const struct function *fn,
		 bool hashed, const void *data, size_t len);
/** The same without keeping: 0, -ENOBUFS, -EAGAIN. For an answer that a handler gives while it runs. */
int answer_now(const struct far_req *req, const void *data, size_t len);
/** Writes the error text of an answer of `len` bytes that finds no memory; returns its length. Any thread. */
size_t answer_no_memory(char text[FAR_ERR_TEXT_MAX], size_t len);
void answer_error(struct shard *s, struct session *se, uint32_t call, uint32_t gen, enum far_status status,
		  enum far_executed executed, int32_t code, const char *text, size_t len);
/** Header-only packet. */
void answer_bare(struct shard *s, struct session *se, enum head_type type, enum far_executed executed, uint32_t call,
		 uint32_t gen);
/** Sends a cancel, which may be lost. */
void answer_cancel(struct shard *s, struct session *se, uint32_t call, uint32_t gen, unsigned flags);
/** Sends a record's answer, or keeps it until there is memory; then frees the record. */
void answer_deferred(struct shard *s, struct far_deferred *d);
/** Sends a record's answer: 0, -ENOBUFS, -EAGAIN, -EPIPE. */
int answer_send_record(struct shard *s, struct session *se, const struct far_deferred *d, unsigned flags);
/** Sends a packet that has a ring slot of its own: 0, or why not now. */
int answer_packet(struct shard *s, struct session *se, const struct shm_head *h, const void *data, size_t len);
/** The ring has no slot for an answer: the peer exceeds its credits, or returns none. Its session is taken down. */
void answer_no_room(struct shard *s, struct session *se);
void answer_fill_head(uint8_t *head, const struct far_req *req);
/** Sends answers of backpressured sessions, then runs their queued requests. */
unsigned answer_resume(struct shard *s);
void answer_pause_request(struct shard *s, struct session *se, const struct shm_head *h, const struct nic_pkt *pkt);
void answer_drop_all(struct shard *s, struct session *se);

/* deferred.c */
struct far_deferred *deferred_alloc(struct shard *s, struct session *se, uint32_t call, uint32_t gen,
				    const struct function *fn, bool hashed);
void deferred_free(struct shard *s, struct far_deferred *d);
/** Room for an answer of `len` bytes in the record; NULL: an error was put there instead. Its owner, any thread. */
void *deferred_room(struct far_deferred *d, size_t len);
void deferred_error(struct far_deferred *d, enum far_status status, enum far_executed executed, int32_t code,
		    const char *text, size_t len);
/** Hands the record, its answer filled in, to the shard. Any thread. FAR_CANCELLED: the caller no longer waits. */
enum far_status deferred_finish(struct far_deferred *d);
/** Puts a record among the answers to be sent. Any thread. */
void deferred_push(struct shard *s, struct far_deferred *d);
/** Sends the deferred answers that other threads finished; returns how many. */
unsigned deferred_drain(struct shard *s);
/** The same, but for those whose end runs callbacks of the application: they stay. */
unsigned deferred_drain_quietly(struct shard *s);
/** Cancels an open request, deferred or queued. false: there is none. */
bool deferred_cancel(struct shard *s, struct session *se, uint32_t call, uint32_t gen);
void deferred_all_gone(struct shard *s, struct session *se);

/* session.c */
static inline uint32_t session_index(const struct shard *s, uint32_t worker, uint32_t shard)
{
	return shard * s->world + worker;
}
/** Prefetches the session of a coming call, 2 × SESSION_PREFETCH_AHEAD calls ahead; and, half as many ahead, the
 * queue's state of its peer. */
#define SESSION_PREFETCH_AHEAD 4u
static inline void session_set_info(const struct shard *s, uint32_t worker, uint32_t shard)
{
	__builtin_prefetch(&s->sessions[session_index(s, worker, shard)], 1);
}
static inline void session_prefetch_queue(const struct shard *s, uint32_t worker, uint32_t shard)
{
	const struct session *se = &s->sessions[session_index(s, worker, shard)];
	if (se->state == SESSION_UP && se->q->ops->prefetch)
		se->q->ops->prefetch(se->q, se->peer);
}
/** Puts it into shard.known; `worker` and `shard` are set. */
void session_list_in(struct shard *s, struct session *se);
/** Hands a packet to the session's queue, as its tx_commit(). */
static inline int session_commit(struct shard *s, const struct session *se, struct nic_tx *tx)
{
	if (unlikely(se->port))
		queues_touched(s, se->port);
	return se->q->ops->tx_commit(se->q, tx);
}
/** True if an answer of the peer is due: to a call, a one-way message, a fragment. */
bool session_owes(const struct shard *s, const struct session *se);
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
/** A pool of `n` things: address space alone. false: none is left. */
bool shard_pool_init(struct shard_pool *pool, size_t n, size_t size);
void shard_pool_fini(struct shard_pool *pool);
/** The next thing of the pool, which has one for each session. */
void *shard_pool_carve(struct shard_pool *pool, size_t size);
/** Sends answers and calls that wait for room. */
unsigned session_resume(struct shard *s);
void session_on_mail(struct shard *s, const struct mail *mail);
void session_protocol_error(struct shard *s, struct session *se);
void session_close_all(struct shard *s);

/**
 * The head of a packet that is being written. Its fields are stored one by one: a head assembled on the stack and
 * copied would be read in wider pieces than it was written in, which stalls (perf/NOTES.md, "heads").
 */
static inline struct shm_head *head_at(uint8_t *bytes)
{
	return (struct shm_head *)(void *)bytes;
}

/** memcpy(); a body of exactly one line, the usual one, without a call. */
static inline void copy_body(void *dst, const void *src, size_t len)
{
	if (len == FAR_LINE_PAYLOAD)
		__builtin_memcpy(dst, src, FAR_LINE_PAYLOAD);
	else if (len)
		__builtin_memcpy(dst, src, len);
}

/** Name of the inline handler or callback that calls, of any shard; NULL: none, or a fiber. */
static inline const char *shard_in_handler(void)
{
	return likely(!shard_context_top()) ? NULL : shard_find_handler();
}

/** The fiber that calls; NULL: none, or an inline handler inside it. */
static inline struct fiber *shard_in_fiber(void)
{
	return likely(!shard_context_top()) ? NULL : shard_find_fiber();
}

/** True in a handler of any kind, and in a callback. */
static inline bool shard_serving(void)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		if (c->handler || c->fiber || c->req)
			return true;
	return false;
}

/** True if the calling thread holds the shard. Nearly always a thread holds one shard at most. */
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
