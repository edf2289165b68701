/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The chain of contexts of a thread: the shards that it holds, and the handler, fiber or scope that it runs. Any
 * thread, each its own chain; the one thread-local pointer of the engine leads to it.
 */
#ifndef FAR_CORE_CONTEXT_H
#define FAR_CORE_CONTEXT_H

#include "base/must.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct far_req;
struct fiber;
struct scope;
struct shard;

/** What the thread that holds a shard is doing: the one thread-local pointer leads here. */
struct shard_context {
	struct shard *shard;         /* NULL: a thread that runs a blocking handler, or a scope */
	struct shard_context *outer; /* the thread holds shards of several agents, or has scopes */
	const char *handler; /* name of the inline handler or callback that runs; NULL: none, waiting is allowed */
	struct fiber *fiber; /* that runs: a wait parks it; NULL: none */
	const struct far_req *req; /* of the blocking handler that runs */
	struct scope *scope;       /* gathers the futures of this thread; NULL: the context is no scope's */
};

/*
 * A flow of control may go on on another thread after a wait, so the address of the thread-local pointer must not be
 * kept across one. On x86-64 it is an offset to a segment register; elsewhere compilers keep it, and it is hidden from
 * them.
 */
#ifdef __x86_64__
extern _Thread_local struct shard_context *shard_context __attribute__((tls_model("initial-exec")));
static inline struct shard_context *shard_context_top(void)
{
	return shard_context;
}
static inline void shard_context_set(struct shard_context *c)
{
	shard_context = c;
}
#else
struct shard_context *shard_context_top(void);
void shard_context_set(struct shard_context *c);
#endif

const char *shard_find_handler(void);
/** The identity of the calling thread: the address of its thread-local pointer. */
uintptr_t shard_thread_mark(void);
struct fiber *shard_find_fiber(void);
/** The request of the calling fiber or blocking handler; NULL in inline handlers and callbacks. */
const struct far_req *shard_request(void);

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

#endif
