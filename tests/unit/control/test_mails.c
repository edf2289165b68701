/* SPDX-License-Identifier: BSD-3-Clause */
/* Mails between the control thread and the shards: content, order, full mailboxes. The test's thread. */
#include "fake_member.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(control_mails, .init = members_setup, .fini = members_teardown);

Test(control_mails, mails_carry_what_the_shard_needs)
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

Test(control_mails, full_mailbox_is_retried_in_order)
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

Test(control_mails, a_full_mailbox_is_tried_again)
{
	join_lazily(2);
	want_session(&members[0], 0, 1, 0);
	members[0].full = true;
	run_ticks(5);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_UP), 1u);
	member_end(&members[1]);
	run_ticks(5);
	members[0].full = false;
	run_ticks(5);
	cr_assert_eq(members[0].posted_n, 2u);
	cr_assert_eq(members[0].posted[0].type, MAIL_PEER_UP);
	cr_assert_eq(members[0].posted[1].type, MAIL_PEER_DOWN);
}

/* A mail of one shard's about another's session is not believed. */
Test(control_mails, mails_of_the_wrong_shard)
{
	shards[0] = shards[1] = 2;
	join(2);
	for (unsigned k = 0; k < members[0].posted_n; k++)
		if (members[0].posted[k].worker == 1 && members[0].posted_to[k] == 1)
			members[0].protocol_error = members[0].posted[k];
	members[0].protocol_error.type = MAIL_PROTOCOL_ERROR;
	members[0].poison = true; /* shard 0 reports it */
	want_session(&members[0], 1, 1, 7);
	want_session(&members[0], 0, 9, 0);
	run_ticks(10);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_DOWN), 0u);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UNREACHABLE), 0u);
}

/* The end of a session comes alone: what was posted before is not posted again. */
Test(control_mails, each_mail_once)
{
	join_lazily(2);
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	cr_assert_eq(members[0].posted_n, 1u);
	member_end(&members[1]);
	run_ticks(10);
	cr_assert_eq(members[0].posted_n, 2u);
	cr_assert_eq(members[0].posted[1].type, MAIL_PEER_DOWN);
	cr_assert(strstr(members[0].posted[1].text, "gone"), "%s", members[0].posted[1].text);
}
