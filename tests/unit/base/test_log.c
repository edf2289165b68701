/* SPDX-License-Identifier: BSD-3-Clause */
/** The log: levels by FAR_LOG and by call, the hook and what it is given. The test's thread. */
#include "base/log.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct {
	unsigned n;
	enum far_log_level level;
	char text[2048];
	size_t fields_n;
	struct far_log_field first;
} seen;

static void keep(enum far_log_level level, const char *text, const struct far_log_field *fields, size_t n, void *user)
{
	cr_assert_eq(user, &seen);
	seen.n++;
	seen.level = level;
	cr_assert_lt(strlen(text), sizeof seen.text);
	strcpy(seen.text, text);
	seen.fields_n = n;
	if (n)
		seen.first = fields[0];
}

static void setup(void)
{
	unsetenv("FAR_LOG");
	far_log_set(keep, &seen);
}

TestSuite(log, .init = setup);

static unsigned logged(enum far_log_level level)
{
	unsigned before = seen.n;
	log_line(level, "x");
	return seen.n - before;
}

Test(log, words)
{
	cr_expect_eq(log_level_of("none"), FAR_LOG_NONE);
	cr_expect_eq(log_level_of("error"), FAR_LOG_ERROR);
	cr_expect_eq(log_level_of("warning"), FAR_LOG_WARNING);
	cr_expect_eq(log_level_of("info"), FAR_LOG_INFO);
	cr_expect_eq(log_level_of("debug"), FAR_LOG_DEBUG);
	cr_expect_eq(log_level_of("Info"), -1);
	cr_expect_eq(log_level_of(""), -1);
	cr_expect_eq(log_level_of("information"), -1);
}

Test(log, info_unless_asked_otherwise)
{
	cr_expect_eq(logged(FAR_LOG_INFO), 1u);
	cr_expect_eq(logged(FAR_LOG_DEBUG), 0u);
}

Test(log, the_environment_sets_the_level)
{
	setenv("FAR_LOG", "error", 1);
	cr_expect_eq(logged(FAR_LOG_ERROR), 1u);
	cr_expect_eq(logged(FAR_LOG_WARNING), 0u);
	setenv("FAR_LOG", "debug", 1);
	cr_expect_eq(logged(FAR_LOG_WARNING), 0u, "it is read once");
}

Test(log, a_call_sets_the_level_for_good)
{
	setenv("FAR_LOG", "debug", 1);
	far_log_level_set(FAR_LOG_NONE);
	cr_expect_eq(logged(FAR_LOG_ERROR), 0u);
	far_log_level_set(FAR_LOG_DEBUG);
	cr_expect_eq(logged(FAR_LOG_DEBUG), 1u);
}

Test(log, the_hook_gets_text_and_fields)
{
	const struct far_log_field fields[] = {{.name = "worker", .value = "w1"}};
	char longest[1500];
	memset(longest, 'a', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	log_fields(FAR_LOG_WARNING, fields, 1, "%s is gone after %d ms", "w1", 5);
	cr_assert_eq(seen.level, FAR_LOG_WARNING);
	cr_assert_str_eq(seen.text, "w1 is gone after 5 ms");
	cr_assert_eq(seen.fields_n, 1u);
	cr_assert_str_eq(seen.first.name, "worker");
	cr_assert_str_eq(seen.first.value, "w1");
	log_line(FAR_LOG_ERROR, "%s", longest);
	cr_assert_eq(strlen(seen.text), 1023u, "cut, not split");
	far_log_set(NULL, NULL);
	unsigned before = seen.n;
	log_line(FAR_LOG_ERROR, "on stderr");
	cr_assert_eq(seen.n, before);
}
