/* SPDX-License-Identifier: BSD-3-Clause */
/** The workloads' functions: a parameter server that answers when all have come.
 * Handlers: shard threads, fibers and threads of the agent. */
#include "functions.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRAINERS_MAX = 8 };

/* Waits for `trainers` gradients, adds them up, and answers all with the sum. */
static struct {
	pthread_mutex_t lock;
	struct far_deferred *open[TRAINERS_MAX];
	int64_t n;
	struct far_val sum;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum far_status add_gradient(const struct far_val *g)
{
	struct sum s;
	if (server.n == 0)
		return far_val_dup(g, &server.sum, NULL);
	enum far_status status = sum_of(&s, &server.sum, g);
	if (status)
		return status;
	far_val_fini(&server.sum);
	status = far_val_dup(&s.value, &server.sum, NULL);
	sum_fini(&s);
	return status;
}

HANDLER(ps_push)
{
	struct far_deferred *d;
	int64_t trainers = args[1].u.i;
	pthread_mutex_lock(&server.lock);
	enum far_status status = trainers > 0 && trainers <= TRAINERS_MAX ? add_gradient(&args[0]) : FAR_BAD_ARGS;
	if (!status)
		status = far_defer(req, &d);
	if (!status)
		server.open[server.n++] = d;
	if (!status && server.n == trainers) {
		for (int64_t i = 0; i < trainers; i++)
			far_deferred_return(server.open[i], &server.sum);
		far_val_fini(&server.sum);
		server.n = 0;
	}
	pthread_mutex_unlock(&server.lock);
	return status;
}

/* What a trainer does at the server's request: so many rounds of its gradient, which is that of its rank and round; the
 * sum of all trainers' comes back. `make` is what gradients look like. */
HANDLER(ps_train)
{
	const struct operands *o = strcmp(args[0].u.s.data, "sparse") == 0 ? &sparse : &dense;
	int me = functions_rank(req);
	int64_t rounds = args[1].u.i, trainers = WORLD - 1;
	for (int64_t i = 0; i < rounds; i++) {
		struct far_val g = o->make((double)(me * (i + 1))), sum;
		struct far_err e;
		enum far_status status = far_rpc_sync_to(far_req_agent(req), far_req_from(req), "c::ps_push",
							 FAR_ARGS(g, trainers), NULL, &sum, &e);
		if (status)
			return fail_with(req, status, &e);
		o->is(HERE, sum, (double)((1 + 2 + 3) * (i + 1)));
	}
	struct far_val v = far_int(rounds);
	return far_return(req, &v);
}

/* ---- arguments with defaults ---- */

/* Each argument beside its keyword, as they arrived. */
HANDLER(assorted)
{
	char text[64];
	snprintf(text, sizeof text, "%s%s", (const char *)args[1].u.s.data, (const char *)args[4].u.s.data);
	struct far_val v = FAR_LIST(args[0].u.i + args[3].u.i, text, args[2].u.f + args[5].u.f);
	return far_return(req, &v);
}
