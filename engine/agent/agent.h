/* SPDX-License-Identifier: BSD-3-Clause */
/** struct far_agent, and the functions that the public API shares. Application threads, unless stated otherwise. */
#ifndef FAR_AGENT_AGENT_H
#define FAR_AGENT_AGENT_H

#include "agent/mems.h"
#include "agent/ports.h"
#include "base/group_key.h"
#include "base/must.h"
#include "control/control.h"
#include "core/call.h"
#include "core/idle.h"
#include "core/shard.h"
#include "features/intercept/intercept.h"
#include "value/registry.h"

#include <farcall/farcall.h>
#include <pthread.h>

struct agent_poll;
struct admin;
struct faults;
struct gathers;
struct membership;
struct metrics_added;
struct metrics_http;
struct rref_keep;

/** One membership of this process. All fields but atomics are written at start and stop only, and constant between. */
struct far_agent {
	unsigned shards_n;
	_Atomic uint32_t plain_world; /* `world` once all members are known to have one shard, else 0: agent_route()
				       * needs no lookup then */
	struct shard *shards[FAR_SHARDS_MAX];
	struct ctl *ctl;
	const struct ctl_member *members;
	uint32_t *by_name;               /* hash table of names with open addressing: rank + 1, 0: free */
	uint32_t names_n;                /* entries of by_name, a power of two */
	_Atomic bool named;              /* by_name is complete; release, pairs with agent_find_worker() */
	int world, rank;                 /* dynamic: `world` slots of members */
	bool dynamic;                    /* members come and go: a slot has a member while it is alive */
	_Atomic uint64_t rpc_timeout_ns; /* default timeout of calls; any thread, relaxed */
	_Atomic uint64_t fast_left;      /* the same, if the fast path takes it, else 0 */
	const struct clock_source *clock;
	_Atomic uint64_t incarnation;             /* relaxed: agent_incarnation(); changes with the lease */
	_Atomic uint64_t lease;                   /* ctl_config.lease; TIME_NEVER: none */
	uint64_t started_ns;                      /* by `clock` */
	struct admin *admin;                      /* admin socket; NULL: none */
	struct metrics_http *http;                /* exporter over HTTP; NULL: none */
	unsigned metrics_port;                    /* its TCP port; 0: none */
	struct metrics_added *added;              /* metrics of the application, under the lock of added.c */
	struct group_key key;                     /* unused with security=none */
	enum far_progress progress;               /* who polls the shards */
	bool cpu_scarce;                          /* less than one CPU for each shard: agent/quota.h */
	bool stepped;                             /* no threads: agent/env.h */
	struct agent_poll *poll;                  /* FAR_PROGRESS_CALLER: in place of pollers; else NULL */
	void *env_ctx;                            /* stepped: agent_env.ctx */
	struct shard_turns turns[FAR_SHARDS_MAX]; /* stepped: state between the turns of each shard */
	struct registry registry;
	struct loaded_plugin *plugins; /* under the lock of api/plugin.c */
	struct gathers *gathers;
	struct rref_keep *kept; /* references written as bytes: builtin/rref_bytes.h */
	struct faults *faults;
	enum far_leaks leaks;
	char *profile; /* FAR_PROFILE, malloced; NULL: none */
	bool serves;   /* far_serve() was called: own references to own values are no leaks */
	uint64_t rref_retry_ns;
	struct far_limits limits; /* options with defaults applied */
	size_t fiber_stack_bytes;
	_Atomic(struct blocking_pool *) blocking; /* made with the first blocking handler; NULL: none. Release */
	_Atomic(struct membership *) membership;  /* api/members.c; made with the first use. Release */
	pthread_mutex_t kinds_lock;               /* creation of fiber pools, `blocking` and `membership` */
	struct ports ports;
	struct mems mems;
	struct rendezvous_out
		*zero_copies; /* zero-copy sends of ended shards: memory that devices use until the ports are closed */
	_Atomic(struct serving *) serving; /* a thread is in far_serve(); serve.c */
	_Atomic bool stopped;              /* far_stop() was called */
	_Atomic bool has_work; /* between far_serve() and far_shutdown(); from far_stop() on, so that the group
				* does not end before the thread in far_serve() wakes. Release */
	pthread_t pollers[FAR_SHARDS_MAX]; /* threads of the shards */
	unsigned pollers_n;                /* started ones */
	struct far_agent *next;            /* list of this process's agents */
	char identity[512];
	char name[FAR_NAME_MAX];
};

/** This worker's present incarnation. Any thread. */
static inline uint64_t agent_incarnation(const struct far_agent *a)
{
	return atomic_load_explicit(&((struct far_agent *)(uintptr_t)a)->incarnation, memory_order_relaxed);
}

/** Sets the default timeout. Any thread. */
static inline void agent_set_timeout(struct far_agent *a, uint64_t ns)
{
	bool fast = ns >= CALL_NEAR_NS && (ns < CALL_UNSTAMPED || ns == FAR_FOREVER) && !intercept_any();
	atomic_store_explicit(&a->rpc_timeout_ns, ns, memory_order_relaxed);
	atomic_store_explicit(&a->fast_left, fast ? ns : 0, memory_order_relaxed);
}

/** Interceptors were added or removed: no call of the agents that have some takes the fast path. `agent`: or NULL, all
 * of the process. Any thread. */
void agents_intercepted(struct far_agent *agent);

/** What interceptors are shown of a call that is prepared: `seen` is readable until it is started. */
static inline void agent_show(struct call_start *start, struct call_extra *seen, enum far_call_mode mode,
			      const char *function, const struct far_val *args, size_t n)
{
	if (likely(!intercept_any()))
		return;
	*seen = (struct call_extra){.mode = (uint8_t)mode, .function = function, .args = args, .args_n = n};
	start->extra = seen;
}

/** Rank of the worker of that name, or −1 with `err` filled. */
int agent_find_worker(const struct far_agent *a, const char *name, struct far_err *err);
/** True if a worker of the dynamic group has this rank, [0, world), now. */
static inline bool agent_has_member(const struct far_agent *a, int rank)
{
	return atomic_load_explicit(&a->members[rank].alive, memory_order_acquire) != 0;
}
/** A member's name, for any thread; valid until the end of the enclosing block. */
#define AGENT_NAME(agent, rank)                                                                                        \
	((agent)->dynamic ? ctl_member_name(&(agent)->members[rank], (char[FAR_NAME_MAX]){""})                         \
			  : (agent)->members[rank].name)
/** Error for a destination that does not exist. */
enum far_status agent_refuse_to(const struct far_agent *a, struct far_to to, struct far_err *err);
/** Checks that worker and shard of a destination exist. */
static inline enum far_status agent_check_to(const struct far_agent *a, struct far_to to, struct far_err *err)
{
	if (to.worker >= 0 && to.worker < a->world &&
	    (uint32_t)to.shard + 1 <= atomic_load_explicit(&a->members[to.worker].shards, memory_order_relaxed) &&
	    (!a->dynamic || agent_has_member(a, to.worker)))
		return FAR_OK;
	return agent_refuse_to(a, to, err);
}

/** Creates the fiber pool or the threads that handlers of this kind need. Not on a shard. */
enum far_status agent_prepare_kind(struct far_agent *a, enum far_kind kind, struct far_err *err);
enum far_status agent_prepare_class(struct far_agent *a, const struct far_class *cls, struct far_err *err);
/** The same for all handlers of the options; fini after every call has ended. */
enum far_status agent_kinds_init(struct far_agent *a, const struct far_opts *opts, struct far_err *err);
void agent_kinds_fini(struct far_agent *a);

/** The shard of the calling thread: whose handler or callback runs, or that the thread holds; else one selected by the
 * thread's number. */
struct shard *agent_shard_of_thread(const struct far_agent *a);

/** Local and remote shard of a call. */
struct call_route {
	struct shard *via;
	uint8_t shard;
};
enum far_status agent_route_slow(const struct far_agent *a, struct far_to to, const struct far_call_opts *opts,
				 uint64_t hash, struct call_route *out, struct far_err *err);
/** Checks `to` and opts->via. Where they select no shard, `hash` (of the function's name, or the message's id) does. */
static inline enum far_status agent_route(const struct far_agent *a, struct far_to to, const struct far_call_opts *opts,
					  uint64_t hash, struct call_route *out, struct far_err *err)
{
	if (unlikely((uint32_t)to.worker >= atomic_load_explicit(&a->plain_world, memory_order_relaxed) ||
		     (uint32_t)to.shard + 1 > 1 || (opts && opts->via)))
		return agent_route_slow(a, to, opts, hash, out, err);
	*out = (struct call_route){a->shards[0], 0};
	return FAR_OK;
}

/** Sets FAR_NO_FUNCTION for agent_find_function(), with a similar name that is registered. */
__attribute__((cold)) void agent_no_function(const struct far_agent *a, const char *name, struct far_err *err);
/** A registered function by name, its first overload; NULL, with FAR_NO_FUNCTION in `err`: there is none. */
static inline const struct function *agent_find_function(const struct far_agent *a, const char *name,
							 struct far_err *err)
{
	const struct function *fn = name ? registry_find(&a->registry, name) : NULL;
	if (__builtin_expect(!fn, 0))
		agent_no_function(a, name, err);
	return fn;
}

/** Largest message that a worker accepts, in bytes. */
static inline uint64_t agent_message_max(const struct far_agent *a, uint32_t worker)
{
	uint64_t max = atomic_load_explicit(&a->members[worker].message_bytes_max, memory_order_relaxed);
	return max ? max : FAR_MSG_BYTES_MAX;
}

/** `config.place` of a shard: the receive buffer for a rendezvous reply. */
void *message_reply_buffer(call_done_fn *done, void *user, size_t len);

/** Gives a shard back that this thread holds. Inside a handler it does nothing: the thread's outer loop has the shard.
 */
static inline void agent_shard_release(struct shard *s)
{
	if (shard_held(s) && !shard_serving())
		shard_leave_quietly(s, false);
}

/** FAR_WOULD_DEADLOCK with the handler's name when the calling thread runs a handler that must not wait. */
enum far_status agent_may_wait(const char *what, struct far_err *err);

/** Sets deadline and relative timeout of a call. */
void agent_set_deadline(const struct far_agent *a, struct shard *s, const struct far_call_opts *opts,
			struct call_start *start);

/** Starts a call through a shard: directly if the thread holds or gets the shard, else by the submission ring. Any
 * thread. */
enum far_status agent_start(struct shard *s, struct call_start *start, struct far_err *err);
/**
 * agent_start() for a call that is waited for: under back-pressure it waits, polling the shard when the thread can hold
 * it, until the call's deadline (FAR_TIMEOUT, executed NO).
 */
enum far_status agent_start_waiting(struct shard *s, struct call_start *start, struct far_err *err);
/** A call of a function or method, as the application makes it; the arguments are the application's. */
struct typed_call {
	struct far_agent *agent;
	const struct function *fn; /* the first overload; NULL: agent_find_function() found none */
	struct far_rref *object;   /* of a method; NULL: a function */
	struct far_to to;
	const struct far_val *args;
	size_t args_n;
	const struct far_call_opts *opts; /* NULL: the defaults */
};
/**
 * Checks a typed call with its arguments, and calls `take`, for which `start` and its memory are valid. Other than
 * FAR_OK: `take` was not called. FAR_PENDING: the arguments hold references, see rref_prepare().
 */
typedef void agent_take_call(void *ctx, const struct call_start *start);
enum far_status agent_prepare_rpc(const struct typed_call *c, agent_take_call *take, void *ctx, struct far_err *err);
/** Status and text for an error of shard_wait() or fiber_pause(). */
enum far_status agent_wait_error(int error, enum far_executed executed, struct far_err *err);
/** Status and text for an error of shard_call() or submit_put(). */
enum far_status agent_start_error(struct shard *s, int error, const struct call_start *start, struct far_err *err);

/** Bytes of a failed future: name of the origin and text, each with its NUL. A name, not a rank, because the future may
 * outlive the agent. */
struct failure {
	char origin[FAR_NAME_MAX];
	char text[FAR_ERR_TEXT_MAX];
};

/** Completes a future of this agent with the completion of its call. On the shard. */
void agent_complete(struct far_future *f, const struct completion *o);
/** call_start.done of a call with a future that is marked FUTURE_CALL; `user` is the future. */
void agent_done_future(void *user, const struct completion *o);
/**
 * Starts a call and waits until its future is done, holding the progress token throughout if it is free. Other than
 * FAR_OK: `f` is not done, or the call was not started.
 */
enum far_status agent_call_and_wait(struct shard *s, struct call_start *start, struct far_future *f,
				    struct far_err *err);
/** Waits until a future of any kind is done or the absolute time `until`. The thread may wait (agent_may_wait()). */
int agent_wait_future(struct far_future *f, uint64_t until);
/** Absolute end of a wait that begins now. `unbounded`: no call's deadline completes the future. */
uint64_t agent_wait_limit(uint64_t timeout_ns, bool unbounded);
/** Status and text of a wait that has reached its limit. */
enum far_status agent_pending(const struct far_future *f, struct far_err *err);
/** Checks the arguments of a wait for several futures. */
enum far_status agent_check_futures(const char *what, struct far_future *const *f, size_t n, struct far_err *err);
/** The shard that completes all pending futures of f[0, n); NULL: there is no single one. */
struct shard *agent_common_shard(struct far_future *const *f, size_t n);
/** True if one of the pending futures (`all`: each of them) is completed by the application only. */
bool agent_unbounded(struct far_future *const *f, size_t n, bool all);
/** Error for a full pool of futures. */
enum far_status agent_no_future(struct far_err *err);

/** A value that is copied for a future: the copy may fail, the completion with it cannot. */
struct packed {
	size_t len;
	struct far_buf *buf; /* NULL: in `bytes` */
	bool tree;           /* `buf` is a tree: the value holds references */
	alignas(64) uint8_t bytes[FUTURE_INLINE];
};
enum far_status agent_pack(const struct far_val *v, struct packed *p, struct far_err *err);
/** Complete a future from inside listener `l` (NULL: outside of one), with a packed value or with `err`. */
void agent_complete_value(struct future_listener *l, struct far_future *f, const struct packed *p);
void agent_complete_error(struct future_listener *l, struct far_future *f, const struct far_err *err);

/** Runs the callback of a continuation, and completes `child`, from inside listener `l` (NULL: outside of one). */
void agent_run_then(struct future_listener *l, far_then_fn *fn, void *user, struct far_future *parent,
		    struct far_future *child);

/** Adds a future to the innermost scope of this thread, if any. A process without scopes pays for one load. */
extern __attribute__((visibility("hidden"))) _Atomic uint32_t scopes_active;
void scope_gather_slow(struct far_future *f);
static inline void scope_gather(struct far_future *f)
{
	if (__builtin_expect(atomic_load_explicit(&scopes_active, memory_order_relaxed) != 0, 0))
		scope_gather_slow(f);
}

/** Ends the start of a call that completes the future (FUTURE_CALL): passes the future to the caller, or frees it. */
static inline enum far_status agent_started(enum far_status status, struct far_future *f, struct far_future **out)
{
	if (__builtin_expect(status != FAR_OK, 0)) {
		future_drop(f);
		return status;
	}
	scope_gather(f);
	*out = f;
	return FAR_OK;
}

/** agent_call_and_wait() for a future with a receive buffer (recv_buf_set()); recv_buf_move() copies a result that
 * arrived in memory of the engine. */
enum far_status agent_call_and_wait_recv_buf(struct shard *s, struct call_start *start, struct far_future *f,
					     struct far_err *err);
/** Ends the fan-out of a pending future to which only the caller has a reference; returns once the application's memory
 * is not used any more. */
void fanout_release(struct far_future *f);
/** Adds how long a call had to an error text that ends in "time-out". `left` 0: unknown. */
void agent_add_duration(char text[FAR_ERR_TEXT_MAX], uint64_t left);
/** agent_call_and_wait(), then agent_result_last(): of a future to which only the caller has a reference. */
enum far_status agent_call_and_take(struct shard *s, struct call_start *start, struct far_future *f,
				    struct far_val *out, struct far_err *err);
/** Adds the time of a call that this thread waited for while it held the shard: its future does not know the time.
 * Returns FAR_TIMEOUT. */
enum far_status agent_timed_out(uint64_t left, struct far_err *err);
/** Reads the result of a done future. */
enum far_status agent_result(struct far_future *f, struct far_val *out, struct far_err *err);
/** Reads the result and drops the caller's reference, the only one. */
enum far_status agent_result_last(struct far_future *f, struct far_val *out, struct far_err *err);

#endif
