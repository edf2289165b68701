/* SPDX-License-Identifier: BSD-3-Clause */
/* The group's key in a join: made by rank 0 and found by the others, or given to all; keys that differ. The test's
 * thread. */
#include "fake_member.h"
#include "own_dir.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

static void setup(void)
{
	own_dir_make();
	setenv("FAR_RUNTIME_DIR", top, 1);
	members_setup();
	security = KEY_AUTO;
}

static void teardown(void)
{
	members_teardown();
	own_dir_remove();
}

TestSuite(control_join_key, .init = setup, .fini = teardown);

/* The path of the only key file; "": there is none. */
static const char *key_file(void)
{
	static char path[512];
	DIR *d = opendir(top);
	const struct dirent *e;
	path[0] = 0;
	while ((e = readdir(d)))
		if (strncmp(e->d_name, "store-", 6) == 0)
			snprintf(path, sizeof path, "%s/%s", top, e->d_name);
	closedir(d);
	return path;
}

/* All have the same key, also for transports and drivers, and for later groups of this worker. */
static void one_key(int n)
{
	struct key_choice key[2];
	struct url url;
	ctl_store(members[0].ctl, &url, &key[0]);
	for (int i = 0; i < n; i++) {
		ctl_store(members[i].ctl, &url, &key[1]);
		cr_assert_eq(key[1].kind, KEY_GIVEN);
		cr_assert_eq(memcmp(&key[1].key, &key[0].key, sizeof key[0].key), 0);
		const struct auth_key *shared = group_key_get(&members[i].group_key);
		cr_assert_not_null(shared);
		struct group_key same = {.known = false};
		group_key_set(&same, &key[0].key, "default");
		cr_assert_eq(memcmp(shared, &same.key, sizeof same.key), 0, "it is bound to the group's name");
	}
}

Test(control_join_key, rank_0_makes_it)
{
	join(3);
	one_key(3);
	cr_assert_str_neq(key_file(), "");
	member_end(&members[0]);
	cr_assert_str_eq(key_file(), "");
}

/* Each group has another one. */
Test(control_join_key, is_made_anew)
{
	struct auth_key first;
	join(1);
	first = *group_key_get(&members[0].group_key);
	member_end(&members[0]);
	join(1);
	cr_assert_neq(memcmp(&first, group_key_get(&members[0].group_key), sizeof first), 0);
}

Test(control_join_key, is_waited_for)
{
	start(1, 2);
	run_ticks(100);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_JOINING);
	cr_assert_null(group_key_get(&members[1].group_key));
	start(0, 2);
	run(false);
	ready(1);
	one_key(2);
}

/* The member looks in another directory. */
Test(control_join_key, is_not_found)
{
	char other[128];
	start(0, 2);
	run_ticks(5);
	put("other/x", "");
	snprintf(other, sizeof other, "%s/other", top);
	setenv("FAR_RUNTIME_DIR", other, 1);
	start(1, 2);
	run(false);
	result(1, FAR_DENIED, "has a key, which was not found in");
	result(1, FAR_DENIED, other);
	result(1, FAR_DENIED, "with one runtime directory (FAR_RUNTIME_DIR)");
}

Test(control_join_key, a_file_that_others_can_read)
{
	start(0, 2);
	run_ticks(5);
	cr_assert_eq(chmod(key_file(), 0640), 0);
	start(1, 2);
	run(false);
	result(1, FAR_DENIED, "chmod 600");
}

Test(control_join_key, a_directory_that_others_can_enter)
{
	chmod(top, 0755);
	start(0, 2);
	run(false);
	result(0, FAR_DENIED, "must be yours with mode 700");
	chmod(top, 0700);
}

/* ---- given keys ---- */

static void differs(enum key_kind host, enum key_kind member, const char *part)
{
	security = host;
	start(0, 2);
	security = member;
	secret = "another key";
	start(1, 2);
	run_ticks(200);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_FAILED, "no attempt helps");
	result(1, FAR_DENIED, part);
	cr_assert_eq(ctl_state(members[0].ctl), CTL_JOINING);
}

Test(control_join_key, another_key)
{
	differs(KEY_GIVEN, KEY_GIVEN, "has another key than worker \"w1\"");
}

Test(control_join_key, a_member_without_a_key)
{
	differs(KEY_GIVEN, KEY_NONE, "requires its group's key, and worker \"w1\" has security=none");
}

Test(control_join_key, a_store_without_a_key)
{
	differs(KEY_NONE, KEY_GIVEN, "has no key (security=none), and worker \"w1\" has one");
}

/* ---- a store that no member hosts ---- */

/* The store's thread needs real time, which the members' clock does not show. */
static void settles(int n)
{
	uint64_t until = clock_now(&clock_monotonic) + 30 * FAR_SEC;
	for (bool all = false; !all && clock_now(&clock_monotonic) < until; sched_yield()) {
		all = true;
		for (int i = 0; i < n; i++) {
			ctl_step(members[i].ctl, world->now);
			all &= ctl_state(members[i].ctl) != CTL_JOINING;
		}
	}
}

/* The first member's key is everybody's. */
Test(control_join_key, members_agree_on_it)
{
	char url[128];
	snprintf(url, sizeof url, "file://%s/store", top);
	method = url;
	for (int i = 0; i < 3; i++)
		start(i, 3);
	settles(3);
	for (int i = 0; i < 3; i++)
		ready(i);
	one_key(3);
	cr_assert_str_eq(key_file(), "", "nobody made a file for it");
}
