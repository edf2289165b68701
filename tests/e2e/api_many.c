/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 24, or as many as there may be. Main thread of each process; handlers on shard threads. */
/** More workers than one has shards, threads or bits of anything small: all join, call each other, hand a reference
 * round, and leave with nothing left. */
#include "check.h"
#include "handlers.h"

static struct far_err err;
static int world;

/* Fetches it and adds its own rank, or has the next worker do so. */
static enum far_status round_of(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *agent = far_req_agent(req);
	struct far_worker_info me;
	struct far_val v;
	struct far_err e;
	far_worker_self(agent, &me);
	int64_t left = args[1].u.i;
	enum far_status status =
		left ? far_rpc_sync_to(agent, (struct far_to){(me.rank + 1) % far_world_size(agent), -1}, "m::round",
				       FAR_ARGS(args[0].u.rref, left - 1), NULL, &v, &e)
		     : far_rref_to_here(args[0].u.rref, 0, &v, &e);
	if (status)
		return far_fail(req, status, e.code, "%s", e.text);
	struct far_val sum = far_int(v.u.i + me.rank);
	return far_return(req, &sum);
}

static const struct far_function functions[] = {
	{"m::echo(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL},
	{"m::round(rref r, int left) -> int", FAR_KIND_FIBER, round_of, NULL},
};
static const struct far_opts opts = {.functions = functions, .functions_n = 2};

int main(void)
{
	struct far_agent *agent = check_join(&opts);
	world = far_world_size(agent);
	CHECK(world == atoi(getenv("WORLD_SIZE")));
	int rank = check_rank();
	struct far_val v;
	struct far_rref *r;
	for (int to = 0; to < world; to++) {
		struct far_worker_info w;
		CHECK_STATUS(far_worker_by_rank(agent, to, &w, &err), FAR_OK, &err);
		CHECK(w.alive && w.rank == to);
		CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){to, -1}, "m::echo", FAR_ARGS(rank * 100 + to), NULL,
					     &v, &err),
			     FAR_OK, &err);
		CHECK(v.u.i == rank * 100 + to);
	}
	if (rank == 0) {
		CHECK_STATUS(
			far_remote_to(agent, (struct far_to){world / 2, -1}, "m::echo", FAR_ARGS(1000), NULL, &r, &err),
			FAR_OK, &err);
		CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){0, -1}, "m::round", FAR_ARGS(r, world - 1), NULL,
					     &v, &err),
			     FAR_OK, &err);
		CHECK(v.u.i == 1000 + world * (world - 1) / 2);
		far_rref_free(r);
	}
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_flush(agent, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	struct far_rref_counts c;
	far_rref_counts_read(agent, &c);
	CHECK(!c.owned && !c.held && !c.forks);
	check_leave(agent);
	return 0;
}
