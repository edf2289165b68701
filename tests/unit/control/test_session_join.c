/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions of a join: those that every member makes at once, and those that it accepts early. The test's thread. */
#include "base/hash.h"
#include "control/info.h"
#include "fake_member.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(control_session_join, .init = members_setup, .fini = members_teardown);

Test(control_session_join, every_pair_of_shards_at_init)
{
	static const unsigned n_of[] = {2, 3, 1};
	for (int i = 0; i < 3; i++)
		shards[i] = n_of[i];
	join(3);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(ctl_sessions(members[i].ctl), 6u);
		cr_assert_eq(mails_of(&members[i], MAIL_PEER_UP), 6 * n_of[i]);
		cr_assert_eq(fake_port_peers(members[i].port), 6 * n_of[i]);
		for (int r = 0; r < 3; r++) {
			cr_assert_eq(ctl_members(members[i].ctl, NULL)[r].shards, n_of[r]);
			for (unsigned l = 0; l < n_of[i]; l++)
				for (unsigned k = 0; k < n_of[r]; k++)
					cr_assert_eq(mails_about(&members[i], MAIL_PEER_UP, l, to(r, (int)k)), 1u);
		}
	}
	run_ticks((int)(INIT_NS / TICK) + 5);
	cr_assert_eq(round_robin(), TIME_NEVER);
	leave_all(3, FAR_SEC);
	run(true);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
}

Test(control_session_join, no_common_driver)
{
	drivers[1] = "other";
	start(0, 2);
	start(1, 2);
	run(false);
	for (int i = 0; i < 2; i++)
		result(i, FAR_UNREACHABLE, "no NIC driver is shared");
}

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

Test(control_session_join, receive_connect_while_joining)
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
