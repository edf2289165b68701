/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds what the calling thread runs in its chain of contexts. Any thread. */
#include "core/context.h"

#include "core/fiber.h"

_Thread_local struct shard_context *shard_context;

#ifndef __x86_64__
struct shard_context *shard_context_top(void)
{
	return shard_context;
}

void shard_context_set(struct shard_context *c)
{
	shard_context = c;
}
#endif

__attribute__((noinline)) uintptr_t shard_thread_mark(void)
{
	return (uintptr_t)&shard_context;
}

const char *shard_find_handler(void)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer) {
		if (c->handler)
			return c->handler;
		if (c->fiber)
			return NULL;
	}
	return NULL;
}

struct fiber *shard_find_fiber(void)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer) {
		if (c->fiber)
			return c->handler ? NULL : c->fiber;
		if (c->handler)
			return NULL;
	}
	return NULL;
}

const struct far_req *shard_request(void)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer) {
		if (c->handler)
			return NULL;
		if (c->fiber)
			return &c->fiber->req;
		if (c->req)
			return c->req;
	}
	return NULL;
}
