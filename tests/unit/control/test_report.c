/* SPDX-License-Identifier: BSD-3-Clause */
/** Log lines of the control thread: their fields, and how many there are in a time. */
#include "control/group.h"

#include <criterion/criterion.h>
#include <farcall/log.h>
#include <stdlib.h>
#include <string.h>

static unsigned lines;
static char last[256], left_out[16], peer[FAR_NAME_MAX];

static void hook(enum far_log_level level, const char *text, const struct far_log_field *fields, size_t n, void *user)
{
	(void)user;
	cr_assert_eq(level, FAR_LOG_DEBUG);
	lines++;
	snprintf(last, sizeof last, "%s", text);
	*left_out = *peer = '\0';
	for (size_t i = 0; i < n; i++) {
		if (strcmp(fields[i].name, "left_out") == 0)
			snprintf(left_out, sizeof left_out, "%s", fields[i].value);
		if (strcmp(fields[i].name, "peer") == 0)
			snprintf(peer, sizeof peer, "%s", fields[i].value);
	}
}

Test(control_report, lines_have_a_rate)
{
	static struct group g;
	struct ctl_member members[2];
	struct peer p = {.group = &g, .rank = 1};
	memset(members, 0, sizeof members);
	members[1].name = "b";
	strcpy(g.name, "a");
	g.members = members;
	g.now = 5;
	far_log_set(hook, NULL);
	group_report(&g, &p, "is lost", "x");
	cr_assert_eq(lines, 0, "not by default");
	far_log_level_set(FAR_LOG_DEBUG);
	g.now += 100 * FAR_SEC;
	group_report(&g, &p, "is lost", "its process is gone");
	cr_assert_str_eq(last, "worker \"a\": worker \"b\" (rank 1) is lost: its process is gone");
	cr_assert_str_eq(peer, "b");
	for (int i = 0; i < 40; i++)
		group_report(&g, NULL, "the store is lost", "");
	cr_assert_str_eq(last, "worker \"a\": the store is lost");
	cr_assert_eq(lines, 16);
	g.now += 10 * FAR_SEC - 1;
	group_report(&g, &p, "is back", "");
	cr_assert_eq(lines, 16);
	g.now += 1;
	group_report(&g, &p, "is back", "");
	cr_assert_eq(lines, 17);
	cr_assert_str_eq(last, "worker \"a\": worker \"b\" (rank 1) is back (26 lines before it were left out)");
	cr_assert_str_eq(left_out, "26");
	group_report(&g, &p, "is back", "");
	cr_assert_eq(lines, 18);
	cr_assert_str_eq(left_out, "");
}
