/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf`: finds what is to be measured. */
#include "perf.h"
#include "apps/farcall/commands.h"
#include "apps/farcall/options.h"
#include "floor_ring.h"
#include "peer.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define HOUR_NS   UINT64_C(3600000000000)

struct measurement {
	const char *name;
	int (*run)(const struct perf_opts *o);
	uint64_t seconds;
	const char *help;
	const char *about;
};

static const struct measurement measurements[] = {
	{"latency", perf_latency, 3, "round trip of one call at a time",
	 "Starts a second process and measures the round trip of calls, one at a time."},
	{"rate", perf_rate, 3, "calls and bytes per second, many in flight",
	 "Starts a second process and keeps many calls in flight towards it. The receiver reads every byte; the reply\n"
	 "of the message API is empty. bytes_per_s counts what requests carry."},
	{"fanout", perf_fanout, 6, "one call to many targets, against as many calls by themselves",
	 "Starts server processes and calls far::add on many targets, several of each server, as one fan-out and, by "
	 "turns,\nas separate calls that are waited for together. Both put every result in its place of one buffer."},
	{"idle", perf_idle, 5, "what a worker costs that does nothing, and its first call after that",
	 "Runs in every worker of `farcall run -n N -- farcall perf idle`; alone, it starts two workers itself."},
	{"floor", perf_floor, 2, "what this machine can do at best, without any engine",
	 "Measures two processes that share memory: cache line and ring round trips, ring rate, copies, an eventfd "
	 "wake-up."},
	{"peer", peer_main, 0, NULL, "The other processes of latency, rate and fanout."},
};
#define MEASUREMENTS (sizeof measurements / sizeof *measurements)

static const char *api_names[] = {"message", "rpc", NULL};
static const char *via_names[] = {"direct", "thread", NULL};

const char *perf_api_name(int api)
{
	return api_names[api];
}

const char *perf_via_name(int via)
{
	return via_names[via];
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double perf_median(double *values, unsigned n)
{
	if (n == 0)
		return 0;
	qsort(values, n, sizeof *values, compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Of the process, before any of its threads is pinned. */
static int cpus;

int perf_cpus(void)
{
	return cpus;
}

int perf_cpu(unsigned i)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) < 2)
		return -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set) && i-- == 0)
			return cpu;
	return -1;
}

void perf_pin(int cpu)
{
	cpu_set_t set;
	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set); /* refused: the figures are noisier, not wrong */
}

static void print_help(FILE *f)
{
	fprintf(f, "usage: farcall perf MEASUREMENT [OPTIONS]\n\nmeasurements:\n");
	for (size_t i = 0; i < MEASUREMENTS; i++)
		if (measurements[i].help)
			fprintf(f, "  %-10s %s\n", measurements[i].name, measurements[i].help);
	fprintf(f, "\n'farcall perf MEASUREMENT --help' lists the options.\n");
}

static int check(const struct perf_opts *o)
{
	if (o->api == PERF_API_RPC && o->bytes % 4 != 0)
		return options_wrong(o->what, "--bytes: tensors hold 4-byte elements; give a multiple of 4");
	if (o->api == PERF_API_RPC && o->bytes > (4 << 20))
		return options_wrong(o->what,
				     "--bytes: two tensors travel in one call; give at most 4M with --api rpc");
	if (o->api == PERF_API_MESSAGE && o->bytes && o->bytes < sizeof(uint64_t))
		return options_wrong(o->what, "--bytes: every request carries a check of 8 bytes; give at least 8");
	return 0;
}

static int measure(const struct measurement *m, int argc, char **argv)
{
	char name[64];
	snprintf(name, sizeof name, "farcall perf %s", m->name);
	struct perf_opts o = {.what = name, .nic = "auto", .inflight = 64, .duration_ns = m->seconds * SECOND_NS};
	const struct option_spec specs[] = {
		{"nic", 0, OPTION_TEXT, &o.nic, 0, 0, "NAME", "NIC driver: auto (default), shm", NULL},
		{"bytes", 0, OPTION_SIZE, &o.bytes, 4, 16 << 20, "SIZE",
		 "request payload (32); of each tensor with --api rpc (8)", NULL},
		{"inflight", 0, OPTION_COUNT, &o.inflight, 1, PEER_INFLIGHT_MAX, "N", "calls in flight (64); rate only",
		 NULL},
		{"api", 0, OPTION_CHOICE, &o.api, 0, 0, "API", "message (default), or rpc: far::add of two tensors",
		 api_names},
		{"via", 0, OPTION_CHOICE, &o.via, 0, 0, "HOW",
		 "direct (default): the caller polls; thread: the agent's thread does", via_names},
		{"seconds", 0, OPTION_DURATION, &o.duration_ns, SECOND_NS / 10, HOUR_NS, "TIME", "how long to measure",
		 NULL},
		{"targets", 0, OPTION_COUNT, &o.targets, 1, PERF_TARGETS_MAX, "N",
		 "targets of a fan-out (1, 8 and 64 in turn); fanout only", NULL},
		{"servers", 0, OPTION_COUNT, &o.servers, 1, PEER_SERVERS_MAX, "N", "server processes (1); fanout only",
		 NULL},
		{"floor", 0, OPTION_FLAG, &o.floor, 0, 0, NULL, "alternate with the machine's floor; report the ratio",
		 NULL},
		{"json", 0, OPTION_FLAG, &o.json, 0, 0, NULL, "one object, the last line of stdout; text to stderr",
		 NULL},
		{"peer-fd", 0, OPTION_COUNT, &o.peer_fd, 3, INT32_MAX, "FD", NULL, NULL},
		{"peer-cpu", 0, OPTION_COUNT, &o.peer_cpu, 0, CPU_SETSIZE, "CPU", NULL, NULL},
		{"peer-rank", 0, OPTION_COUNT, &o.peer_rank, 1, PEER_SERVERS_MAX, "RANK", NULL, NULL},
		{"peer-world", 0, OPTION_COUNT, &o.peer_world, 2, PEER_SERVERS_MAX + 1, "N", NULL, NULL},
		{.name = ""}};
	const struct option_command command = {name, "[OPTIONS]", m->about, specs};
	int rest;
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest < argc)
		return options_wrong(name, "%s: arguments are not expected; options begin with --", argv[rest]);
	int wrong = check(&o);
	return wrong ? wrong : m->run(&o);
}

int cmd_perf(int argc, char **argv)
{
	cpu_set_t set;
	cpus = sched_getaffinity(0, sizeof set, &set) < 0 ? 1 : CPU_COUNT(&set);
	if (argc < 2) {
		print_help(stderr);
		return OPTIONS_EXIT_USAGE;
	}
	const char *words[MEASUREMENTS + 1];
	size_t n = 0;
	for (size_t i = 0; i < MEASUREMENTS; i++) {
		if (strcmp(argv[1], measurements[i].name) == 0)
			return measure(&measurements[i], argc - 1, argv + 1);
		if (measurements[i].help)
			words[n++] = measurements[i].name;
	}
	words[n] = NULL;
	static const struct option_spec none[] = {{.name = ""}};
	const struct option_command command = {"farcall perf", "MEASUREMENT [OPTIONS]", "", none};
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help(stdout);
		return 0;
	}
	if (argv[1][0] == '-') {
		int rest;
		return options_parse(&command, argc, argv, &rest) == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	}
	const char *near = options_suggest(argv[1], words);
	if (near)
		return options_wrong("farcall perf", "unknown measurement '%s'; did you mean '%s'?", argv[1], near);
	return options_wrong("farcall perf", "unknown measurement '%s'; give latency, rate, fanout, idle or floor",
			     argv[1]);
}
