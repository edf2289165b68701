/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall sim`: whole clusters under a simulated network, any number of seeds. Main thread. */
#include "apps/cli/options.h"
#include "base/mutant.h"
#include "commands.h"
#include "sim/runner.h"

#include <farcall/future.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME          "farcall sim"
#define SCENARIOS_MAX 128
#define SEEDS         10
#define LIMIT_NS      (120 * FAR_SEC)
#define FAILURES      "farcall-sim-failures.txt"
#define STATE         "farcall-sim-campaign.txt"

static unsigned cpus(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
	return n < 1 ? 1 : n > RUNNER_JOBS_MAX ? RUNNER_JOBS_MAX : (unsigned)n;
}

static void list(void)
{
	char err[KEYWORDS_ERR_MAX];
	for (unsigned i = 0; scenario_builtin(i); i++) {
		char name[KEYWORDS_NAME_MAX];
		struct scenario s;
		snprintf(name, sizeof name, "%s", scenario_builtin(i));
		if (scenario_load(name, &s, err) == 0)
			printf("%-22s %s (%u workers; %s, %s, %s)\n", name, s.about, s.workers, s.workload_name,
			       s.disturbance_name, s.checkers_name);
		else
			printf("%-22s %s\n", name, err);
	}
}

/* Reads the scenarios of the arguments. Returns their number; 0: the mistake was printed. */
static unsigned load(const char *which, struct scenario *scenarios, char (*names)[KEYWORDS_NAME_MAX],
		     const char **pointers)
{
	char err[KEYWORDS_ERR_MAX];
	unsigned n = 0;
	bool all = strcmp(which, "all") == 0;
	for (; n < SCENARIOS_MAX && (all ? scenario_builtin(n) != NULL : n == 0); n++) {
		if (all)
			snprintf(names[n], sizeof names[n], "%s", scenario_builtin(n));
		pointers[n] = all ? names[n] : which;
		if (scenario_load(pointers[n], &scenarios[n], err) < 0) {
			fprintf(stderr, NAME ": %s\n", err);
			return 0;
		}
	}
	return n;
}

/* In the copy of the engine that has them (tests/sim). */
static int plant(const char *name)
{
#ifdef FAR_MUTANTS
	static const char *const names[] = {"none",
#define MUTANT_NAME(id, text, about) text,
					    MUTANT_LIST(MUTANT_NAME)
#undef MUTANT_NAME
	};
	for (unsigned i = 0; i < MUTANT_COUNT; i++)
		if (strcmp(names[i], name) == 0) {
			mutant_planted = (enum mutant)i;
			return 0;
		}
	if (strcmp(name, "list") == 0) {
		for (unsigned i = 1; i < MUTANT_COUNT; i++)
			printf("%s\n", names[i]);
		exit(0);
	}
#endif
	return options_wrong(NAME, "--mutant '%s': this program has no such defect", name);
}

/* Opens the campaign, runs it, closes it. */
static int run_campaign(struct runner *r, const char *state, uint64_t runs)
{
	static struct campaign campaign;
	char err[KEYWORDS_ERR_MAX];
	if (campaign_open(&campaign, state, r->names, r->scenarios_n, runs, r->from, err) < 0) {
		fprintf(stderr, NAME ": %s\n", err);
		return OPTIONS_EXIT_USAGE;
	}
	r->campaign = &campaign;
	int rc = runner_run(r);
	campaign_close(&campaign);
	return rc;
}

int cmd_sim(int argc, char **argv)
{
	static struct scenario scenarios[SCENARIOS_MAX];
	static char names[SCENARIOS_MAX][KEYWORDS_NAME_MAX];
	static const char *pointers[SCENARIOS_MAX];
	uint64_t seeds = SEEDS, from = 1, jobs = cpus(), limit = LIMIT_NS, campaign = 0;
	const char *which = "all", *failures = FAILURES, *state = NULL, *mutant = NULL;
	bool trace = false, show = false, hashes = false, json = false;
	const struct option_spec specs[] = {
		{"seeds", 'n', OPTION_COUNT, &seeds, 1, 1000000000, "N",
		 "runs of each scenario, each with the next seed (default 10)", NULL},
		{"from", 0, OPTION_COUNT, &from, 0, UINT64_C(1) << 62, "SEED", "the first seed (default 1)", NULL},
		{"scenario", 's', OPTION_TEXT, &which, 0, 0, "NAME",
		 "a name of --list, a scenario file, or 'all' (default)", NULL},
		{"jobs", 'j', OPTION_COUNT, &jobs, 1, RUNNER_JOBS_MAX, "N",
		 "processes at once (default: as many as CPUs)", NULL},
		{"trace", 0, OPTION_FLAG, &trace, 0, 0, NULL,
		 "print a line for each packet (one scenario and one seed)", NULL},
		{"hashes", 0, OPTION_FLAG, &hashes, 0, 0, NULL, "print the SHA-256 of the packets of each run", NULL},
		{"limit", 0, OPTION_DURATION, &limit, FAR_SEC, 86400 * FAR_SEC, "TIME",
		 "CPU time after which a run has failed (default 120s)", NULL},
		{"failures", 0, OPTION_TEXT, &failures, 0, 0, "FILE",
		 "what failed is written there (default " FAILURES ")", NULL},
		{"campaign", 'c', OPTION_COUNT, &campaign, 1, 1000000000, "RUNS",
		 "run RUNS runs, spread evenly over the scenarios, with totals; repeat the command to continue", NULL},
		{"state", 0, OPTION_TEXT, &state, 0, 0, "FILE",
		 "where a campaign keeps what it has done (default " STATE ")", NULL},
		{"json", 0, OPTION_FLAG, &json, 0, 0, NULL, "print the report of a campaign as one line of JSON", NULL},
		{"list", 0, OPTION_FLAG, &show, 0, 0, NULL, "list the scenarios", NULL},
		{"mutant", 0, OPTION_TEXT, &mutant, 0, 0, "NAME", NULL, NULL},
		{.name = ""}};
	const struct option_command command = {
		NAME, "[OPTIONS]",
		"Runs whole clusters of the engine on a simulated network with a virtual clock, and checks each run:\n"
		"every call executed once, in time, with the right bytes or the right error, and nothing left behind.\n"
		"A run depends on its scenario and seed only. Each failure is printed with the command that repeats\n"
		"it. Exit status 0: all runs passed.\n\n"
		"A campaign (--campaign RUNS) writes its state to a file once a second. The same command continues an\n"
		"interrupted campaign without losing or repeating a run. It reports runs, failures, calls and faults\n"
		"by scenario; earlier failures count in the exit status.",
		specs};
	int rest;
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest < argc)
		return options_wrong(NAME, "unexpected argument '%s'", argv[rest]);
	if (show) {
		list();
		return 0;
	}
	if (mutant && plant(mutant))
		return OPTIONS_EXIT_USAGE;
	struct runner r = {.scenarios = scenarios,
			   .names = pointers,
			   .scenarios_n = load(which, scenarios, names, pointers),
			   .seeds = seeds,
			   .from = from,
			   .jobs = (unsigned)jobs,
			   .limit_ns = limit,
			   .failures_file = failures,
			   .repeat_more = "",
			   .trace = trace,
			   .hashes = hashes,
			   .json = json,
			   .trial = trial_run};
	char more[80];
	if (r.scenarios_n == 0)
		return OPTIONS_EXIT_USAGE;
	if (trace && (r.scenarios_n > 1 || seeds > 1))
		return options_wrong(NAME,
				     "--trace prints one run; give --scenario NAME --from SEED --seeds 1 with it");
	if (mutant) {
		snprintf(more, sizeof more, " --mutant '%.60s'", mutant);
		r.repeat_more = more;
	}
	if (!campaign && (json || state))
		return options_wrong(NAME, "--%s belongs to a campaign; give --campaign RUNS with it",
				     json ? "json" : "state");
	if (campaign && (trace || hashes))
		return options_wrong(NAME, "--campaign prints totals; leave out --%s", trace ? "trace" : "hashes");
	return campaign ? run_campaign(&r, state ? state : STATE, campaign) : runner_run(&r);
}
