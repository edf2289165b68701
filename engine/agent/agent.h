/* SPDX-License-Identifier: BSD-3-Clause */
/** The agent behind the public handle. Application threads; everything but `rpc_timeout_ns` is constant between init
 * and shutdown. */
#ifndef FAR_AGENT_AGENT_H
#define FAR_AGENT_AGENT_H

#include "agent/mems.h"
#include "agent/ports.h"
#include "base/group_key.h"
#include "base/must.h"
#include "control/control.h"
#include "core/shard.h"
#include "value/registry.h"

#include <farcall/farcall.h>
#include <pthread.h>

struct faults;
struct gathers;

struct far_agent {
	unsigned shards_n;
	_Atomic uint32_t plain_world; /* `world` once every member is known to have one shard: a route is soon found */
	struct shard *shards[FAR_SHARDS_MAX];
	struct ctl *ctl;
	const struct ctl_member *members;
	uint32_t *by_name; /* open addressing over names_n places: rank + 1 */
	uint32_t names_n;
	_Atomic bool named; /* by_name is filled */
	int world, rank;
	_Atomic uint64_t rpc_timeout_ns;
	const struct clock_source *clock;
	uint64_t incarnation;
	struct group_key key; /* not used with security=none */
	enum far_driver driver;
	bool cpu_scarce;                          /* agent/quota.h */
	bool stepped;                             /* no threads: agent/env.h */
	void *env_ctx;                            /* of a stepped one: agent_env.ctx */
	struct shard_turns turns[FAR_SHARDS_MAX]; /* of a stepped one */
	struct registry registry;
	struct gathers *gathers;
	struct faults *faults;
	enum far_leaks leaks;
	uint64_t rref_retry_ns;
	/* for handlers that wait or block: made with the first of them, under `kinds_lock` */
	struct far_limits limits;
	size_t fiber_stack_bytes;
	_Atomic(struct blocking_pool *) blocking;
	pthread_mutex_t kinds_lock;
	struct ports ports;
	struct mems mems;
	struct large_out *lent; /* of shards that have ended: until the ports are closed */
	pthread_t keepers[FAR_SHARDS_MAX];
	unsigned keepers_n;
	struct far_agent *next; /* list of this process's agents */
	char identity[512];
	char name[FAR_NAME_MAX];
};

/** Rank of a worker, or −1 with `err` filled. */
int agent_find_worker(const struct far_agent *a, const char *name, struct far_err *err);
enum far_status agent_refuse_to(const struct far_agent *a, struct far_to to, struct far_err *err);
static inline enum far_status agent_check_to(const struct far_agent *a, struct far_to to, struct far_err *err)
{
	if (to.worker >= 0 && to.worker < a->world && (uint32_t)to.shard + 1 <= a->members[to.worker].shards)
		return FAR_OK;
	return agent_refuse_to(a, to, err);
}

/** Makes what handlers of this kind need. Not on a shard. */
enum far_status agent_prepare_kind(struct far_agent *a, enum far_kind kind, struct far_err *err);
enum far_status agent_prepare_class(struct far_agent *a, const struct far_class *cls, struct far_err *err);
/** The same for all handlers of the options, and its end, when every call has ended. */
enum far_status agent_kinds_init(struct far_agent *a, const struct far_opts *opts, struct far_err *err);
void agent_kinds_fini(struct far_agent *a);

/** The shard that the calling thread is bound to: whose handler or callback it is in, or that it holds; else one chosen
 * by thread. */
struct shard *agent_shard_of_thread(const struct far_agent *a);

/** The way of a call: through which of our shards to which of the worker's. */
struct route {
	struct shard *via;
	uint8_t shard;
};
enum far_status agent_route_slow(const struct far_agent *a, struct far_to to, const struct far_call_opts *opts,
				 uint64_t hash, struct route *out, struct far_err *err);
/** Checks `to` and `via`; `hash`, of the function's name, or the message's id, chooses where `to` does not. */
static inline enum far_status agent_route(const struct far_agent *a, struct far_to to, const struct far_call_opts *opts,
					  uint64_t hash, struct route *out, struct far_err *err)
{
	if (unlikely((uint32_t)to.worker >= atomic_load_explicit(&a->plain_world, memory_order_relaxed) ||
		     (uint32_t)to.shard + 1 > 1 || (opts && opts->via)))
		return agent_route_slow(a, to, opts, hash, out, err);
	*out = (struct route){a->shards[0], 0};
	return FAR_OK;
}

/** Bytes of a message that a worker takes. */
static inline uint64_t agent_message_max(const struct far_agent *a, uint32_t worker)
{
	uint64_t max = atomic_load_explicit(&a->members[worker].message_bytes_max, memory_order_relaxed);
	return max ? max : FAR_MSG_BYTES_MAX;
}

/** `config.place` of the shard. */
void *message_place(call_done_fn *done, void *user, size_t len);

/** FAR_WOULD_DEADLOCK, naming the handler, when the calling thread is in one. */
enum far_status agent_may_wait(const char *what, struct far_err *err);

/** Fills in deadline and time left of a call. */
void agent_set_deadline(const struct far_agent *a, struct shard *s, const struct far_call_opts *opts,
			struct call_start *start);

/** Starts a call of any thread through a shard: straight if it holds or gets the shard, else through the submission
 * ring. */
enum far_status agent_start(struct shard *s, struct call_start *start, struct far_err *err);
/**
 * agent_start() for a call that is waited for: back-pressure is waited out, by driving when the thread can, until the
 * call's deadline (FAR_TIMEOUT, executed NO).
 */
enum far_status agent_start_waiting(struct shard *s, struct call_start *start, struct far_err *err);
/**
 * Checks a typed call, its arguments included, and hands it to `take`, which may use `start` and what it points to
 * until it returns. Other than FAR_OK: `take` was not called. FAR_PENDING: the arguments hold references,
 * rref_prepare().
 */
typedef void agent_take_call(void *ctx, const struct call_start *start);
enum far_status agent_prepare_rpc(struct far_agent *a, struct far_to to, const char *function,
				  const struct far_val *args, size_t n, const struct far_call_opts *opts,
				  agent_take_call *take, void *ctx, struct far_err *err);
/** The status and text for what shard_wait() or fiber_pause() returned. */
enum far_status agent_wait_error(int error, enum far_executed executed, struct far_err *err);
/** The status and text for what shard_call() or submit_put() returned. */
enum far_status agent_start_error(struct shard *s, int error, const struct call_start *start, struct far_err *err);

/** Completes a future of this agent with what its call ended with. On the shard. */
void agent_complete(struct far_future *f, const struct outcome *o);
/** `done` of a call whose result goes to a future, of which it holds a reference. */
void agent_done_future(void *user, const struct outcome *o);
/**
 * Starts a call and waits until its future is done, under one hold of the token when it can be had. Other than FAR_OK:
 * `f` is not done, or the call was not started.
 */
enum far_status agent_call_and_wait(struct shard *s, struct call_start *start, struct far_future *f,
				    struct far_err *err);
/** Waits until a future of any kind is done or `until` has come. The thread may wait (agent_may_wait()). */
int agent_wait_future(struct far_future *f, uint64_t until);
/** The end of a wait that begins now. `unbounded`: no call's deadline ends it by itself. */
uint64_t agent_wait_limit(uint64_t timeout_ns, bool unbounded);
/** What a wait says whose limit has passed. */
enum far_status agent_pending(const struct far_future *f, struct far_err *err);
/** Checks what several futures are asked for. */
enum far_status agent_check_futures(const char *what, struct far_future *const *f, size_t n, struct far_err *err);
/** The shard that completes those of f[0, n) that are pending, if it is one for all; NULL otherwise. */
struct shard *agent_common_shard(struct far_future *const *f, size_t n);
/** Does one of the pending ones, or with `all` every one, end by the application only. */
bool agent_unbounded(struct far_future *const *f, size_t n, bool all);
/** No future is free. */
enum far_status agent_no_future(struct far_err *err);

/** Complete a future from inside listener `l` (NULL: from none), with a value or with what `err` says. The value must
 * have been packed: that may fail, completing does not. */
struct packed {
	size_t len;
	struct far_buf *buf; /* NULL: in bytes */
	bool tree;           /* of a value that holds references, in `buf` */
	alignas(64) uint8_t bytes[FUTURE_INLINE];
};
enum far_status agent_pack(const struct far_val *v, struct packed *p, struct far_err *err);
void agent_complete_value(struct future_listener *l, struct far_future *f, const struct packed *p);
void agent_complete_error(struct future_listener *l, struct far_future *f, const struct far_err *err);

/** Has the innermost scope of this thread, if any, gather a future. A process without scopes pays for one look. */
extern _Atomic uint32_t scopes_active;
void scope_gather_slowly(struct far_future *f);
static inline void scope_gather(struct far_future *f)
{
	if (__builtin_expect(atomic_load_explicit(&scopes_active, memory_order_relaxed) != 0, 0))
		scope_gather_slowly(f);
}

/** The same for a future with into_set(). The result may have come to memory of the engine: into_move(). */
enum far_status agent_call_and_wait_into(struct shard *s, struct call_start *start, struct far_future *f,
					 struct far_err *err);
/** Ends the fan-out that would complete this pending future, when only the caller's reference keeps it, and returns
 * when the application's memory is not touched any more. */
void fanout_let_go(struct far_future *f);
/** Result of a done future. */
enum far_status agent_result(struct far_future *f, struct far_val *out, struct far_err *err);
/** The same, giving the caller's reference back: nobody else has one. */
enum far_status agent_result_last(struct far_future *f, struct far_val *out, struct far_err *err);

#endif
