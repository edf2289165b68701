/* SPDX-License-Identifier: BSD-3-Clause */
/* Set-ups by hand: connect requests that no agent would send, or at a time when none would. The test's thread. */
#include "base/hash.h"
#include "base/limits.h"
#include "control/info.h"
#include "fake_member.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(control_session_rogue, .init = members_setup, .fini = members_teardown);

static int rogue_event(void *ctx, const struct nic_event *ev)
{
	int *error = ctx;
	if (ev->type == NIC_EVENT_FAILED)
		*error = ev->error;
	if (ev->type == NIC_EVENT_UP)
		*error = 0;
	return 0;
}

static int rogue_connect(struct nic_port *rogue, const struct handshake *h, unsigned queue)
{
	struct nic_addr at;
	uint8_t words[HANDSHAKE_BYTES];
	int error = 1;
	handshake_encode(h, words);
	members[0].port->ops->address(members[0].port, &at);
	cr_assert_eq(rogue->ops->connect(
			     rogue, &(struct nic_connect){0, &at, queue, words, sizeof words, TIME_NEVER, NULL}, NULL),
		     0);
	run_ticks(2);
	rogue->ops->step(rogue, world->now, rogue_event, &error);
	return error;
}

/* Receive CONNECT of a member while a session with it is up. Expect a probe of it, and its end only when it
 * has ended: then the next CONNECT is accepted. */
Test(control_session_rogue, receive_connect_while_up)
{
	silent = 1;
	join_lazily(2);
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	const struct ctl_member *m = ctl_members(members[0].ctl, NULL);
	struct nic_port *rogue = fake_port_create(&fabric, "fake", 1000);
	const struct handshake h = {.group = hash64("default", 7),
				    .world = 2,
				    .rank = 1,
				    .from = m[1].incarnation,
				    .to = m[0].incarnation,
				    .name = hash64(m[1].name, strlen(m[1].name))};
	cr_assert_eq(rogue_connect(rogue, &h, 0), -EINPROGRESS);
	cr_assert_eq(mails_of(&members[0], MAIL_PROBE), 1u);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_DOWN), 0u);
	fake_port_cut(members[0].port, mail_last(&members[0], MAIL_PEER_UP)->peer);
	run_ticks(5);
	cr_assert_eq(rogue_connect(rogue, &h, 0), 0);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UP), 2u);
	fake_port_destroy(rogue);
}

/* Receive CONNECT when READY. Expect shards to be checked, and no second session. */
Test(control_session_rogue, receive_connect_when_ready)
{
	shards[0] = 2;
	shards[1] = 3;
	join_lazily(2);
	const struct ctl_member *m = ctl_members(members[0].ctl, NULL);
	struct nic_port *rogue = fake_port_create(&fabric, "fake", 1000);
	const struct handshake good = {.group = hash64("default", 7),
				       .world = 2,
				       .rank = 1,
				       .from = m[1].incarnation,
				       .to = m[0].incarnation,
				       .name = hash64(m[1].name, strlen(m[1].name)),
				       .from_shard = 2,
				       .to_shard = 1};
	struct handshake h = good;
	cr_assert_eq(rogue_connect(rogue, &good, 0), -EPROTO, "another queue than it says");
	h.to_shard = 2;
	cr_assert_eq(rogue_connect(rogue, &h, 2), -EPROTO, "we have two");
	h = good;
	h.from_shard = 3;
	cr_assert_eq(rogue_connect(rogue, &h, 1), -EPROTO, "it has three");
	h = good;
	h.from++;
	cr_assert_eq(rogue_connect(rogue, &h, 1), -EINPROGRESS, "the store is queried");
	run_ticks(5);
	cr_assert_eq(rogue_connect(rogue, &h, 1), -ESTALE, "the store knows another");
	h = good;
	h.name++;
	cr_assert_eq(rogue_connect(rogue, &h, 1), -EACCES, "that rank has another name");
	h = good;
	h.rank = 0;
	h.from = m[0].incarnation;
	h.name = hash64(m[0].name, strlen(m[0].name));
	h.from_shard = 0;
	cr_assert_eq(rogue_connect(rogue, &h, 1), -EACCES, "it is no request of ours");
	cr_assert_eq(members[0].posted_n, 0u);
	cr_assert_eq(rogue_connect(rogue, &good, 1), 0);
	cr_assert_eq(rogue_connect(rogue, &good, 1), -EACCES, "a second session");
	cr_assert_eq(mails_about(&members[0], MAIL_PEER_UP, 1, to(1, 2)), 1u);
	fake_port_destroy(rogue);
	run_ticks(5);
	cr_assert_not(ctl_members(members[0].ctl, NULL)[1].alive);
	/* Dead: it does not come back. */
	rogue = fake_port_create(&fabric, "fake", 1001);
	h = good;
	h.from_shard = 1;
	cr_assert_eq(rogue_connect(rogue, &h, 1), -EPIPE);
	fake_port_destroy(rogue);
}
