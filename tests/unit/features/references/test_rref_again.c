/* SPDX-License-Identifier: BSD-3-Clause */
/* Control messages about references that fail or are late: sent again, when it is their time. "Set F, receive X. Expect
 * Y.". The test's thread. */
#include "core/packet.h"
#include "features/faults/fault.h"
#include "rref_fixture.h"

static struct faults faults;
static struct fault settings[FAR_FAULT_COUNT];

static void setup(void)
{
	memset(&faults, 0, sizeof faults);
	shard_setup();
	shard->config.faults = &faults;
}

TestSuite(rref_again, .init = setup, .fini = shard_teardown);

static void set(enum far_fault_kind kind, unsigned fail_sends, uint64_t delay_ns)
{
	settings[kind] = (struct fault){.fail_sends = fail_sends, .delay_ns = delay_ns, .left = UINT64_MAX};
	faults.of[kind] = &settings[kind];
	fault_apply(shard);
}

static void clear(enum far_fault_kind kind)
{
	faults.of[kind] = NULL;
	fault_apply(shard);
}

/* FORK fails three times. Expect it after 1, 1.5 and 2.25 ms more, then all as ever. */
Test(rref_again, fork_fails_and_goes)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	static const uint64_t waits[] = {1000000, 1500000, 2250000};
	add_function("t::known(rref r) -> int");
	set(FAR_FAULT_FORK, 3, 0);
	call_with(1, &w, 1);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(faults.failed[FAR_FAULT_FORK], i + 1);
		advance(waits[i] - 200000);
		cr_assert_eq(faults.failed[FAR_FAULT_FORK], i + 1, "too soon");
		expect_nothing();
		advance(400000);
	}
	expect_control(NIC_OTHER, RREF_FORK, w.fork, FAR_OK);
	expect_ran(1, 1);
	cr_assert_eq(faults.failed[FAR_FAULT_FORK], 3u);
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	expect_empty();
}

/* It always fails. Expect six sends, then the error, nothing run. */
Test(rref_again, fork_given_up)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	add_function("t::known(rref r) -> int");
	set(FAR_FAULT_FORK, UINT32_MAX, 0);
	call_with(1, &w, 1);
	for (int i = 0; i < 6; i++)
		advance(10 * FAR_MS);
	expect_error(1, FAR_INJECTED, FAR_EXECUTED_NO, "does not know");
	cr_assert_eq(runs, 0u);
	cr_assert_eq(faults.failed[FAR_FAULT_FORK], 6u);
	expect_empty();
}

/* DELETE fails, ACCEPT is late. Expect both said in the end. */
Test(rref_again, delete_fails_and_goes)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	add_function("t::known(rref r) -> int");
	set(FAR_FAULT_DELETE, 5, 0);
	call_with(1, &w, 1);
	expect_control(NIC_OTHER, RREF_FORK, w.fork, FAR_OK);
	expect_ran(1, 1);
	for (int i = 0; i < 5; i++) {
		expect_nothing();
		cr_assert_eq(shard->rrefs->msgs_n, 1u);
		advance(10 * FAR_MS);
	}
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	expect_empty();
}

/* Late by 5 ms, then the fault is cleared: what is held back stays so. */
Test(rref_again, fork_is_late)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	add_function("t::known(rref r) -> int");
	set(FAR_FAULT_FORK, 0, 5 * FAR_MS);
	call_with(1, &w, 1);
	clear(FAR_FAULT_FORK);
	advance(4 * FAR_MS);
	expect_nothing();
	advance(2 * FAR_MS);
	expect_control(NIC_OTHER, RREF_FORK, w.fork, FAR_OK);
	expect_ran(1, 1);
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	expect_empty();
}

/* Answers all control messages that are sent; returns how many FORKs, and counts what goes to PEER. */
static unsigned forks_sent(unsigned *answers, unsigned *errors)
{
	const struct fake_packet *p;
	struct rref_op ops[RREF_OPS_MAX];
	static const uint8_t fine[RREF_OPS_MAX];
	union packet_head h;
	unsigned forks = 0;
	while ((p = fake_queue_sent(queue, &h))) {
		*answers += h.type == PACKET_REPLY;
		*errors += h.type == PACKET_ERROR;
		if (h.type != PACKET_REQUEST)
			continue;
		size_t n = p->body_len / sizeof *ops;
		uint32_t to = p->peer;
		memcpy(ops, fake_body(p), p->body_len);
		for (size_t i = 0; i < n; i++)
			forks += ops[i].kind == RREF_FORK;
		answer_controls(to, h, fine, n);
	}
	return forks;
}

/* Control messages that wait for different times, longer and shorter ones in turn. Expect each when it is due, and none
 * of those whose owner was lost before. */
Test(rref_again, words_wait_differently)
{
	enum { MANY = 30, EACH = MANY / 3 };
	static const uint64_t delays[] = {20 * FAR_MS, 10 * FAR_MS, 30 * FAR_MS};
	unsigned answers = 0, errors = 0;
	add_function("t::known(rref r) -> int");
	for (unsigned i = 0; i < MANY; i++) {
		struct rref_wire w = wire(OTHER, 100 + 2 * i, 101 + 2 * i);
		set(FAR_FAULT_FORK, 0, delays[i % 3]);
		call_with(1 + i, &w, 1);
	}
	clear(FAR_FAULT_FORK);
	cr_assert_eq(shard->rrefs->late_n, MANY);
	advance(9 * FAR_MS);
	expect_nothing();
	for (unsigned round = 0; round < 2; round++) {
		advance((round ? 10 : 2) * FAR_MS);
		cr_assert_eq(forks_sent(&answers, &errors), EACH, "round %u", round);
		cr_assert_eq(answers, (round + 1) * EACH);
		cr_assert_eq(shard->rrefs->late_n, (2 - round) * EACH);
	}
	mail(MAIL_PEER_DOWN, OTHER, NIC_OTHER);
	passes(2);
	cr_assert_eq(shard->rrefs->late_n, 0u);
	forks_sent(&answers, &errors);
	cr_assert_eq(errors, EACH);
	advance(50 * FAR_MS);
	expect_empty();
}

/* Control messages that fail, and wait longer each time, while others come. Expect all to be sent in the end. */
Test(rref_again, words_fail_at_different_times)
{
	enum { MANY = 30 };
	unsigned answers = 0, errors = 0, forks = 0;
	add_function("t::known(rref r) -> int");
	for (unsigned i = 0; i < MANY; i++) {
		struct rref_wire w = wire(OTHER, 100 + 2 * i, 101 + 2 * i);
		set(FAR_FAULT_FORK, 1 + i % 5, 0);
		call_with(1 + i, &w, 1);
		advance(700000);
		forks += forks_sent(&answers, &errors);
	}
	for (unsigned i = 0; i < 40; i++) {
		advance(FAR_MS);
		forks += forks_sent(&answers, &errors);
	}
	cr_assert_eq(forks, MANY);
	cr_assert_eq(answers, MANY);
	cr_assert_eq(errors, 0u);
	expect_empty();
}

/* Its owner is lost while it is held back. Expect the request to end at once, and nothing said later. */
Test(rref_again, owner_lost_meanwhile)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	add_function("t::known(rref r) -> int");
	set(FAR_FAULT_FORK, 0, 5 * FAR_MS);
	call_with(1, &w, 1);
	mail(MAIL_PEER_DOWN, OTHER, NIC_OTHER);
	passes(2);
	expect_error(1, FAR_PEER_LOST, FAR_EXECUTED_NO, "");
	advance(10 * FAR_MS);
	expect_empty();
}

/* The shard ends meanwhile. Expect nothing left. */
Test(rref_again, end_meanwhile)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	add_function("t::known(rref r) -> int");
	set(FAR_FAULT_FORK, 3, 0);
	set(FAR_FAULT_DELETE, 3, 0);
	call_with(1, &w, 1);
	cr_assert_eq(shard->rrefs->msgs_n, 1u);
}

/* The owner has no room at first. Expect the control message again after the wait, and the handler to run. */
Test(rref_again, owner_without_room)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	add_function("t::known(rref r) -> int");
	call_with(1, &w, 1);
	expect_control(NIC_OTHER, RREF_FORK, w.fork, FAR_RESOURCE);
	expect_nothing();
	advance(2 * FAR_MS);
	expect_control(NIC_OTHER, RREF_FORK, w.fork, FAR_OK);
	expect_ran(1, 1);
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	expect_empty();
}

/* Never has any. Expect RESOURCE after six. */
Test(rref_again, owner_never_has_room)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	add_function("t::known(rref r) -> int");
	call_with(1, &w, 1);
	for (int i = 0; i < 6; i++) {
		expect_control(NIC_OTHER, RREF_FORK, w.fork, FAR_RESOURCE);
		advance(10 * FAR_MS);
	}
	expect_error(1, FAR_RESOURCE, FAR_EXECUTED_NO, "does not know");
	expect_empty();
}
