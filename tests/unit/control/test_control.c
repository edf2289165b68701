/* SPDX-License-Identifier: BSD-3-Clause */
/* The control thread's interface: what ctl_create() checks, and what it shows. The test's thread. */
#include "base/limits.h"
#include "fake_member.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(control_control, .init = members_setup, .fini = members_teardown);

Test(control_control, names_are_checked_at_once)
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

Test(control_control, identity)
{
	group = "g";
	start(0, 1);
	cr_assert_str_eq(ctl_identity(members[0].ctl), "127.0.0.1:29500/g/w0");
}

/* What ctl_create() refuses at once, and says how to do it. */
static void refused_at_once(const char *part)
{
	start(0, 1);
	cr_assert_eq(members[0].created, FAR_INVALID, "%s", members[0].err.text);
	cr_assert(strstr(members[0].err.text, part), "\"%s\" lacks \"%s\"", members[0].err.text, part);
	member_end(&members[0]);
}

Test(control_control, arguments_are_checked_at_once)
{
	group = "a group";
	refused_at_once("group name \"a group\" has a character outside");
	group = "";
	refused_at_once("group name has 0 characters");
	group = NULL;
	method = "udp://h:1";
	refused_at_once("udp://h:1");
}

Test(control_control, inherited_listener_is_a_number)
{
	static const char *const bad[] = {"x", "3x", "-1", "99999999999999999999", "9999999"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		setenv("FAR_STORE_FD", bad[i], 1);
		refused_at_once("expected the number of an open listening socket; unset it");
	}
	/* Who hosts no store does not read it. */
	start(1, 2);
	cr_assert_eq(members[1].created, FAR_OK);
	setenv("FAR_STORE_FD", "", 1);
	start(0, 2);
	cr_assert_eq(members[0].created, FAR_OK);
}

Test(control_control, states)
{
	start(0, 1);
	struct ctl *ctl = members[0].ctl;
	cr_assert_eq(ctl_state(ctl), CTL_JOINING);
	cr_assert_not(ctl_settled(ctl));
	run(false);
	cr_assert_eq(ctl_state(ctl), CTL_READY);
	cr_assert(ctl_settled(ctl));
	result(0, FAR_OK, "");
	ctl_leave(ctl, FAR_SEC);
	cr_assert_not(ctl_settled(ctl), "it has not left yet");
	run(true);
	cr_assert_eq(ctl_state(ctl), CTL_LEFT);
	cr_assert(ctl_settled(ctl));
}

/* The first request counts: a second one does not move the deadline. */
Test(control_control, leaves_once)
{
	join(1);
	members[0].calls = 1;
	uint64_t from = world->now;
	ctl_leave(members[0].ctl, FAR_SEC);
	ctl_leave(members[0].ctl, 100 * FAR_SEC);
	run_ticks(500);
	ctl_leave(members[0].ctl, 100 * FAR_SEC);
	run(true);
	result(0, FAR_TIMEOUT, "");
	cr_assert_leq(world->now, from + FAR_SEC + 100 * FAR_MS);
}

Test(control_control, shows_its_group)
{
	struct key_choice key;
	struct url url;
	int n;
	group = "g";
	sizes[0] = FAR_WORLD_DYNAMIC;
	join(1);
	struct ctl *ctl = members[0].ctl;
	cr_assert_str_eq(ctl_group(ctl), "g");
	cr_assert_str_eq(ctl_store_text(ctl), "127.0.0.1:29500");
	cr_assert(ctl_is_dynamic(ctl));
	cr_assert_eq(ctl_rank(ctl), 0);
	ctl_members(ctl, &n);
	cr_assert_eq(n, FAR_MEMBERS_MAX);
	ctl_store(ctl, &url, &key);
	cr_assert(url.scheme == URL_TCP && url.port == 29500);
	cr_assert_eq(key.kind, KEY_GIVEN);
	cr_assert_str_eq((const char *)key.key.bytes, secret);
}
