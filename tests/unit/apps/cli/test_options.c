/* SPDX-License-Identifier: BSD-3-Clause */
/** Command lines as tables: sizes, durations, lists, mistakes. The test's thread. */
#include "apps/cli/options.h"
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <string.h>

static char text[OPTIONS_TEXT_MAX];

static uint64_t number(enum option_type type, const char *value)
{
	uint64_t v = 0;
	struct option_spec spec = {.name = "flag", .type = type, .out = &v, .min = 0, .max = UINT64_C(1) << 62};
	cr_assert_eq(options_read(&spec, value, text), 0, "%s: %s", value, text);
	return v;
}

static void refused(enum option_type type, const char *value, const char *word)
{
	uint64_t v = 77;
	struct option_spec spec = {.name = "flag", .type = type, .out = &v, .min = 1, .max = 4096};
	cr_assert_eq(options_read(&spec, value, text), -EINVAL, "%s was taken", value);
	cr_assert_eq(v, 77, "%s: the value was touched", value);
	cr_assert(strstr(text, "--flag"), "%s: the flag is not named: %s", value, text);
	cr_assert(strstr(text, word), "%s: no \"%s\" in: %s", value, word, text);
}

Test(options, sizes)
{
	cr_assert_eq(number(OPTION_SIZE, "32"), 32);
	cr_assert_eq(number(OPTION_SIZE, "32B"), 32);
	cr_assert_eq(number(OPTION_SIZE, "4K"), 4096);
	cr_assert_eq(number(OPTION_SIZE, "4KiB"), 4096);
	cr_assert_eq(number(OPTION_SIZE, "1.5k"), 1536);
	cr_assert_eq(number(OPTION_SIZE, "2M"), 2 << 20);
	cr_assert_eq(number(OPTION_SIZE, "1G"), 1 << 30);
	cr_assert_eq(number(OPTION_SIZE, "0"), 0);
}

Test(options, durations)
{
	cr_assert_eq(number(OPTION_DURATION, "5"), UINT64_C(5000000000));
	cr_assert_eq(number(OPTION_DURATION, "2.5s"), UINT64_C(2500000000));
	cr_assert_eq(number(OPTION_DURATION, "100ms"), 100000000);
	cr_assert_eq(number(OPTION_DURATION, "7us"), 7000);
	cr_assert_eq(number(OPTION_DURATION, "9ns"), 9);
	cr_assert_eq(number(OPTION_DURATION, "2m"), UINT64_C(120000000000));
}

Test(options, mistakes_name_the_flag_and_the_remedy)
{
	static const char *const bad[] = {"", "x", "-1", "+1", " 1", "1 ", "0x10", "inf", "nan", "1e3", "1..2", "3Q"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		refused(OPTION_COUNT, bad[i], "give one from 1 to 4096");
		refused(OPTION_SIZE, bad[i], "such as");
		refused(OPTION_DURATION, bad[i], "such as");
	}
	refused(OPTION_COUNT, "1.5", "whole number");
	refused(OPTION_COUNT, "0", "from 1 to 4096");
	refused(OPTION_COUNT, "4097", "from 1 to 4096");
	refused(OPTION_SIZE, "99999999999999999999G", "out of range");
}

static struct option_list numbers(enum option_type type, const char *value)
{
	struct option_list list = {.n = 0};
	struct option_spec spec = {.name = "flag", .type = type, .out = &list, .min = 1, .max = 1 << 20};
	cr_assert_eq(options_read(&spec, value, text), 0, "%s: %s", value, text);
	return list;
}

static void list_refused(enum option_type type, const char *value, const char *word)
{
	struct option_list list = {.value = {5}, .n = 1};
	struct option_spec spec = {.name = "flag", .type = type, .out = &list, .min = 1, .max = 4096};
	cr_assert_eq(options_read(&spec, value, text), -EINVAL, "%s was taken", value);
	cr_assert(list.n == 1 && list.value[0] == 5, "%s: the list was touched", value);
	cr_assert(strstr(text, "--flag"), "%s: the flag is not named: %s", value, text);
	cr_assert(strstr(text, word), "%s: no \"%s\" in: %s", value, word, text);
}

Test(options, lists)
{
	struct option_list l = numbers(OPTION_SIZES, "64K,1M,7");
	cr_assert(l.n == 3 && l.value[0] == 65536 && l.value[1] == 1 << 20 && l.value[2] == 7);
	l = numbers(OPTION_COUNTS, "4");
	cr_assert(l.n == 1 && l.value[0] == 4);
	l = numbers(OPTION_COUNTS, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16");
	cr_assert(l.n == OPTIONS_LIST_MAX && l.value[15] == 16);
}

Test(options, mistakes_in_lists)
{
	static const char *const bad[] = {"", ",", "1,", ",1", "1,,2", "1 2", "1, 2", "1;2", "1,x", "-1,2"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		list_refused(OPTION_COUNTS, bad[i], "whole number");
		list_refused(OPTION_SIZES, bad[i], "such as");
	}
	list_refused(OPTION_COUNTS, "1,4K", "whole number");
	list_refused(OPTION_COUNTS, "1,0", "from 1 to 4096");
	list_refused(OPTION_SIZES, "1K,8K", "from 1 to 4096");
	list_refused(OPTION_COUNTS, "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "at most 16");
	char many_digits[400];
	memset(many_digits, '1', sizeof many_digits - 1);
	many_digits[sizeof many_digits - 1] = 0;
	list_refused(OPTION_COUNTS, many_digits, "whole number");
}

Test(options, choices)
{
	static const char *words[] = {"message", "rpc", NULL};
	int v = 0;
	struct option_spec spec = {.name = "api", .type = OPTION_CHOICE, .out = &v, .choice = words};
	cr_assert_eq(options_read(&spec, "rpc", text), 0);
	cr_assert_eq(v, 1);
	cr_assert_eq(options_read(&spec, "rp", text), -EINVAL);
	cr_assert(strstr(text, "message, rpc"), "%s", text);
	cr_assert_eq(v, 1);
}

struct parsed {
	uint64_t n;
	bool json;
	const char *nic;
	int rest;
	enum options_result result;
};

static struct parsed parse(int argc, const char **argv)
{
	struct parsed p = {.nic = "auto"};
	const struct option_spec specs[] = {{"workers", 'n', OPTION_COUNT, &p.n, 1, 256, "N", "how many", NULL},
					    {"json", 0, OPTION_FLAG, &p.json, 0, 0, NULL, "an object", NULL},
					    {"nic", 0, OPTION_TEXT, &p.nic, 0, 0, "NAME", "driver", NULL},
					    {"secret", 0, OPTION_TEXT, &p.nic, 0, 0, "NAME", NULL, NULL},
					    {.name = ""}};
	const struct option_command command = {"farcall test", "[OPTIONS]", "About.", specs};
	p.result = options_parse(&command, argc, (char **)(uintptr_t)argv, &p.rest);
	return p;
}

#define PARSE(...)                                                                                                     \
	parse((int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]){__VA_ARGS__, NULL})

Test(options, forms_of_a_flag)
{
	cr_assert_eq(PARSE("test", "-n", "3").n, 3);
	cr_assert_eq(PARSE("test", "-n3").n, 3);
	cr_assert_eq(PARSE("test", "--workers", "3").n, 3);
	cr_assert_eq(PARSE("test", "--workers=3").n, 3);
	cr_assert(PARSE("test", "--json").json);
	cr_assert_not(PARSE("test").json);
}

Test(options, the_program_keeps_its_own_flags)
{
	struct parsed p = PARSE("test", "-n", "3", "--", "prog", "--json");
	cr_assert_eq(p.result, OPTIONS_GO);
	cr_assert_eq(p.rest, 4);
	cr_assert_not(p.json);
	p = PARSE("test", "-n", "3", "prog", "--json");
	cr_assert_eq(p.result, OPTIONS_GO);
	cr_assert_eq(p.rest, 3);
	cr_assert_not(p.json);
}

Test(options, an_unknown_flag_gets_a_suggestion, .init = cr_redirect_stderr)
{
	cr_assert_eq(PARSE("test", "--jsno").result, OPTIONS_WRONG);
	cr_assert_eq(PARSE("test", "--nix", "x").result, OPTIONS_WRONG);
	fflush(stderr);
	cr_assert_stderr_eq_str(
		"farcall test: unknown option --jsno; did you mean --json?\nTry 'farcall test --help'.\n"
		"farcall test: unknown option --nix; did you mean --nic?\nTry 'farcall test --help'.\n");
}

Test(options, missing_and_superfluous_values, .init = cr_redirect_stderr)
{
	cr_assert_eq(PARSE("test", "--nic").result, OPTIONS_WRONG);
	cr_assert_eq(PARSE("test", "--json=1").result, OPTIONS_WRONG);
	cr_assert_eq(PARSE("test", "-x").result, OPTIONS_WRONG);
	fflush(stderr);
	cr_assert_stderr_eq_str("farcall test: --nic needs a value\nTry 'farcall test --help'.\n"
				"farcall test: --json=1 takes no value\nTry 'farcall test --help'.\n"
				"farcall test: unknown option -x\nTry 'farcall test --help'.\n");
}

Test(options, the_last_of_two_values_counts)
{
	struct parsed p = PARSE("test", "-n", "3", "--workers=4");
	cr_assert_eq(p.result, OPTIONS_GO);
	cr_assert_eq(p.n, 4);
}

Test(options, an_empty_text)
{
	const char *value = "before";
	struct option_spec spec = {.name = "flag", .type = OPTION_TEXT, .out = &value, .value = "FILE"};
	cr_assert_eq(options_read(&spec, "", text), -EINVAL);
	cr_assert_str_eq(text, "--flag: the value is empty; give FILE, or leave the option out");
	cr_assert_str_eq(value, "before");
}

Test(options, help_and_version_end_it, .init = cr_redirect_stdout)
{
	cr_assert_eq(PARSE("test", "--help").result, OPTIONS_DONE);
	cr_assert_eq(PARSE("test", "-h").result, OPTIONS_DONE);
	cr_assert_eq(PARSE("test", "--version").result, OPTIONS_DONE);
}

Test(options, suggestions)
{
	static const char *const words[] = {"run", "info", "perf", "pserver", "train", NULL};
	cr_assert_str_eq(options_suggest("runn", words), "run");
	cr_assert_str_eq(options_suggest("pref", words), "perf");
	cr_assert_str_eq(options_suggest("tarin", words), "train");
	cr_assert_null(options_suggest("launch", words));
	cr_assert_null(options_suggest("x", words));
	cr_assert_null(options_suggest("", words));
}
