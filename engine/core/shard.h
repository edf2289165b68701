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
#include "base/limits.h"
#include "core/context.h"
#include "core/feature.h"
#include "core/latency.h"
#include "core/queues.h"
#include "core/timer.h"
#include "core/trace.h"
#include "nic/nic.h"
#include "sync/future.h"
#include "sync/mailbox.h"
#include "sync/progress.h"
#include "sync/submit.h"
#include "value/encoding.h"

#include <assert.h>
#include <farcall/agent.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct blocking_pool;
struct call;
struct call_cancel_msg;
struct call_site;
struct clock_source;
struct far_deferred;
struct line_plan;
struct faults;
struct fiber;
struct fiber_pool;
struct fiber_wait;
struct paused_requests;
struct private_body;
struct registry;
struct rref_shard;
struct session;
struct worker_functions;
struct worker_incarnation;

/** A task of another thread for the shard: run once, in the next pass. The memory belongs to `run` from then on. */
struct shard_task {
	struct shard_task *next;                               /* of the shard's list, once it is pushed */
	void (*run)(struct shard *s, struct shard_task *task); /* set by the pushing thread */
};

/** Address space for one thing of each session. A page becomes memory when it is first used. */
struct shard_pool {
	char *base;
	size_t bytes;
	uint32_t carved; /* things [0, carved) have been used */
};

/** Written by the holder of the shard, but for busy_refusals and packets_dropped of other threads; read by any thread.
 */
struct shard_counters {
	/* a small call, of either side: one line */
	alignas(64) _Atomic uint64_t calls_sent;
	_Atomic uint64_t calls_completed, calls_ended; /* slots given back: those in use are calls_sent - calls_ended */
	_Atomic uint64_t calls_returned;               /* calls_ended whose completion has returned */
	_Atomic uint64_t requests_received, replies_sent, bytes_sent, bytes_received;

	_Atomic uint64_t calls_failed, calls_timed_out, calls_retried;
	_Atomic uint64_t requests_active; /* records in use */
	_Atomic uint64_t calls_waiting;   /* for their session to be set up */
	_Atomic uint64_t replies_late, requests_duplicate, packets_dropped, busy_refusals, wakeups;
	_Atomic uint64_t oneways_sent, oneways_received, oneways_dropped;
	_Atomic uint64_t rendezvous_sent, rendezvous_received, rendezvous_active, bytes_by_reference;
	/* One-way messages, fragments and messages in fragments: begun, and acknowledged or given up. A shutdown waits
	 * until the two are equal. */
	_Atomic uint64_t sends_begun, sends_ended;
	_Atomic uint64_t hedges_sent, hedges_won;
};
static_assert(offsetof(struct shard_counters, calls_failed) == 64, "a small call touches one line of counters");

/** Single writer, any reader. */
static inline void counter_add(_Atomic uint64_t *c, uint64_t n)
{
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
	/* gcc compiles the atomic load and store to three instructions. */
	__asm__("addq %1, %0" : "+m"(*(uint64_t *)(void *)c) : "er"(n) : "cc");
#else
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
#endif
}

/** The same, after all earlier stores of this thread. */
static inline void counter_add_last(_Atomic uint64_t *c, uint64_t n)
{
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
	__asm__("addq %1, %0" : "+m"(*(uint64_t *)(void *)c) : "er"(n) : "cc", "memory");
#else
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_release);
#endif
}

/** Any thread. Every writer of the counter must use it. */
static inline void counter_add_shared(_Atomic uint64_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

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
	call_done_fn *future_done; /* the same as the `done` of a call, whose `user` is the future; NULL: none */
	/** Writes the name of a worker, of FAR_NAME_MAX bytes. */
	void (*name_of)(const struct far_agent *agent, uint32_t rank, char *name);
	/** True if a worker is a member now, by another incarnation than this. NULL: never. */
	bool (*renewed)(const struct far_agent *agent, uint32_t rank, uint64_t incarnation);
	uint32_t rank;
	uint64_t incarnation; /* changes by lease_renew() alone */
	/** Until when this worker is a member, ns absolute. Writer: the control thread; of LEASE_OVER, a shard too.
	 * NULL: it has no lease. */
	_Atomic uint64_t *lease;
	struct faults *faults;  /* may be NULL */
	uint64_t rref_retry_ns; /* 0: the default */
	uint32_t sample_every;  /* the latency of one call in so many is measured; 0: of none */
};

#define SHARD_YOUNG_MAX 1024u

/** A slot in shard.aging. Its call may have ended since, and another begun. */
struct aging_call {
	uint32_t slot;
	uint64_t since; /* ns */
};

/** Grouped by cache line in the order of a pass. A pass over an idle shard touches the groups "pass", "first queue",
 * "hand-over" and the consumer's line of `submit`; a small call besides "calls", and its handler "handler". */
struct shard {
	/* ---- Pass and calls: one line. The holder of the shard, as all down to "hand-over". ---- */
	alignas(64) uint32_t passes;
	uint32_t others_left;     /* passes until the schedule of the other queues is read; 1: the next */
	uint32_t poll_due;        /* bits of the features that have something to do in the next pass */
	uint32_t poll_idle;       /* bits of the features that have something to do when nothing else is */
	uint32_t backpressured_n; /* sessions whose answers wait for memory, and sessions whose calls wait for room */
	uint32_t calls_used;      /* slots [0, calls_used) were ever taken */
	struct fiber *ready_head; /* fibers whose wait is over */
	struct session *sessions; /* by session_index() */
	struct call *calls;       /* slots [0, calls_n) */
	struct call *calls_free;  /* first free one; NULL: the next one that was never taken */
	bool others_dirty;        /* the other queues are to be flushed */
	bool hold_calls;          /* a feature may hold calls back: no session has credits */
	bool hold_answers;        /* likewise answers: sessions are marked SESSION_HELD */
	bool shown;               /* interceptors see requests without fields: sessions are marked SESSION_SHOWN */
	bool waiting_slot_held;   /* the call that is being started has a waiting slot: it was in the ring */
	bool armed;               /* the queue's wake-up is armed: the poller sleeps on it without holding the shard */

	/* ---- Fast path: one line ---- */
	alignas(64) struct future_cache futures;
	struct call_site *sites; /* SHARD_SITES, by the address of the name */
	struct line_plan *plans; /* SHARD_PLANS, by the number of the function */
	uint32_t young_n;        /* slots in `young` */
	uint32_t world;          /* workers of the group */
	uint32_t calls_n;        /* slots */
	/* Calls that were pending at a reading of the clock: aging_n from aging_first on, oldest first, in a ring of
	 * calls_n. */
	uint32_t aging_first, aging_n;
	int32_t due_left; /* calls until the next call_due(); below 0: it is due */

	/* ---- First queue: one line; the others follow ---- */
	alignas(64) struct shard_queue queues[FAR_PORTS_MAX]; /* best port first; [0, queues_n) */

	/* ---- Calls: a line of counters, and half of the next ---- */
	struct shard_counters counters;

	/* ---- Handler: two lines ---- */
	alignas(64) struct shard_context context;
	const struct registry *registry;
	uint64_t now;                       /* ns, last reading of the clock */
	struct values_arena arena;          /* `strings`, and what else the arguments of the handler that runs need */
	struct worker_functions *functions; /* by worker */
	uint32_t now_pass;                  /* value of `passes` when `now` was read */

	/* ---- Rarely: sessions, records, sleep ---- */
	struct private_body *body; /* that is dispatched: its memory need not be copied; NULL: none */
	struct fiber **ready_tail;
	uint32_t young[SHARD_YOUNG_MAX]; /* [0, young_n): slots of calls since the last reading of the clock */
	struct aging_call *aging;
	uint32_t *call_copies; /* by slot: of retry, index of the call's copy */
	unsigned queues_n;
	uint32_t others_step;         /* value of others_left when it was set */
	uint32_t draining_n;          /* of backpressured_n, sessions whose calls wait for room */
	uint32_t undetached_n;        /* of `unsent_mails`, with a MAIL_DETACHED: no session opens before it is sent */
	struct session *known;        /* all sessions that were ever used */
	struct session *unsent_mails; /* sessions with mails that found the mailbox full, oldest first */
	_Atomic uint32_t
		*oneways_queued; /* by session; any thread: one-way messages on the way to its queue, or in it */
	_Atomic uint8_t *refers; /* by session; any thread: its driver has references; writer: the shard */
	struct waiting_slots *waiting_taken; /* by session */
	_Atomic uint32_t *waiting_returned;  /* by session: waiting slots that were given back; writer: the shard */
	uint64_t awake_until;   /* ns; until then the thread that polls does not sleep: shard_keep_awake() */
	uint64_t waiting_until; /* ns, no deadline of a waiting call is earlier; TIME_NEVER: none */
	struct worker_incarnation *incarnations; /* by worker */
	struct far_deferred *answered;           /* by the inline handler that has just returned; NULL: by none */
	struct far_deferred *deferred_free;
	struct far_deferred *deferred; /* records [0, deferred_n) */
	uint32_t deferred_n;
	bool stopped;
	bool evicted;      /* the lease of this worker has run out: no session opens before lease_renew() */
	bool send_stalled; /* a fragment found no bulk memory */
	struct rref_shard *rrefs;
	void *state[SHARD_FEATURES_MAX]; /* of features, by place */
	const uint8_t *answer_fields;    /* of the answer whose call is being completed; NULL: none */
	uint32_t answer_fields_bytes;
	char *strings;                         /* FAR_STRINGS_BYTES_MAX, for the arguments of the handler that runs */
	struct call_cancel_msg *cancels_taken; /* off `cancels`; to be run when what came before them in the ring has */
	struct latency latency;
	struct shard_pool paused;
	struct paused_requests *paused_free;
	struct shard_config config;
	struct feature_hooks hooks;     /* of config.features */
	struct timer_wheel wheel;       /* of struct shard_timer */
	struct shard_timer lease_timer; /* armed while there is a lease and it has not run out */
	struct timer_wheel call_wheel;  /* of struct call, which has no room for a function: its slot is one line */

	/* ---- Hand-over, any thread: one line that each pass reads ---- */
	alignas(64) _Atomic(struct far_deferred *) answers; /* deferred answers, newest first; any thread pushes */
	_Atomic(struct fiber_wait *) resumed;               /* waits that other threads ended, newest first */
	_Atomic(struct shard_task *) tasks;                 /* tasks of other threads, newest first */
	_Atomic(struct call_cancel_msg *) cancels;          /* cancels of other threads, newest first */
	_Atomic uint32_t tasks_n;                           /* tasks in `tasks` or running */
	_Atomic uint32_t producers;  /* threads that are handing something over: the shard is not freed meanwhile */
	_Atomic bool acks_requested; /* a thread waits until everything has been acknowledged */
	_Atomic bool stop;           /* the poller is to end */
	_Atomic bool poller_asleep;  /* writer: the poller; set while it holds the shard, cleared when it has woken */

	/* ---- Any thread, rarely ---- */
	alignas(64) _Atomic(struct fiber_pool *) fibers; /* made when the first fiber handler is registered */
	/* Fan-outs ever begun and ended; writers: any thread, the shard. The difference is under way or handed over. */
	_Atomic uint32_t fanouts_begun, fanouts_ended;
	/* One-way messages whose handlers have left the burst: a shutdown waits for them, since no caller does. */
	_Atomic uint32_t oneways_n;
	_Atomic uint32_t sessions_opened; /* ever; init waits for all of them */
	struct shard_trace *trace;        /* rare events */
	struct mailbox mail_in, mail_out;
	struct progress progress;
	struct submit_ring submit;
};
static_assert(offsetof(struct shard, passes) == 0 && offsetof(struct shard, armed) < 64, "pass: one line");
static_assert(offsetof(struct shard, futures) == 64 && offsetof(struct shard, due_left) < 128, "fast path: one line");
static_assert(offsetof(struct shard, queues) == 128 && sizeof(struct shard_queue) == 64, "a line of each queue");
static_assert(offsetof(struct shard, counters) == 64 * (2 + FAR_PORTS_MAX), "counters follow the queues");
static_assert(offsetof(struct shard, now) == offsetof(struct shard, context) + 56, "context and clock: one line");
static_assert(offsetof(struct shard, now_pass) == offsetof(struct shard, context) + 120, "handler: two lines");
static_assert(offsetof(struct shard, poller_asleep) < offsetof(struct shard, answers) + 64, "hand-over: one line");
static_assert(offsetof(struct shard, fibers) == offsetof(struct shard, answers) + 64, "and nothing else in it");

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
/** A pool of `n` things: address space alone. false: none is left. */
bool shard_pool_init(struct shard_pool *pool, size_t n, size_t size);
void shard_pool_fini(struct shard_pool *pool);
/** The next thing of the pool, which has one for each session. */
void *shard_pool_carve(struct shard_pool *pool, size_t size);
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

#endif
