/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists of members in error texts. The test's thread. */
#include "control/group.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(names, members_with_and_without_a_name)
{
	struct names names = {0};
	names_add(&names, 0, "server");
	names_add(&names, 2, "");
	names_add(&names, 7, "w7");
	cr_assert_str_eq(names_end(&names), "rank 0 (worker \"server\"), rank 2, rank 7 (worker \"w7\")");
}

Test(names, none)
{
	struct names names = {0};
	cr_assert_str_eq(names_end(&names), "");
}

/* However long the names, the text ends within its array, is a list of whole members, and counts the others. */
Test(names, those_that_do_not_fit_are_counted)
{
	char name[FAR_NAME_MAX];
	for (size_t len = 1; len < sizeof name; len++) {
		struct names names = {0};
		memset(name, 'n', len);
		name[len] = '\0';
		for (int rank = 0; rank < 2000; rank++)
			names_add(&names, rank, name);
		const char *text = names_end(&names);
		char expected[sizeof names.text + FAR_NAME_MAX + 64] = "";
		size_t at = 0;
		for (int rank = 0; rank < names.shown; rank++)
			at += (size_t)snprintf(expected + at, sizeof expected - at, "%srank %d (worker \"%s\")",
					       rank ? ", " : "", rank, name);
		snprintf(expected + at, sizeof expected - at, " and %d more", 2000 - names.shown);
		cr_assert_lt(strlen(text), sizeof names.text);
		cr_assert_str_eq(text, expected, "names of %zu bytes", len);
	}
}

/* A short name behind a long one that did not fit is not shown: the list has no gaps. */
Test(names, no_gaps)
{
	struct names names = {0};
	char name[FAR_NAME_MAX];
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	int rank = 0;
	do
		names_add(&names, rank++, name);
	while (names.shown == rank);
	cr_assert_lt(rank, 100);
	names_add(&names, rank, "");
	cr_assert_eq(names.shown, rank - 1);
	cr_assert(strstr(names_end(&names), " and 2 more"));
}
