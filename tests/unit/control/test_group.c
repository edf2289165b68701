/* SPDX-License-Identifier: BSD-3-Clause */
/* The way in, and the sessions. The test's thread. */
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "control/info.h"
#include "fake_member.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(control_group, .init = members_setup, .fini = members_teardown);

/* ---- joining ---- */

Test(control_group, join_and_leave)
{
	for (int n = 1; n <= 5; n++) {
		join(n);
		for (int i = 0; i < n; i++) {
			int world_size;
			const struct ctl_member *table = ctl_members(members[i].ctl, &world_size);
			result(i, FAR_OK, "");
			cr_assert_eq(world_size, n);
			cr_assert_eq(ctl_rank(members[i].ctl), i);
			cr_assert_eq(mails_of(&members[i], MAIL_PEER_UP), (unsigned)n);
			cr_assert_eq(fake_port_peers(members[i].port), (unsigned)n);
			for (int r = 0; r < n; r++) {
				cr_assert_str_eq(table[r].name, names[r]);
				cr_assert_str_eq(table[r].route->nic, "fake");
				cr_assert_eq(table[r].rank, r);
				cr_assert(table[r].alive);
				cr_assert_eq(table[r].incarnation, ctl_members(members[r].ctl, NULL)[r].incarnation);
			}
		}
		leave_all(n, FAR_SEC);
		run(true);
		for (int i = 0; i < n; i++) {
			result(i, FAR_OK, "");
			cr_assert_eq(ctl_state(members[i].ctl), CTL_LEFT);
			member_end(&members[i]);
		}
	}
}

Test(control_group, mails_carry_what_the_shard_needs)
{
	join(2);
	for (int i = 0; i < 2; i++) {
		for (unsigned k = 0; k < members[i].posted_n; k++) {
			const struct mail *mail = &members[i].posted[k];
			cr_assert_eq(mail->type, MAIL_PEER_UP);
			cr_assert_eq(mail->port, 0);
			cr_assert_lt(mail->worker, 2);
			cr_assert_eq(mail->incarnation, ctl_members(members[i].ctl, NULL)[mail->worker].incarnation);
		}
	}
}

Test(control_group, small_sends)
{
	world->chunk = 3;
	join(3);
	leave_all(3, FAR_SEC);
	run(true);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
}

Test(control_group, order_of_start_does_not_matter)
{
	start(2, 3);
	run_ticks(100);
	start(1, 3);
	run_ticks(100);
	start(0, 3);
	run(false);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
}

Test(control_group, idle_members_ask_for_no_wake_up)
{
	join(3);
	/* Requests that wait for the join end with its deadline; afterwards nothing is left. */
	run_ticks((int)(INIT_NS / TICK) + 5);
	cr_assert_eq(round_robin(), TIME_NEVER);
}

Test(control_group, full_mailbox_is_retried_in_order)
{
	for (int i = 0; i < 3; i++)
		start(i, 3);
	members[1].full = true;
	run_ticks(50);
	cr_assert_eq(ctl_state(members[0].ctl), CTL_READY);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_JOINING);
	cr_assert_leq(round_robin(), world->now);
	members[1].full = false;
	run(false);
	result(1, FAR_OK, "");
	members[1].full = true;
	member_end(&members[2]);
	run_ticks(20);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_DOWN), 0);
	members[1].full = false;
	run_ticks(5);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_DOWN), 1);
	cr_assert_eq(members[1].posted[3].worker, 2);
}

Test(control_group, duplicate_name_is_seen_by_all)
{
	names[2] = "w1";
	for (int i = 0; i < 3; i++)
		start(i, 3);
	run(false);
	for (int i = 0; i < 3; i++)
		result(i, FAR_NOT_UNIQUE, "RPC worker name \"w1\" is not unique: ranks 1 and 2 share it");
}

/* Rank 0 is out of descriptors when the last member connects. Expect its error at once, with the remedy. */
static void out_of_descriptors(int error, const char *remedy)
{
	start(0, 3);
	start(1, 3);
	run_ticks(20);
	world->accept_error = error;
	start(2, 3);
	run_ticks(1000);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(ctl_state(members[i].ctl), CTL_FAILED);
		result(i, FAR_RESOURCE, "worker \"w0\" (rank 0) cannot accept the members' connections");
		result(i, FAR_RESOURCE, remedy);
	}
}

Test(control_group, out_of_descriptors_of_the_process)
{
	out_of_descriptors(-EMFILE, "RLIMIT_NOFILE");
}

Test(control_group, out_of_descriptors_of_the_system)
{
	out_of_descriptors(-ENFILE, "fs.file-max");
}

/* ---- a worker that cannot open its NIC ---- */

static void refuse(int i)
{
	err_set(&refused[i], FAR_UNREACHABLE, "nic \"pigeon\" cannot be opened: no loft");
}

/* Expect all members to fail at once, by its name and with the driver's reason, whichever it is, first or last. */
static void a_refused_worker(int who, bool first)
{
	uint64_t from = world->now;
	char text[96];
	refuse(who);
	for (int i = 0; i < 3; i++)
		if ((i == who) == first)
			start(i, 3);
	run_ticks(100);
	for (int i = 0; i < 3; i++)
		if ((i == who) != first)
			start(i, 3);
	run_ticks(1000);
	snprintf(text, sizeof text, "worker \"w%d\" (rank %d) cannot join: nic \"pigeon\" cannot be opened: no loft",
		 who, who);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(ctl_state(members[i].ctl), CTL_FAILED, "%d", i);
		result(i, FAR_UNREACHABLE, text);
	}
	cr_assert_lt(world->now, from + INIT_NS);
}

Test(control_group, a_refused_worker_comes_first)
{
	a_refused_worker(2, true);
}

Test(control_group, a_refused_worker_comes_last)
{
	a_refused_worker(2, false);
}

Test(control_group, rank_0_is_refused_first)
{
	a_refused_worker(0, true);
}

Test(control_group, rank_0_is_refused_last)
{
	a_refused_worker(0, false);
}

/* Nobody comes to hear it. */
Test(control_group, a_refused_worker_alone)
{
	refuse(0);
	start(0, 3);
	run_ticks((int)(FAR_STORE_REFUSED_NS / TICK) + 10);
	cr_assert_eq(ctl_state(members[0].ctl), CTL_FAILED);
	result(0, FAR_UNREACHABLE, "no loft");
	member_end(&members[0]);
	refuse(1);
	start(1, 3);
	run_ticks((int)(INIT_NS / TICK) + 10);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_FAILED);
}

/* A group that runs goes on without it. */
Test(control_group, a_refused_worker_cannot_come_back)
{
	join(3);
	member_end(&members[2]);
	run_ticks(10);
	refuse(2);
	start(2, 3);
	run_ticks(1000);
	cr_assert_eq(ctl_state(members[2].ctl), CTL_FAILED);
	cr_assert_eq(ctl_state(members[0].ctl), CTL_READY);
	member_end(&members[2]);
	refused[2].status = FAR_OK;
	start(2, 3);
	run(false);
	result(2, FAR_OK, "");
}

/* What passes by itself is tried again, without a busy loop. */
Test(control_group, accept_fails_for_a_while)
{
	start(0, 2);
	world->accept_error = -ENOBUFS;
	start(1, 2);
	run_ticks(10);
	world->now += TICK;
	cr_assert_gt(ctl_step(members[0].ctl, world->now), world->now);
	run_ticks(200);
	cr_assert_eq(ctl_state(members[0].ctl), CTL_JOINING);
	world->accept_error = 0;
	run(false);
	result(0, FAR_OK, "");
	result(1, FAR_OK, "");
}

Test(control_group, taken_rank_names_its_holder)
{
	ranks[3] = 1;
	start(0, 3);
	start(1, 3);
	run_ticks(20);
	start(3, 3);
	run(false);
	result(3, FAR_NOT_UNIQUE, "rank 1 of group \"default\" is taken by worker \"w1\"");
	/* The others need not wait for their deadline. */
	result(0, FAR_NOT_UNIQUE, "rank 1");
	result(1, FAR_NOT_UNIQUE, "rank 1");
	cr_assert_lt(world->now, 1000000000 + INIT_NS);
}

Test(control_group, late_non_member_does_not_harm_a_ready_group)
{
	join(2);
	ranks[3] = 1;
	start(3, 2);
	run(false);
	result(3, FAR_NOT_UNIQUE, "taken by worker \"w1\"");
	member_end(&members[3]);
	leave_all(2, FAR_SEC);
	run(true);
	result(0, FAR_OK, "");
	result(1, FAR_OK, "");
}

Test(control_group, world_sizes_must_agree)
{
	sizes[1] = 3;
	start(0, 2);
	run_ticks(5);
	start(1, 2);
	run(false);
	result(1, FAR_INVALID, "world_size is 3 for worker \"w1\" but 2 for the members that came before");
	result(0, FAR_INVALID, "world_size is 3 for worker \"w1\" but 2");
}

Test(control_group, missing_members_are_named_at_the_deadline)
{
	uint64_t from = world->now;
	start(0, 5);
	start(1, 5);
	start(3, 5);
	run(false);
	cr_assert_geq(world->now, from + INIT_NS);
	cr_assert_leq(world->now, from + INIT_NS + FAR_SEC);
	for (int i = 0; i < 4; i += i ? 2 : 1)
		result(i, FAR_TIMEOUT, "missing rank 2, rank 4");
}

Test(control_group, missing_rank_0_is_named_with_its_address)
{
	start(1, 2);
	run(false);
	result(1, FAR_TIMEOUT, "rank 0, which hosts the store at 127.0.0.1:29500, did not answer within 2 s");
	cr_assert(strstr(members[1].err.text, strerror(ECONNREFUSED)));
}

Test(control_group, death_of_the_store_while_joining)
{
	start(0, 3);
	start(1, 3);
	run_ticks(10);
	member_end(&members[0]);
	run(false);
	result(1, FAR_PEER_LOST, "the store at 127.0.0.1:29500 (rank 0) was lost while joining");
}

Test(control_group, no_common_driver)
{
	drivers[1] = "other";
	start(0, 2);
	start(1, 2);
	run(false);
	for (int i = 0; i < 2; i++)
		result(i, FAR_UNREACHABLE, "no NIC driver is shared");
}

Test(control_group, refused_session_ends_the_join)
{
	fabric.refuse = fabric.refuse_next = -EACCES;
	start(0, 2);
	start(1, 2);
	run(false);
	result(0, FAR_DENIED, "cannot connect");
	result(1, FAR_DENIED, "cannot connect");
}

Test(control_group, port_in_use)
{
	start(0, 1);
	run(false);
	ranks[1] = 0;
	start(1, 1);
	run(false);
	result(1, FAR_SYSTEM, "the store cannot listen on 127.0.0.1:29500");
	cr_assert(strstr(members[1].err.text, "choose another port"));
}

Test(control_group, beyond_loopback_only_when_open)
{
	method = "tcp://10.0.0.1:29500";
	security = KEY_AUTO;
	start(0, 2);
	start(1, 2);
	run(false);
	result(0, FAR_DENIED, "without a group key the store listens on loopback only, unless security=none");
	result(1, FAR_DENIED, "10.0.0.1:29500");
	member_end(&members[0]);
	member_end(&members[1]);
	security = KEY_NONE;
	join(2);
	member_end(&members[0]);
	member_end(&members[1]);
	security = KEY_GIVEN;
	join(2);
}

Test(control_group, unknown_host)
{
	method = "tcp://nowhere:1";
	security = KEY_AUTO;
	start(1, 2);
	run(false);
	result(1, FAR_UNREACHABLE, "\"nowhere\" does not resolve");
	member_end(&members[1]);
	security = KEY_NONE;
	start(1, 2);
	run(false);
	result(1, FAR_UNREACHABLE, "\"nowhere\" does not resolve");
}

Test(control_group, names_are_checked_at_once)
{
	static char longest[FAR_NAME_MAX + 1];
	static const char *const bad[] = {"", "a b", "a/b", "\xc3\xa4", "a."};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		names[0] = bad[i];
		start(0, 1);
		cr_assert_eq(members[0].created, FAR_INVALID, "\"%s\"", bad[i]);
		member_end(&members[0]);
	}
	memset(longest, 'n', FAR_NAME_MAX - 1);
	names[0] = longest;
	join(1);
	member_end(&members[0]);
	longest[FAR_NAME_MAX - 1] = 'n';
	start(0, 1);
	cr_assert_eq(members[0].created, FAR_INVALID);
	cr_assert_eq(ctl_check_name("az-AZ_09:", NULL), FAR_OK);
	cr_assert_eq(ctl_check_name(NULL, NULL), FAR_INVALID);
}

Test(control_group, identity)
{
	group = "g";
	start(0, 1);
	cr_assert_str_eq(ctl_identity(members[0].ctl), "127.0.0.1:29500/g/w0");
}

/* ---- sessions ---- */

Test(control_group, death_of_a_peer_after_ready)
{
	join(3);
	member_end(&members[2]);
	run_ticks(10);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(ctl_state(members[i].ctl), CTL_READY);
		cr_assert_not(ctl_members(members[i].ctl, NULL)[2].alive);
		cr_assert(ctl_members(members[i].ctl, NULL)[1 - i].alive);
		cr_assert_eq(mails_of(&members[i], MAIL_PEER_DOWN), 1);
		/* DETACHED has come back, and the port's peer is gone. */
		cr_assert_eq(fake_port_peers(members[i].port), 2);
	}
}

Test(control_group, death_of_rank_0_after_ready_leaves_calls_working)
{
	join(3);
	member_end(&members[0]);
	run_ticks(10);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_READY);
	cr_assert(ctl_members(members[1].ctl, NULL)[2].alive);
	leave_all(3, FAR_SEC);
	run(true);
	result(1, FAR_PEER_LOST, "worker \"w0\" (rank 0)");
	result(2, FAR_PEER_LOST, "worker \"w0\" (rank 0)");
}

Test(control_group, poisoned_peer_is_taken_down)
{
	join(2);
	for (unsigned k = 0; k < members[0].posted_n; k++) {
		if (members[0].posted[k].worker == 1)
			members[0].protocol_error = members[0].posted[k];
	}
	members[0].protocol_error.type = MAIL_PROTOCOL_ERROR;
	members[0].poison = true;
	run_ticks(10);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_DOWN), 1);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_DOWN), 1);
	cr_assert_eq(fake_port_peers(members[0].port), 1);
	cr_assert_not(ctl_members(members[1].ctl, NULL)[0].alive);
}

Test(control_group, death_of_a_peer_while_joining)
{
	for (int i = 0; i < 3; i++)
		start(i, 3);
	/* Member 1 has its sessions, but its shard takes no mail: it is not ready. */
	members[1].full = true;
	run_ticks(50);
	member_end(&members[2]);
	run(false);
	result(1, FAR_PEER_LOST, "worker \"w2\" (rank 2) was lost while joining");
}

Test(control_group, the_first_reason_reaches_who_suffers_from_it)
{
	fabric.refuse = -EACCES;
	fabric.refuse_next = -ECONNREFUSED;
	start(0, 2);
	start(1, 2);
	run(false);
	result(0, FAR_DENIED, "worker \"w0\" cannot connect to worker \"w0\"");
	result(1, FAR_DENIED, "worker \"w0\" cannot connect to worker \"w0\" (rank 0): Permission denied (reported by");
}

/* ---- set-ups by hand ---- */

static int rogue_event(void *ctx, const struct nic_event *ev)
{
	int *error = ctx;
	if (ev->type == NIC_EVENT_FAILED)
		*error = ev->error;
	if (ev->type == NIC_EVENT_UP)
		*error = 0;
	return 0;
}

/* What member 0 of 3, still joining, answers to a CONNECT. */
static int rogue_connect(struct nic_port *rogue, const struct handshake *handshake, size_t len, size_t corrupt)
{
	struct nic_addr to;
	uint8_t words[HANDSHAKE_BYTES];
	int error = 1;
	handshake_encode(handshake, words);
	if (corrupt < sizeof words)
		words[corrupt] ^= 1;
	members[0].port->ops->address(members[0].port, &to);
	cr_assert_eq(rogue->ops->connect(rogue, &(struct nic_connect){0, &to, 0, words, len, TIME_NEVER, NULL}, NULL),
		     0);
	run_ticks(2);
	rogue->ops->step(rogue, world->now, rogue_event, &error);
	return error;
}

Test(control_group, receive_connect_while_joining)
{
	start(0, 3);
	run_ticks(5);
	struct nic_port *rogue = fake_port_create(&fabric, "fake", 1000);
	const struct handshake good = {
		.group = hash64("default", 7), .world = 3, .rank = 1, .from = 1000, .to = incarnation};
	struct handshake h = good;
	cr_assert_eq(rogue_connect(rogue, &good, HANDSHAKE_BYTES - 1, HANDSHAKE_BYTES), -EPROTO);
	cr_assert_eq(rogue_connect(rogue, &good, HANDSHAKE_BYTES, 0), -EPROTO, "magic");
	cr_assert_eq(rogue_connect(rogue, &good, HANDSHAKE_BYTES, 5), -EPROTO, "version");
	h.group++;
	cr_assert_eq(rogue_connect(rogue, &h, HANDSHAKE_BYTES, HANDSHAKE_BYTES), -EACCES);
	h = good;
	h.world = 4;
	cr_assert_eq(rogue_connect(rogue, &h, HANDSHAKE_BYTES, HANDSHAKE_BYTES), -EACCES);
	h = good;
	h.rank = 3;
	cr_assert_eq(rogue_connect(rogue, &h, HANDSHAKE_BYTES, HANDSHAKE_BYTES), -EPROTO);
	h.rank = 0;
	cr_assert_eq(rogue_connect(rogue, &h, HANDSHAKE_BYTES, HANDSHAKE_BYTES), -ESTALE, "it is us");
	h = good;
	h.to++;
	cr_assert_eq(rogue_connect(rogue, &h, HANDSHAKE_BYTES, HANDSHAKE_BYTES), -ESTALE);
	cr_assert_eq(rogue_connect(rogue, &good, HANDSHAKE_BYTES, HANDSHAKE_BYTES), 0);
	cr_assert_eq(rogue_connect(rogue, &good, HANDSHAKE_BYTES, HANDSHAKE_BYTES), -EACCES, "a second session");
	/* It was not the worker that claims rank 1 in the end: its session goes, the rightful one comes. */
	start(1, 3);
	start(2, 3);
	run(false);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
	cr_assert_eq(fake_port_peers(members[0].port), 3);
	fake_port_destroy(rogue);
}
