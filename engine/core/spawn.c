/* SPDX-License-Identifier: BSD-3-Clause */
/** Fibers of the process itself: each is the handler of a one-way message that no peer has sent. Shard thread. */
#include "core/fiber.h"

#include "base/must.h"
#include "core/context.h"
#include "core/fiber_pool.h"
#include "core/request.h"
#include "core/shard.h"
#include "core/spawn.h"
#include "value/registry.h"

#include <errno.h>

/* The body of the message whose handler the fiber runs. */
struct spawned {
	void (*fn)(void *arg);
	void *arg;
};
static_assert(sizeof(struct spawned) <= FAR_LINE_PAYLOAD, "it is kept in the fiber");

static void run_spawned(struct far_req *req, const void *data, size_t len, void *user)
{
	const struct spawned *spawned = data;
	(void)req;
	(void)len;
	(void)user;
	spawned->fn(spawned->arg);
}

static const struct message_handler handler = {.fn = run_spawned, .kind = FAR_KIND_FIBER, .name = "spawned"};

int fiber_spawn(struct shard *s, void (*fn)(void *arg), void *arg)
{
	const struct fiber_pool *p = fiber_pool_of(s);
	const struct spawned spawned = {fn, arg};
	struct far_req req = {.shard = s, .name = handler.name, .time_left = FAR_FOREVER, .answer = ANSWER_ONEWAY};
	shard_own(s);
	debug_must(!shard_in_fiber());
	if (!p || s->stopped || (!p->free && p->used == p->n))
		return -EAGAIN;
	fiber_start(&req, &handler, (const uint8_t *)(const void *)&spawned, sizeof spawned);
	return 0;
}
