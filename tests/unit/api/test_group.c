/* SPDX-License-Identifier: BSD-3-Clause */
/** Barrier and all-gather at their members. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"
#include "core/spawn.h"

#include <string.h>

enum { WORKERS = 3 };

static struct member {
	struct shard_task task;
	unsigned rank;
	const char *const *names; /* NULL: all */
	size_t n;
	uint64_t timeout_ns;
	bool gathers;
	bool done;
	enum far_status status;
	struct far_val out;
	struct far_err err;
} members[WORKERS];

static void setup(void)
{
	agents_begin(WORKERS, NULL);
	memset(members, 0, sizeof members);
	for (unsigned i = 0; i < WORKERS; i++)
		members[i].rank = i;
}

TestSuite(api_group, .init = setup, .fini = agents_end);

static void member_main(void *arg)
{
	struct member *m = arg;
	struct far_val v = far_int(10 + (int)m->rank);
	struct far_agent *a = agents[m->rank];
	m->status = m->gathers ? far_all_gather(a, m->names, m->n, &v, m->timeout_ns, &m->out, &m->err)
			       : far_barrier(a, m->names, m->n, m->timeout_ns, &m->err);
	m->done = true;
}

static void member_task(struct shard *s, struct shard_task *task)
{
	cr_assert_eq(fiber_spawn(s, member_main, task), 0);
}

static void begin(unsigned rank)
{
	members[rank].done = false;
	members[rank].task.run = member_task;
	shard_add_task(agents[rank]->shards[0], &members[rank].task);
}

static void turns(unsigned n)
{
	while (n--)
		agents_turn();
}

/* Turns until the members of these ranks have returned. */
static void all_done(unsigned first, unsigned n)
{
	unsigned done = 0;
	for (unsigned left = 200000; left && done < n; left--) {
		agents_turn();
		done = 0;
		for (unsigned i = first; i < first + n; i++)
			done += members[i].done;
	}
	cr_assert_eq(done, n, "%u of %u have returned", done, n);
}

Test(api_group, a_barrier_ends_with_the_last)
{
	begin(2);
	begin(0);
	turns(2000);
	cr_assert(!members[0].done && !members[2].done);
	begin(1);
	all_done(0, WORKERS);
	for (unsigned i = 0; i < WORKERS; i++)
		cr_assert_eq(members[i].status, FAR_OK, "%s", members[i].err.text);
}

Test(api_group, values_come_in_the_order_of_ranks)
{
	static const char *const some[] = {"w2", "w1"};
	for (unsigned i = 1; i < WORKERS; i++) {
		members[i].names = some;
		members[i].n = 2;
		members[i].gathers = true;
		begin(i);
	}
	all_done(1, 2);
	for (unsigned i = 1; i < WORKERS; i++) {
		cr_assert_eq(members[i].status, FAR_OK, "%s", members[i].err.text);
		cr_assert_eq(far_len(&members[i].out), 2u);
		for (unsigned k = 0; k < 2; k++)
			cr_assert_eq(far_list_get(&members[i].out, k)->u.i, 11 + (int)k);
		far_val_fini(&members[i].out);
	}
}

static void expect_round(void)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		members[i].timeout_ns = 0;
		begin(i);
	}
	all_done(0, WORKERS);
	for (unsigned i = 0; i < WORKERS; i++)
		cr_assert_eq(members[i].status, FAR_OK, "%s", members[i].err.text);
}

/* One is missing at the deadline. Expect it named, and its own call of that round refused; the next round is the same
 * for all. */
Test(api_group, a_missing_worker_is_named)
{
	expect_round();
	members[0].timeout_ns = members[1].timeout_ns = FAR_MS;
	begin(0);
	begin(1);
	all_done(0, 2);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(members[i].status, FAR_TIMEOUT, "%s", members[i].err.text);
		cr_assert_eq(strncmp(members[i].err.text, "far_barrier: ", 13), 0, "%s", members[i].err.text);
		cr_assert(strstr(members[i].err.text, "\"w2\""), "%s", members[i].err.text);
	}
	begin(2);
	all_done(2, 1);
	cr_assert_eq(members[2].status, FAR_TIMEOUT, "%s", members[2].err.text);
	cr_assert(strstr(members[2].err.text, "the other workers have left this round"), "%s", members[2].err.text);
	expect_round();
}

static void refused(void)
{
	static const char *const without[] = {"w1", "w2"}, *const twice[] = {"w0", "w1", "w0"},
				 *const unknown[] = {"w0", "w9"}, *const many[] = {"w0", "w1", "w2", "w0"};
	struct far_agent *a = agents[0];
	cr_assert_eq(far_barrier(NULL, NULL, 0, 0, &err), FAR_SHUTDOWN);
	cr_assert_eq(far_barrier(a, without, 0, 0, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "far_barrier: no workers"), "%s", err.text);
	cr_assert_eq(far_barrier(a, without, 2, 0, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "\"w0\" itself is not among the workers; add it"), "%s", err.text);
	cr_assert_eq(far_all_gather(a, twice, 3, NULL, 0, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "far_all_gather: \"w0\" is named twice"), "%s", err.text);
	cr_assert_eq(far_barrier(a, unknown, 2, 0, &err), FAR_UNKNOWN_WORKER);
	cr_assert_eq(far_barrier(a, many, 4, 0, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "4 workers of a group of 3"), "%s", err.text);
	a->dynamic = true;
	cr_assert_eq(far_barrier(a, NULL, 0, 0, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "name the workers"), "%s", err.text);
	a->dynamic = false;
	const char *const self[] = {"w0"};
	cr_assert_eq(far_barrier(a, self, 1, 0, &err), FAR_OK, "of one alone: %s", err.text);
}

Test(api_group, sets_that_cannot_be)
{
	agents_run(0, refused);
}
