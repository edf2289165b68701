/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls that other threads hand over. The test's thread. */
#include "core/loop.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/waiting.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(core_loop, .init = shard_setup, .fini = shard_teardown);

static int submit(struct result *r, uint32_t worker, uint64_t deadline, size_t len)
{
	static char data[FAKE_BODY + 1];
	struct call_start start = {.worker = worker,
				   .fn = 1,
				   .deadline = deadline,
				   .done = take_result,
				   .user = r,
				   .data = data,
				   .len = len};
	memset(r, 0, sizeof *r);
	return waiting_submit(shard, &start);
}

Test(core_loop, submissions_are_sent)
{
	struct result r;
	union packet_head h;
	cr_assert_eq(submit(&r, PEER, now_ns + 500, 1000), 0);
	passes(1);
	const struct fake_packet *p = fake_queue_sent(queue, &h);
	cr_assert_not_null(p);
	cr_assert_eq(p->body_len, 1000u);
	cr_assert_eq(h.request.time_left, 500u);
	answer(h, PACKET_REPLY, 0, 0, "s");
	cr_assert_eq(r.status, FAR_OK);
}

Test(core_loop, submissions_that_cannot_be_sent)
{
	struct result late, dead, nomem;
	submit(&late, PEER, now_ns, 1);
	queue->no_bulk = true;
	submit(&nomem, PEER, TIME_NEVER, 1000);
	passes(1);
	cr_assert_eq(late.status, FAR_TIMEOUT);
	cr_assert_eq(late.executed, FAR_EXECUTED_NO);
	cr_assert_eq(nomem.n, 0u, "bulk memory comes back: it waits");
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_eq(nomem.n, 1u);
	cr_assert_eq(nomem.status, FAR_PEER_LOST);
	cr_assert_eq(nomem.executed, FAR_EXECUTED_NO);
	submit(&dead, PEER, TIME_NEVER, 1);
	passes(1);
	cr_assert_eq(dead.status, FAR_PEER_LOST);
	cr_assert_eq(dead.executed, FAR_EXECUTED_NO);
	expect_nothing();
}

/* No credit is left. Expect it to wait for one, and calls towards others to go on. */
Test(core_loop, submissions_without_a_credit)
{
	static struct result r[FAR_SESSION_CALLS_MAX], late, other;
	union packet_head first, h;
	first = called(&r[0], FAR_FOREVER);
	for (unsigned i = 1; i < FAR_SESSION_CALLS_MAX; i++)
		called(&r[i], FAR_FOREVER);
	submit(&late, PEER, TIME_NEVER, 1);
	submit(&other, OTHER, TIME_NEVER, 1);
	passes(1);
	cr_assert_eq(submit_waiting(&shard->submit), 0u);
	cr_assert_eq(late.n, 0u);
	cr_assert_not_null(fake_queue_sent(queue, &h));
	expect_nothing();
	answer(first, PACKET_REPLY, 0, 0, "");
	cr_assert_not_null(fake_queue_sent(queue, &h));
	answer(h, PACKET_REPLY, 0, 0, "s");
	cr_assert_eq(late.status, FAR_OK);
	cr_assert_eq(shard->counters.busy_refusals, 0u);
}
