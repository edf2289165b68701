/* SPDX-License-Identifier: BSD-3-Clause */
/** Who is who, and what names are: A1, A2. Main thread of each process. */
#include "functions.h"

#include <string.h>

CONFORM(A1, worker_id)
{
	struct far_worker_info self, other;
	far_worker_self(agent, &self);
	HOLDS(strcmp(self.name, conform_name(rank)) == 0 && self.rank == rank);
	OK(far_worker_by_name(agent, peer(1), &other, &err));
	HOLDS(other.rank == peer_rank(1));
	FAILS(FAR_UNKNOWN_WORKER, far_worker_by_name(agent, "WorkerUnknown", &other, &err));
	SAYS("WorkerUnknown");
}

CONFORM(A1, get_worker_infos)
{
	struct far_worker_info info;
	HOLDS(far_world_size(agent) == WORLD);
	for (int r = 0; r < WORLD; r++) {
		OK(far_worker_by_rank(agent, r, &info, &err));
		HOLDS(info.rank == r && strcmp(info.name, conform_name(r)) == 0 && info.alive);
	}
}

/* Every kind of call reaches the worker of the given rank. The reference also refuses ranks that are no integers; here
 * the compiler does. Kills: calls, or only those of far_remote_to(), that go to the next rank; a rank taken modulo the
 * world size. */
CONFORM(A1, send_to_rank)
{
	static const int unknown[] = {-1, WORLD, WORLD + 1, 99999};
	struct far_to to = {peer_rank(1), -1};
	struct far_val v, ones = full(2, 2, 1);
	struct far_future *f;
	struct far_rref *r;
	OK(far_rpc_sync_to(agent, to, "far::add", FAR_ARGS(ones, 1), NULL, &v, &err));
	IS_FULL(v, 2, 2, 2);
	OK(far_rpc_async_to(agent, to, "far::add", FAR_ARGS(ones, 1), NULL, &f, &err));
	IS_FULL(TAKE(f), 2, 2, 2);
	OK(far_remote_to(agent, to, "far::add", FAR_ARGS(ones, 1), NULL, &r, &err));
	IS_FULL(FETCH_LAST(r), 2, 2, 2);
	for (to.worker = 0; to.worker < WORLD; to.worker++) {
		OK(far_rpc_sync_to(agent, to, "c::where", FAR_NOARGS, NULL, &v, &err));
		IS_INT(v, to.worker);
		OK(far_rpc_async_to(agent, to, "c::where", FAR_NOARGS, NULL, &f, &err));
		IS_INT(TAKE(f), to.worker);
		OK(far_remote_to(agent, to, "c::where", FAR_NOARGS, NULL, &r, &err));
		IS_INT(FETCH_LAST(r), to.worker);
	}
	for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
		to.worker = unknown[i];
		FAILS(FAR_UNKNOWN_WORKER, far_rpc_sync_to(agent, to, "far::add", FAR_ARGS(ones, 1), NULL, &v, &err));
		FAILS(FAR_UNKNOWN_WORKER, far_rpc_async_to(agent, to, "far::add", FAR_ARGS(ones, 1), NULL, &f, &err));
		FAILS(FAR_UNKNOWN_WORKER, far_remote_to(agent, to, "far::add", FAR_ARGS(ones, 1), NULL, &r, &err));
		HOLDS(err.executed == FAR_EXECUTED_NO && !err.origin[0]);
	}
}

/* What identifies a worker goes there and back, and still leads to it. */
CONFORM(A1, worker_info_pickle)
{
	struct far_worker_info self, again;
	far_worker_self(agent, &self);
	struct far_val v = CALL(peer(1), "far::identity",
				FAR_ARGS(FAR_DICT(FAR_ENTRY("name", self.name), FAR_ENTRY("rank", self.rank),
						  FAR_ENTRY("incarnation", (int64_t)self.incarnation))));
	OK(far_worker_by_name(agent, far_dict_get(&v, "name")->u.s.data, &again, &err));
	HOLDS(again.rank == self.rank && far_dict_get(&v, "rank")->u.i == self.rank);
	HOLDS(again.incarnation == self.incarnation &&
	      (uint64_t)far_dict_get(&v, "incarnation")->u.i == self.incarnation);
	far_val_fini(&v);
}

/* The answer is the rank of the callee. Kills: calls that go to the next rank. */
CONFORM(A1, int_callee)
{
	struct far_val v;
	OK(far_rpc_sync_to(agent, (struct far_to){peer_rank(1), -1}, "c::where", FAR_NOARGS, NULL, &v, &err));
	IS_INT(v, peer_rank(1));
}

/* By the rank that a look-up of the name returns. Kills: far_worker_by_name() that returns another worker's rank. */
CONFORM(A1, add_with_id)
{
	struct far_worker_info info;
	struct far_val v;
	size_t n = (size_t)rank + 1;
	OK(far_worker_by_name(agent, peer(1), &info, &err));
	HOLDS(info.rank == peer_rank(1) && strcmp(info.name, peer(1)) == 0);
	OK(far_rpc_sync_to(agent, (struct far_to){info.rank, 0}, "far::add", FAR_ARGS(full(n, n, 1), full(n, n, 1)),
			   NULL, &v, &err));
	IS_FULL(v, n, n, 2);
	OK(far_rpc_sync_to(agent, (struct far_to){info.rank, 0}, "c::where", FAR_NOARGS, NULL, &v, &err));
	IS_INT(v, peer_rank(1));
}

/* The callee receives the caller's rank. */
CONFORM(A1, expected_src)
{
	IS_NONE(CALL(peer(1), "c::set_value", FAR_ARGS(rank)));
	struct far_future *f = functions_wait_for_value();
	HOLDS(f);
	IS_INT(TAKE(f), peer_rank(WORLD - 1));
}

CONFORM(A1, owner_equality)
{
	struct far_rref *a = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2)),
			*b = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2)),
			*c = REMOTE(peer(2), "far::add", FAR_ARGS(1, 2));
	HOLDS(far_rref_owner(a).worker == far_rref_owner(b).worker);
	HOLDS(strcmp(far_rref_owner_name(a), far_rref_owner_name(b)) == 0);
	HOLDS(far_rref_owner(a).worker != far_rref_owner(c).worker);
	HOLDS(strcmp(far_rref_owner_name(a), far_rref_owner_name(c)) != 0);
	HOLDS(!far_rref_same(a, b));
	far_rref_free(a);
	far_rref_free(b);
	far_rref_free(c);
}

/* ---- A2 ---- */

CONFORM_BARE(A2, duplicate_name)
{
	FAILS(FAR_NOT_UNIQUE, far_init_rpc("duplicate_name", rank, WORLD, &conform_opts, &agent, &err));
	SAYS("duplicate_name");
	HOLDS(!agent);
}

/* Two of four: both sides are notified, and nobody hangs. */
CONFORM_BARE(A2, duplicate_name_2)
{
	const char *name = conform_name(rank % (WORLD - 1));
	enum far_status status = far_init_rpc(name, rank, WORLD, &conform_opts, &agent, &err);
	if (rank % (WORLD - 1) == 0)
		FAILS(FAR_NOT_UNIQUE, status);
	HOLDS(status != FAR_OK && !agent);
}

CONFORM_BARE(A2, invalid_names)
{
	static const char *const bad[] = {"", " ", "abc*", "a b", "a.b", "a/b", "caf\303\251", "a\n"};
	char name[FAR_NAME_MAX + 1];
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		FAILS(FAR_INVALID, far_init_rpc(bad[i], rank, WORLD, &conform_opts, &agent, &err));
		SAYS("name");
		HOLDS(!agent);
	}
	memset(name, 'a', sizeof name - 1);
	name[FAR_NAME_MAX] = 0;
	FAILS(FAR_INVALID, far_init_rpc(name, rank, WORLD, &conform_opts, &agent, &err));
	SAYS("127");
	HOLDS(!agent);
}
