/* SPDX-License-Identifier: BSD-3-Clause */
/** The metrics of a shard: what it lists, and who owns a collection that is late. The test's thread. */
#include "base/clock.h"
#include "core/deferred.h"
#include "features/metrics/collect.h"
#include "rendezvous_fixture.h"

#include <farcall/message.h>

TestSuite(metrics_collect, .init = shard_setup, .fini = shard_teardown);

/* Calls and requests of two peers. Expect them counted by peer, and listed with their state in a debug report alone. */
Test(metrics_collect, calls_and_requests)
{
	static struct result r[3];
	union packet_head first = called(&r[0], FAR_MS), second = called(&r[1], FAR_FOREVER), h;
	answer(called(&r[2], FAR_FOREVER), PACKET_REPLY, 0, 0, "abc");
	put_request(MSG_DEFER, 7, "hello", 5);
	passes(1);
	advance(2 * FAR_MS); /* the first one ends here */
	sent(&h, PACKET_CANCEL);
	for (int debug = 0; debug < 2; debug++) {
		struct metrics_shard *m = metrics_collect_here(shard, debug);
		cr_assert_not_null(m);
		cr_assert(m->world == WORLD && m->now == now_ns);
		cr_assert(m->sessions[SESSION_UP] == 2 && m->sessions_port[0] == 2);
		const struct metrics_peer *p = &m->peers[PEER];
		cr_assert(p->calls == 3 && p->calls_active == 2 && p->up == 1 && p->requests_open == 1);
		cr_assert(p->bytes_sent == 15 && p->counters.bytes_received == 8);
		cr_assert_eq(p->counters.errors[SESSION_ERROR_TIMEOUT], 1u);
		cr_assert(m->peers[OTHER].calls == 0 && m->peers[OTHER].up == 1);
		cr_assert(m->calls_n == (debug ? 2 : 0) && m->requests_n == (debug ? 1 : 0));
		if (debug) {
			unsigned ended = m->calls[0].state == METRICS_CALL_ENDED ? 0 : 1;
			cr_assert_eq(m->calls[ended].state, METRICS_CALL_ENDED);
			cr_assert_eq(m->calls[!ended].state, METRICS_CALL_SENT);
			cr_assert(m->calls[!ended].worker == PEER && m->calls[!ended].message == MSG_ECHO);
			cr_assert_eq(m->calls[!ended].deadline, TIME_NEVER);
			cr_assert_eq(m->requests[0].state, METRICS_REQUEST_DEFERRED);
			cr_assert(m->requests[0].worker == PEER && m->requests[0].deadline == TIME_NEVER);
		}
		metrics_shard_free(m);
	}
	far_deferred_reply(kept[0], NULL, 0);
	answer(first, PACKET_CANCELLED, 0, 0, "");
	answer(second, PACKET_REPLY, 0, 0, "");
}

/* More calls than are listed, with the oldest in the middle of the table. Expect the oldest ones, in order. */
Test(metrics_collect, the_oldest_are_listed)
{
	enum { N = METRICS_PENDING_MAX + 20 };
	static struct result r[N];
	union packet_head h[N];
	for (unsigned i = 0; i < N; i++)
		h[i] = called(&r[i], FAR_FOREVER);
	advance(1); /* the calls get their times */
	for (uint32_t i = 0; i < N; i++)
		shard->latency.pending_since[h[i].call.slot] = 1000 + (i * 7 + 3) % N;
	struct metrics_shard *m = metrics_collect_here(shard, true);
	cr_assert_eq(m->calls_n, METRICS_PENDING_MAX);
	for (uint32_t i = 0; i < METRICS_PENDING_MAX; i++)
		cr_assert_eq(m->calls[i].since, 1000 + i, "%u: %u", i, (unsigned)m->calls[i].since);
	metrics_shard_free(m);
	for (unsigned i = 0; i < N; i++)
		answer(h[i], PACKET_REPLY, 0, 0, "");
}

/* A shard that answers, and one that does not in time: then the collection is the shard's to free. */
Test(metrics_collect, requested_by_another_thread)
{
	struct metrics_shard *m = metrics_request(shard, false);
	cr_assert_not_null(m);
	passes(1);
	cr_assert(metrics_await(m, TIME_NEVER));
	cr_assert_eq(m->now, now_ns);
	metrics_shard_free(m);
	m = metrics_request(shard, false);
	cr_assert_not(metrics_await(m, 0), "nobody polls it");
	passes(1); /* frees it */
}
