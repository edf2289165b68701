/* SPDX-License-Identifier: BSD-3-Clause */
/** Scenario files: what is taken, and that errors are reported with file, line and remedy. The test's thread. */
#include "sim/scenario.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char err[KEYWORDS_ERR_MAX];

struct sample {
	char name[KEYWORDS_NAME_MAX];
	char about[KEYWORDS_TEXT_MAX];
	uint32_t count, chance, choice, set;
	uint32_t pick[3];
	uint64_t size, time, rate;
	struct range sizes, times;
};

static const char *const colours[] = {"red", "green", "blue", NULL};

#define AT(field) offsetof(struct sample, field)
static const struct word table[] = {{"name", KEYWORD_NAME, AT(name), 0, 0, NULL, false},
				    {"about", KEYWORD_TEXT, AT(about), 0, 0, NULL, false},
				    {"count", KEYWORD_COUNT, AT(count), 1, 100, NULL, false},
				    {"chance", KEYWORD_CHANCE, AT(chance), 0, KEYWORDS_CHANCE, NULL, false},
				    {"choice", KEYWORD_CHOICE, AT(choice), 0, 0, colours, false},
				    {"set", KEYWORD_SET, AT(set), 0, 0, colours, false},
				    {"pick", KEYWORD_PICK, AT(pick), 0, 9, colours, false},
				    {"size", KEYWORD_SIZE, AT(size), 1, 1 << 30, NULL, false},
				    {"time", KEYWORD_TIME, AT(time), 1, UINT64_C(100000000000), NULL, false},
				    {"rate", KEYWORD_RATE, AT(rate), 1000000, UINT64_C(1000000000000), NULL, false},
				    {"sizes", KEYWORD_SIZES, AT(sizes), 0, 1 << 20, NULL, false},
				    {"times", KEYWORD_TIMES, AT(times), 0, UINT64_C(100000000000), NULL, false},
				    {NULL, KEYWORD_COUNT, 0, 0, 0, NULL, false}};

static struct sample read_well(const char *text)
{
	struct sample s = {.count = 7};
	cr_assert_eq(keywords_read("sample", "a.txt", text, table, &s, err), 0, "%s: %s", text, err);
	return s;
}

static void refused(const char *text, const char *word)
{
	struct sample s = {0};
	cr_assert_eq(keywords_read("sample", "a.txt", text, table, &s, err), -EINVAL, "taken: %s", text);
	cr_assert(strstr(err, "a.txt:"), "no file in: %s", err);
	cr_assert(strstr(err, word), "no \"%s\" in: %s", word, err);
}

Test(sim_scenario, values)
{
	struct sample s = read_well("# a comment\n\n  name x-1 # another\nabout some words, here\ncount 100\n"
				    "chance 0.5%\nchoice blue\nset red\nset blue\npick green 9\nsize 4k\ntime 1.5ms\n"
				    "rate 25G\nsizes 8..1M\ntimes 0us..3s\r\n");
	cr_assert_str_eq(s.name, "x-1");
	cr_assert_str_eq(s.about, "some words, here");
	cr_assert_eq(s.count, 100);
	cr_assert_eq(s.chance, 5000000);
	cr_assert_eq(s.choice, 2);
	cr_assert_eq(s.set, 5);
	cr_assert_eq(s.pick[1], 9);
	cr_assert_eq(s.size, 4096);
	cr_assert_eq(s.time, 1500000);
	cr_assert_eq(s.rate, UINT64_C(25000000000));
	cr_assert(s.sizes.min == 8 && s.sizes.max == 1 << 20);
	cr_assert(s.times.min == 0 && s.times.max == UINT64_C(3000000000));
	s = read_well("");
	cr_assert_eq(s.count, 7, "a default was touched");
	cr_assert_eq(read_well("chance 1").chance, KEYWORDS_CHANCE);
	cr_assert_eq(read_well("sizes 5").sizes.max, 5);
}

Test(sim_scenario, mistakes_name_the_place_and_what_is_allowed)
{
	refused("colour red\n", "a.txt:1: 'colour' is no word of a sample; allowed are: name, about, count");
	refused("count 3\n\ncount 4\n", "a.txt:3: 'count' is given twice");
	refused("count\n", "count takes a number; from 1 to 100");
	refused("count 0\n", "from 1 to 100");
	refused("count 101\n", "from 1 to 100");
	refused("count 1 2\n", "count takes");
	refused("count 1.5\n", "count takes");
	refused("count -1\n", "count takes");
	refused("count 99999999999999999999999\n", "count takes");
	refused("choice pink\n", "one of: red, green, blue");
	refused("set red blue\n", "one of: red, green, blue");
	refused("pick red\n", "a number and one of: red, green, blue");
	refused("pick red 10\n", "a number and one of: red, green, blue");
	refused("chance 1.1\n", "up to 1");
	refused("chance 101%\n", "up to 1");
	refused("time 5\n", "with its unit");
	refused("time 200s\n", "to 100s");
	refused("size 2G\n", "from 1 to");
	refused("sizes 9..8\n", "a range of them");
	refused("sizes 1..2..3\n", "a range of them");
	refused("times ..1s\n", "a range of them");
	refused("times 18446744073709551615s\n", "a range of them");
	refused("rate 5\n", "bits per second");
	refused("name a/b\n", "letters, digits");
	refused("name ..\n", "letters, digits");
	refused("about\n", "a text");
	char line[600];
	memset(line, 'x', sizeof line);
	line[sizeof line - 1] = '\0';
	refused(line, "longer than");
}

Test(sim_scenario, what_is_needed)
{
	static const struct word needy[] = {{"count", KEYWORD_COUNT, AT(count), 1, 100, NULL, true},
					    {NULL, KEYWORD_COUNT, 0, 0, 0, NULL, false}};
	struct sample s = {0};
	cr_assert_eq(keywords_read("sample", "b.txt", "# nothing\n", needy, &s, err), -EINVAL);
	cr_assert(strstr(err, "b.txt:1: a sample needs a line 'count"), "%s", err);
}

Test(sim_scenario, every_built_in_one_can_be_read)
{
	unsigned n = 0;
	for (const char *name; (name = scenario_builtin(n)); n++) {
		struct scenario s;
		char own[KEYWORDS_NAME_MAX];
		snprintf(own, sizeof own, "%s", name);
		cr_assert_eq(scenario_load(own, &s, err), 0, "%s: %s", own, err);
		cr_assert(s.about[0] && s.checks.check && s.workload.calls, "%s", own);
		cr_assert_str_eq(s.name, own);
	}
	cr_assert_geq(n, 20);
}

/* A file that nothing names is dead weight: a part must be of some scenario. */
Test(sim_scenario, every_part_is_used)
{
	for (const struct scenario_text *t = scenario_texts; t->path; t++) {
		bool used = !strchr(t->path, '/');
		for (unsigned n = 0; scenario_builtin(n) && !used; n++) {
			struct scenario s;
			char paths[3][128], own[KEYWORDS_NAME_MAX];
			snprintf(own, sizeof own, "%s", scenario_builtin(n));
			cr_assert_eq(scenario_load(own, &s, err), 0);
			snprintf(paths[0], sizeof paths[0], "workloads/%s.txt", s.workload_name);
			snprintf(paths[1], sizeof paths[1], "disturbances/%s.txt", s.disturbance_name);
			snprintf(paths[2], sizeof paths[2], "checkers/%s.txt", s.checkers_name);
			for (unsigned i = 0; i < 3; i++)
				used |= strcmp(paths[i], t->path) == 0;
		}
		cr_assert(used, "%s", t->path);
	}
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

Test(sim_scenario, files_of_the_users_own)
{
	char dir[] = "/tmp/far-scenario-XXXXXX", path[128];
	struct scenario s;
	cr_assert(mkdtemp(dir));
	cr_assert_eq(chdir(dir), 0);
	cr_assert_eq(mkdir("workloads", 0700), 0);
	write_file("workloads/mine.txt", "mix echo 1\ncalls 3\n");
	write_file("one.txt", "about mine\nworkload mine\ndisturbance none\ncheckers always\nworkers 6\n");
	cr_assert_eq(scenario_load("one.txt", &s, err), 0, "%s", err);
	cr_assert(s.workload.calls == 3 && s.workers == 6);
	snprintf(path, sizeof path, "%s/one.txt", dir);
	cr_assert_eq(scenario_load(path, &s, err), 0, "%s", err);

	cr_assert_eq(scenario_load("./two.txt", &s, err), -ENOENT);
	cr_assert(strstr(err, "cannot read ./two.txt: No such file"), "%s", err);
	write_file("two.txt", "about x\nworkload other\ndisturbance none\ncheckers always\n");
	cr_assert_eq(scenario_load("./two.txt", &s, err), -ENOENT);
	cr_assert(strstr(err, "no workload 'other' beside the scenario; built in are: ") && strstr(err, "echo"), "%s",
		  err);
	write_file("workloads/mine.txt", "mix echo 0\ncalls 3\n");
	cr_assert_eq(scenario_load("one.txt", &s, err), -EINVAL);
	cr_assert(strstr(err, "every 'mix' of the workload is 0"), "%s", err);
	write_file("two.txt", "about x\nworkload echo\ndisturbance none\ncheckers always\ntopology pair\nworkers 4\n");
	cr_assert_eq(scenario_load("two.txt", &s, err), -EINVAL);
	cr_assert(strstr(err, "topology pair has 2 workers, not 4"), "%s", err);
	write_file("two.txt", "about x\nworkload echo\ndisturbance crashes\ncheckers always\nworkers 3\n");
	cr_assert_eq(scenario_load("two.txt", &s, err), -EINVAL);
	cr_assert(strstr(err, "even number of workers"), "%s", err);
	cr_assert_eq(scenario_load("nothing", &s, err), -ENOENT);
	cr_assert(strstr(err, "there is no scenario 'nothing'; built in are: ") && strstr(err, "loss-without-death"),
		  "%s", err);
	unlink("workloads/mine.txt");
	unlink("one.txt");
	unlink("two.txt");
	rmdir("workloads");
	rmdir(dir);
}
