/* SPDX-License-Identifier: BSD-3-Clause */
/** Scopes: contexts without a shard in the thread's chain of contexts. Only the thread that began a scope accesses it.
 */
#include "agent/agent.h"
#include "base/error.h"
#include "base/must.h"
#include "core/context.h"

#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES   1024u
#define CHUNK_FUTURES ((CHUNK_BYTES - 2 * sizeof(void *)) / sizeof(void *))

/* Gathered futures, in the order of the calls, each with a reference. */
struct chunk {
	struct far_buf *self;
	struct chunk *next;
	struct far_future *futures[CHUNK_FUTURES];
};
static_assert(sizeof(struct chunk) == CHUNK_BYTES, "a chunk fills its buffer");

struct scope {
	struct shard_context context;
	/* The handler or fiber that began it, NULL: none. Calls of others on this thread are not gathered. */
	const char *handler;
	const struct fiber *fiber;
	struct chunk *first, *last;
	uint32_t in_last; /* futures in the last chunk */
	bool missed;      /* a future was not gathered: no memory */
};
static_assert(sizeof(struct scope) <= sizeof(struct far_scope), "struct far_scope is too small");

/* Active scopes of the process. Relaxed: a thread needs to see only its own. */
_Atomic uint32_t scopes_active;

/* True if it is in this thread's chain. */
static bool active(const struct scope *s)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		if (c == &s->context)
			return true;
	return false;
}

static void leave(struct scope *s)
{
	struct shard_context *c = shard_context_top();
	if (c == &s->context) {
		shard_context_set(s->context.outer);
	} else {
		while (c->outer != &s->context)
			c = c->outer;
		c->outer = s->context.outer;
	}
	atomic_fetch_sub_explicit(&scopes_active, 1, memory_order_relaxed);
}

enum far_status far_scope_begin(struct far_scope *scope)
{
	struct scope *s = (struct scope *)(void *)scope;
	if (!s || active(s))
		return FAR_INVALID;
	memset(s, 0, sizeof *s);
	s->handler = shard_in_handler();
	s->fiber = shard_in_fiber();
	s->context.scope = s;
	s->context.outer = shard_context_top();
	shard_context_set(&s->context);
	atomic_fetch_add_explicit(&scopes_active, 1, memory_order_relaxed);
	return FAR_OK;
}

static struct far_future **room(struct scope *s)
{
	if (!s->last || s->in_last == CHUNK_FUTURES) {
		struct far_buf *buf = buf_alloc(sizeof(struct chunk));
		if (!buf)
			return NULL;
		struct chunk *c = buf_data(buf);
		c->self = buf;
		c->next = NULL;
		*(s->last ? &s->last->next : &s->first) = c;
		s->last = c;
		s->in_last = 0;
	}
	return &s->last->futures[s->in_last++];
}

void scope_gather_slow(struct far_future *f)
{
	struct scope *s = NULL;
	for (const struct shard_context *c = shard_context_top(); c && !s; c = c->outer)
		s = c->scope;
	if (likely(!s) || s->handler != shard_in_handler() || s->fiber != shard_in_fiber())
		return;
	struct far_future **at = room(s);
	if (!at) {
		s->missed = true;
		return;
	}
	buf_ref(&f->head);
	*at = f;
}

/* Waits for a future, and keeps the first error. */
static void wait_for(struct far_future *f, uint64_t until, enum far_status *first, struct far_err *err)
{
	enum far_status status = FAR_OK;
	struct far_err own;
	if (!future_done(f)) {
		status = agent_may_wait("far_scope_end", &own);
		int error = status ? 0 : agent_wait_future(f, until);
		if (unlikely(error))
			status = agent_wait_error(error, FAR_EXECUTED_MAYBE, &own);
	}
	if (!status)
		status = future_done(f) ? agent_result(f, NULL, &own) : agent_pending(f, &own);
	if (status && !*first) {
		*first = status;
		if (err)
			*err = own;
	}
}

/* Frees all references; with `first` not NULL, after a wait for each. */
static void drain(struct scope *s, uint64_t until, enum far_status *first, struct far_err *err)
{
	for (struct chunk *c = s->first, *next; c; c = next) {
		size_t n = c == s->last ? s->in_last : CHUNK_FUTURES;
		next = c->next;
		for (size_t i = 0; i < n; i++) {
			if (first)
				wait_for(c->futures[i], until, first, err);
			buf_unref(&c->futures[i]->head);
		}
		buf_unref(c->self);
	}
	s->first = s->last = NULL;
}

enum far_status far_scope_end(struct far_scope *scope, uint64_t timeout_ns, struct far_err *err)
{
	struct scope *s = (struct scope *)(void *)scope;
	enum far_status status = FAR_OK;
	if (!s || !active(s))
		return err_set(
			err, FAR_INVALID,
			"far_scope_end: the scope is not active in this thread; it is ended once, by the thread that "
			"began it");
	leave(s);
	drain(s, agent_wait_limit(timeout_ns, false), &status, err);
	if (!status && s->missed)
		status = err_set(err, FAR_RESOURCE,
				 "no memory to gather all futures of the scope; the gathered ones are complete");
	return status;
}

void far_scope_abandon(struct far_scope *scope)
{
	struct scope *s = (struct scope *)(void *)scope;
	if (!s || !active(s))
		return;
	leave(s);
	drain(s, 0, NULL, NULL);
}
