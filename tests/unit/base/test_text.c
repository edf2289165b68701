/* SPDX-License-Identifier: BSD-3-Clause */
/** Texts of errors that are cut. The test's thread. */
#include "base/text.h"

#include "base/error.h"
#include "nic/udp/udp_port.h"

#include <criterion/criterion.h>

static const char *cut(size_t cap, const char *text)
{
	static char out[64];
	memset(out, 'x', sizeof out);
	size_t n = text_set(out, cap, "%s", text);
	cr_assert_eq(n, strlen(out));
	cr_assert_lt(n, cap);
	return out;
}

Test(text, what_fits_is_whole)
{
	cr_assert_str_eq(cut(8, ""), "");
	cr_assert_str_eq(cut(8, "one two"), "one two");
	cr_assert_str_eq(cut(16, "one two, three."), "one two, three.");
}

Test(text, what_does_not_fit_ends_with_a_word)
{
	static const char text[] = "one two, three: four";
	cr_assert_str_eq(cut(sizeof text - 1, text), "one two, three...");
	cr_assert_str_eq(cut(18, text), "one two...");
	cr_assert_str_eq(cut(12, text), "one two...");
	cr_assert_str_eq(cut(11, text), "one...");
	cr_assert_str_eq(cut(10, text), "one...");
}

Test(text, one_long_word)
{
	cr_assert_str_eq(cut(10, "abcdefghijklmnop"), "abcdef...");
	cr_assert_str_eq(cut(4, "abcdefg"), "abc");
	cr_assert_str_eq(cut(1, "abcdefg"), "");
}

/* Does it end with a word of `words` and three dots. */
static void expect_word(const char *got, size_t cap, const char *words)
{
	size_t n = strlen(got);
	cr_assert(n < cap && n > cap / 2 && strcmp(got + n - 3, "...") == 0, "%s", got);
	cr_assert(strncmp(got, words, n - 3) == 0 && words[n - 3] == ' ', "%s", got);
}

/* The errors of a driver, and those of calls. */
Test(text, errors)
{
	static char words[1024];
	struct nic_err why;
	struct far_err err;
	for (size_t i = 0; i < sizeof words - 1; i++)
		words[i] = i % 11 == 10 ? ' ' : 'w';
	udp_error(&why, -1, "%s", words);
	expect_word(why.text, sizeof why.text, words);
	err_set(&err, FAR_RESOURCE, "%s", words);
	expect_word(err.text, sizeof err.text, words);
}
