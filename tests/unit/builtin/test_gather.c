/* SPDX-License-Identifier: BSD-3-Clause */
/** far::gather at the gathering worker: requests as members send them, and as they do not. The test's thread, which
 * steps the agents. */
#include "agents_fixture.h"
#include "base/limits.h"
#include "builtin/gather.h"

#include <string.h>

enum { WORKERS = 3 };

static void setup(void)
{
	agents_begin(WORKERS, NULL);
}

TestSuite(gather, .init = setup, .fini = agents_end);

static const uint8_t all[] = {0, 0, 1, 0, 2, 0}, two[] = {0, 0, 2, 0};

/* The request of a member to a worker, with `rank` as its value. */
static struct far_future *request_to(const char *to, unsigned rank, const void *ranks, size_t bytes, int64_t skipped,
				     int64_t timeout)
{
	struct far_future *f;
	const struct far_val args[] = {far_bytes(ranks, bytes), far_int(skipped), far_int(timeout),
				       far_int((int64_t)rank)};
	cr_assert_eq(far_rpc_async(agents[rank], to, gather_function_name, args, 4, NULL, &f, &err), FAR_OK, "%s",
		     err.text);
	for (unsigned i = 0; i < 300; i++)
		agents_turn();
	return f;
}

static struct far_future *request(unsigned rank, int64_t skipped)
{
	return request_to("w0", rank, all, sizeof all, skipped, 0);
}

static void expect_list(struct far_future *f, unsigned n, int64_t last)
{
	struct far_val out;
	agents_until(f);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
	cr_assert(far_len(&out) == n && far_list_get(&out, n - 1)->u.i == last);
	far_val_fini(&out);
	far_future_free(f);
}

static void expect_error(struct far_future *f, enum far_status status, const char *text)
{
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), status, "%s", err.text);
	cr_assert(strstr(err.text, text), "%s", err.text);
	far_future_free(f);
}

/* Sets that overlap have rounds of their own, and so has each round after the other. */
Test(gather, sets_and_rounds)
{
	struct far_future *zero = request(0, 0), *early = request(0, 0), *two_zero, *two_two;
	two_zero = request_to("w0", 0, two, sizeof two, 0, 0);
	two_two = request_to("w0", 2, two, sizeof two, 0, 0);
	expect_list(two_zero, 2, 2);
	expect_list(two_two, 2, 2);
	struct far_future *one = request(1, 0), *last = request(2, 0);
	cr_assert_not(far_future_done(early), "it is in the second round");
	expect_list(zero, WORKERS, 2);
	expect_list(one, WORKERS, 2);
	expect_list(last, WORKERS, 2);
	one = request(1, 0);
	last = request(2, 0);
	expect_list(early, WORKERS, 2);
	expect_list(one, WORKERS, 2);
	expect_list(last, WORKERS, 2);
}

/* Two gave up the first round before they sent anything. Expect all in the second one. */
Test(gather, rounds_that_are_skipped)
{
	for (unsigned i = 0; i < WORKERS; i++) /* each has a round, from which it counts */
		far_future_free(request(i, 0));
	struct far_future *first = request(0, 0), *second = request(0, 0), *one = request(1, 1), *two_ = request(2, 1);
	expect_list(second, WORKERS, 2);
	expect_list(one, WORKERS, 2);
	expect_list(two_, WORKERS, 2);
	cr_assert_not(far_future_done(first));
	far_future_cancel(first, NULL);
	far_future_free(first);
}

static const char malformed[] = "far::gather: malformed list of ranks, or this shard does not gather for it";

/* No worker but those of the list, ascending, and the first of them gathers. */
Test(gather, lists_that_are_wrong)
{
	static const uint8_t odd[] = {0, 0, 1}, twice[] = {0, 0, 0, 0, 1, 0}, down[] = {1, 0, 0, 0},
			     beyond[] = {0, 0, 1, 0, 3, 0}, many[] = {0, 0, 1, 0, 2, 0, 3, 0},
			     negative[] = {0, 128, 1, 0};
	expect_error(request_to("w0", 1, odd, sizeof odd, 0, 0), FAR_BAD_ARGS, malformed);
	expect_error(request_to("w0", 1, "", 0, 0, 0), FAR_BAD_ARGS, malformed);
	expect_error(request_to("w0", 1, twice, sizeof twice, 0, 0), FAR_BAD_ARGS, malformed);
	expect_error(request_to("w0", 1, down, sizeof down, 0, 0), FAR_BAD_ARGS, malformed);
	expect_error(request_to("w0", 1, beyond, sizeof beyond, 0, 0), FAR_BAD_ARGS, malformed);
	expect_error(request_to("w0", 1, many, sizeof many, 0, 0), FAR_BAD_ARGS, malformed);
	expect_error(request_to("w0", 1, negative, sizeof negative, 0, 0), FAR_BAD_ARGS, malformed);
	expect_error(request_to("w0", 1, two, sizeof two, 0, 0), FAR_BAD_ARGS, malformed); /* it is not of the set */
	expect_error(request_to("w1", 1, all, sizeof all, 0, 0), FAR_BAD_ARGS, malformed); /* w0 gathers */
	struct far_future *f[] = {request(0, 0), request(1, 0), request(2, 0)};
	for (unsigned i = 0; i < WORKERS; i++)
		expect_list(f[i], WORKERS, 2);
}

/* Expect who is missing, at the limit of each request. */
Test(gather, limits)
{
	struct far_future *one = request_to("w0", 1, all, sizeof all, 0, FAR_MS), *zero = request(0, 0);
	agents_pass(2 * FAR_MS);
	expect_error(one, FAR_TIMEOUT, "2 of 3 workers have joined this round; missing within the time-out: \"w2\"");
	cr_assert_not(far_future_done(zero), "it has no limit");
	struct far_future *last = request(2, 0);
	expect_list(zero, WORKERS, 2);
	expect_list(last, WORKERS, 2);
}

/* A member that is lost ends the round of those that wait for it. */
Test(gather, a_lost_member)
{
	struct far_future *zero = request(0, 0), *one = request(1, 0);
	struct ctl_member *m = (struct ctl_member *)(uintptr_t)&agents[0]->members[2];
	uint64_t alive = atomic_exchange(&m->alive, 0);
	agents_pass(30 * FAR_MS);
	expect_error(zero, FAR_PEER_LOST, "2 of 3 workers have joined this round; dead is w2");
	expect_error(one, FAR_PEER_LOST, "dead is w2");
	atomic_store(&m->alive, alive);
}

Test(gather, the_end_of_the_gathering_worker)
{
	struct far_future *one = request(1, 0);
	gathers_end(agents[0]->shards[0]);
	expect_error(one, FAR_SHUTDOWN, "1 of 3 workers have joined this round; the agent that gathers was shut down");
}
