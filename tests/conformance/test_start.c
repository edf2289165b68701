/* SPDX-License-Identifier: BSD-3-Clause */
/** Starting: A3. Main thread of each process; handlers on shard threads. */
#include "functions.h"

#include <stdio.h>
#include <string.h>

/* A driver by its name: unknown ones are refused, the one that is named carries the calls. The first group must have
 * ended everywhere before the second begins, as a member that cannot open its NIC fails the others. */
CONFORM_BARE(A3, register_rpc_backend_and_set_and_start_rpc_backend)
{
	struct far_opts wrong = {.nic = "stub_backend"};
	FAILS(FAR_INVALID, far_init_rpc(conform_name(rank), rank, WORLD, &wrong, &agent, &err));
	SAYS("stub_backend");
	HOLDS(!agent);
	conform_meet(HERE);
	conform_join(HERE); /* checks the driver */
	IS_INT(CALL(peer(1), "far::add", FAR_ARGS(1, rank)), 1 + rank);
	conform_leave(HERE);
}

CONFORM(A3, reinit)
{
	struct far_agent *second = NULL;
	OK(far_barrier(agent, NULL, 0, 0, &err));
	FAILS(FAR_ALREADY_INITIALIZED, far_init_rpc(conform_name(rank), rank, WORLD, NULL, &second, &err));
	SAYS("already initialized");
	HOLDS(!second);
	IS_INT(CALL(peer(1), "far::add", FAR_ARGS(1, 2)), 3);
}

/* ---- another group of the same processes ---- */

static struct far_agent *other_group(void)
{
	static char url[64];
	struct far_opts opts = conform_opts;
	struct far_agent *a = NULL;
	if (rank == 0)
		conform_publish(HERE, conform_own_port(HERE));
	while (!conform_published(0))
		conform_nap(FAR_MS);
	snprintf(url, sizeof url, "tcp://%s:%d", conform_host(), (int)conform_published(0));
	opts.init_method = url;
	opts.group = "another";
	opts.nic = "udp";
	OK(far_init_rpc(conform_name(rank), rank, WORLD, &opts, &a, &err));
	return a;
}

static void barriers_of(struct far_agent *a)
{
	for (int i = 0; i < 3; i++)
		OK(far_barrier(a, NULL, 0, 0, &err));
}

/* A group of the same processes does not make calls of this one possible. */
CONFORM_BARE(A3, pg_init_no_rpc_init)
{
	struct far_agent *other = other_group();
	barriers_of(other);
	FAILS(FAR_SHUTDOWN, far_barrier(NULL, NULL, 0, 0, &err));
	SAYS("RPC has not been initialized");
	FAILS(FAR_SHUTDOWN, far_shutdown(NULL, 0, &err));
	SAYS("RPC has not been initialized");
	OK(far_shutdown(other, FAR_FOREVER, &err));
}

CONFORM_BARE(A3, init_pg_then_rpc)
{
	struct far_agent *other = other_group();
	conform_join(HERE);
	IS_INT(CALL(peer(1), "far::add", FAR_ARGS(2, rank)), 2 + rank);
	barriers_of(other);
	conform_leave(HERE);
	OK(far_shutdown(other, FAR_FOREVER, &err));
}

CONFORM_BARE(A3, init_rpc_then_pg)
{
	conform_join(HERE);
	struct far_agent *other = other_group();
	IS_INT(CALL(peer(1), "far::add", FAR_ARGS(2, rank)), 2 + rank);
	barriers_of(other);
	conform_leave(HERE);
	barriers_of(other);
	OK(far_shutdown(other, FAR_FOREVER, &err));
}

/* ---- a group of one ---- */

static void alone(const struct operands *o)
{
	if (rank != 0)
		return;
	OK(far_init_rpc("me", 0, 1, &conform_opts, &agent, &err));
	HOLDS(far_world_size(agent) == 1);
	o->is(HERE, CALL("me", "c::my_function", FAR_ARGS(o->make(1), o->make(2), o->make(3))), 6);
	o->is(HERE, TAKE(ASYNC("me", "c::my_function", FAR_ARGS(o->make(1), o->make(2), o->make(3)))), 6);
	o->is(HERE, FETCH_LAST(REMOTE("me", "c::my_function", FAR_ARGS(o->make(1), o->make(2), o->make(3)))), 6);
	conform_flushed(HERE);
	conform_leave(HERE);
}

CONFORM_BARE(A3, world_size_one)
{
	alone(&dense);
}

CONFORM_BARE(X5, world_size_one_sparse)
{
	alone(&sparse);
}

/* Joining, a call, leaving, as every test does it. */
CONFORM(A3, dist_init_decorator)
{
	struct far_worker_info self;
	far_worker_self(agent, &self);
	HOLDS(self.rank == rank && far_world_size(agent) == WORLD);
	IS_FULL(CALL(peer(1), "far::add", FAR_ARGS(full(2, 2, 1), 1)), 2, 2, 2);
}

CONFORM_BARE(A3, init_rpc_twice)
{
	for (int i = 0; i < 2; i++) {
		conform_join(HERE);
		IS_INT(CALL(peer(1), "far::add", FAR_ARGS(i, rank)), i + rank);
		conform_leave(HERE);
	}
}

/* ---- options ---- */

static void refused(int as, int world, const struct far_opts *opts, enum far_status want, const char *part)
{
	FAILS(want, far_init_rpc(conform_name(rank), as, world, opts, &agent, &err));
	SAYS(part);
	HOLDS(!agent);
}

CONFORM_BARE(A3, wrong_types)
{
	static const struct far_function broken = {"f(", FAR_KIND_INLINE, add, NULL},
					 kindless = {"c::f() -> int", FAR_KIND_NONE, add, NULL};
	struct far_opts o = {.shards = FAR_SHARDS_MAX + 1};
	refused(rank, WORLD, &o, FAR_INVALID, "shards");
	o = (struct far_opts){.init_method = "nowhere://"};
	refused(rank, WORLD, &o, FAR_INVALID, "nowhere");
	o = (struct far_opts){.functions = &broken, .functions_n = 1};
	refused(rank, WORLD, &o, FAR_INVALID, "f(");
	o = (struct far_opts){.functions = &kindless, .functions_n = 1};
	refused(rank, WORLD, &o, FAR_INVALID, "kind");
	refused(WORLD, WORLD, NULL, FAR_INVALID, "rank");
	refused(rank, -1, NULL, FAR_INVALID, "world");
}

CONFORM_BARE(A3, cannot_infer_backend_from_options)
{
	struct far_opts o = {.nic = ";;"};
	enum far_status status = far_init_rpc(conform_name(rank), rank, WORLD, &o, &agent, &err);
	FAILS(FAR_INVALID, status);
	SAYS("nic");
	HOLDS(!agent);
}

/* Options of one driver given to another. */
CONFORM_BARE(A3, mismatched_type_for_options)
{
	struct far_opts o = {.nic = "udp:role=server"};
	enum far_status status = far_init_rpc(conform_name(rank), rank, WORLD, &o, &agent, &err);
	FAILS(FAR_INVALID, status);
	SAYS("role=server");
	HOLDS(!agent);
}

CONFORM_BARE(A3, infer_backend_from_options)
{
	struct far_worker_info info;
	conform_opts.nic = NULL;
	OK(far_init_rpc(conform_name(rank), rank, WORLD, &conform_opts, &agent, &err));
	OK(far_worker_by_name(agent, peer(1), &info, &err));
	/* The best that both have. */
	HOLDS((strcmp(info.nic, "shm") == 0) == conform_is_here(peer_rank(1)) && info.nic_why[0]);
	IS_INT(CALL(peer(1), "far::add", FAR_ARGS(1, 1)), 2);
	conform_leave(HERE);
}

CONFORM_BARE(A3, set_and_get_num_worker_threads)
{
	struct far_limits limits;
	conform_opts.blocking_threads = 27;
	conform_opts.fibers = 99;
	conform_join(HERE);
	far_limits_read(agent, &limits);
	HOLDS(limits.blocking_threads == 27 && limits.fibers == 99);
	conform_leave(HERE);
}

CONFORM_BARE(A3, tensorpipe_set_default_timeout)
{
	conform_opts.rpc_timeout_ns = 123 * FAR_SEC + 456;
	conform_join(HERE);
	HOLDS(far_rpc_timeout_ns(agent) == 123 * FAR_SEC + 456);
	conform_leave(HERE);
}

/* Times are integers of a unit; 0 is the default. */
CONFORM(A3, tensorpipe_options_throw_on_timedelta_timeout)
{
	uint64_t before = far_rpc_timeout_ns(agent);
	OK(far_set_rpc_timeout_ns(agent, 0));
	HOLDS(far_rpc_timeout_ns(agent) == FAR_RPC_TIMEOUT_NS);
	OK(far_set_rpc_timeout_ns(agent, before));
}
