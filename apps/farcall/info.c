/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall info`: what this machine offers to a worker, and why the rest is out of reach. Main thread. */
#include "apps/cli/options.h"
#include "base/cgroup.h"
#include "base/runtime_dir.h"
#include "commands.h"
#include "control/launcher.h"
#include "info_nics.h"
#include "nic/udp/udp.h"
#include "perf/json.h"
#include <errno.h>
#include <farcall/agent.h>
#include <farcall/memory.h>
#include <farcall/version.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "farcall info"

struct info {
	char dir[256];
	const char *dir_from;  /* what named it */
	const char *dir_state; /* is it there, and ours */
	long cores;            /* online */
	int cores_usable;      /* by this process */
	uint64_t cpu_milli;    /* the cgroup's quota in thousandths of a CPU; UINT64_MAX: none */
	struct far_memory memory;
	struct far_err memory_err; /* why nothing is reserved */
};

/* The rule of the drivers for a runtime_dir that nobody gives. */
static void runtime_dir(struct info *info)
{
	struct stat st;
	char path[RUNTIME_DIR_BYTES];
	bool fits = runtime_dir_path(NULL, 0, path) == 0;
	snprintf(info->dir, sizeof info->dir, "%s", path);
	info->dir_from = runtime_dir_from();
	if (!fits) {
		info->dir_state = "refused: the path is too long";
		return;
	}
	if (lstat(info->dir, &st) < 0)
		info->dir_state = errno == ENOENT ? "made on first use" : strerror(errno);
	else if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		info->dir_state = "refused: must be a directory of your own with mode 0700";
	else
		info->dir_state = "present";
}

static void gather(struct info *info)
{
	cpu_set_t set;
	runtime_dir(info);
	info->cores = sysconf(_SC_NPROCESSORS_ONLN);
	info->cores_usable = sched_getaffinity(0, sizeof set, &set) < 0 ? (int)info->cores : CPU_COUNT(&set);
	info->cpu_milli = cgroup_cpu_milli(CGROUP_SELF, CGROUP_ROOT);
	info->memory_err.status = FAR_OK;
	far_free(far_alloc(1, &info->memory_err));
	far_memory_stats(&info->memory);
}

/* The rule of far_init_rpc(): a shard polls busily, or spins before it sleeps, where there is a CPU for each. */
static void print_quota(FILE *out, const struct info *info)
{
	fprintf(out, "CPU quota          ");
	if (info->cpu_milli == UINT64_MAX)
		fprintf(out, "none\n");
	else if (info->cpu_milli < 1000)
		fprintf(out,
			"%g CPUs (cgroup): no busy polling, idle shards sleep soon; docker: --cpus 1 for each shard\n",
			(double)info->cpu_milli / 1000);
	else
		fprintf(out, "%g CPUs (cgroup): enough for %u polling shard%s\n", (double)info->cpu_milli / 1000,
			(unsigned)(info->cpu_milli / 1000), info->cpu_milli < 2000 ? "" : "s");
}

static void json_quota(struct json *j, const struct info *info)
{
	json_double(j, "cpu_quota", info->cpu_milli == UINT64_MAX ? NAN : (double)info->cpu_milli / 1000);
	json_bool(j, "busy_polling", info->cpu_milli >= 1000);
}

static void print_memory(FILE *out, const struct info *info)
{
	const struct far_memory *m = &info->memory;
	if (info->memory_err.status)
		fprintf(out, "memory             none: %s\n", info->memory_err.text);
	else
		fprintf(out, "memory             up to %" PRIu64 " MiB (FAR_MEMORY_MAX bounds it)\n",
			m->reserved >> 20);
	fprintf(out, "allocator          %s (%s)\n", m->allocator, m->allocator_why);
}

static const struct {
	const char *name;
	size_t at; /* of an unsigned in far_limits */
} limits[] = {
	{"submit_slots", offsetof(struct far_limits, submit_slots)},
	{"calls", offsetof(struct far_limits, calls)},
	{"peer_calls", offsetof(struct far_limits, peer_calls)},
	{"peer_waiting", offsetof(struct far_limits, peer_waiting)},
	{"retry_window", offsetof(struct far_limits, retry_window)},
	{"deferred", offsetof(struct far_limits, deferred)},
	{"mailbox_slots", offsetof(struct far_limits, mailbox_slots)},
	{"fibers", offsetof(struct far_limits, fibers)},
	{"blocking_threads", offsetof(struct far_limits, blocking_threads)},
	{"blocking_queue", offsetof(struct far_limits, blocking_queue)},
};

static unsigned limit_of(const struct far_limits *l, size_t i)
{
	return *(const unsigned *)(const void *)((const char *)l + limits[i].at);
}

/* The bounds of a worker that chooses none. */
static void print_limits(FILE *out)
{
	struct far_limits l;
	far_limits_read(NULL, &l);
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
		fprintf(out, "%s%s %u", i ? ", " : "limits by default  ", limits[i].name, limit_of(&l, i));
	fprintf(out, " (struct far_opts)\n");
}

static void json_limits(struct json *j)
{
	struct far_limits l;
	far_limits_read(NULL, &l);
	json_object(j, "limits");
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
		json_u64(j, limits[i].name, limit_of(&l, i));
	json_close(j);
}

static void json_memory(struct json *j, const struct info *info)
{
	json_u64(j, "memory_max", info->memory.reserved);
	if (info->memory_err.status)
		json_string(j, "memory_error", info->memory_err.text);
	json_string(j, "allocator", info->memory.allocator);
	json_string(j, "allocator_why", info->memory.allocator_why);
}

/* A line for each thing that a UDP socket gets here. */
static void print_udp(FILE *out, const char *advice)
{
	for (const char *end; (end = strchr(advice, '\n')); advice = end + 1)
		fprintf(out, "udp                %.*s\n", (int)(end - advice), advice);
}

/* What a worker with FAR_RANK_ENV, FAR_WORLD_ENV and env:// would take from the environment here. */
static void print_launcher(FILE *out, struct json *j)
{
	static const char *const names[][2] = {{"RANK", "rank"},
					       {"WORLD_SIZE", "world_size"},
					       {"MASTER_ADDR", "master_addr"},
					       {"MASTER_PORT", "master_port"}};
	const char *launcher = launcher_name();
	fprintf(out, "launcher           %s", launcher ? launcher : "none is recognised");
	if (j)
		json_string(j, "launcher", launcher ? launcher : "");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char text[LAUNCHER_TEXT_MAX];
		const char *value = launcher_env(names[i][0], text);
		if (value)
			fprintf(out, ", %s %s", names[i][0], value);
		if (value && j)
			json_string(j, names[i][1], value);
	}
	fprintf(out, "\n");
}

/* 0, or 1 after an error. */
static int print_info(bool want_json, const struct info_nics_opts *nics)
{
	FILE *out = want_json ? stderr : stdout;
	struct info info = {.cores = 0};
	struct json j;
	char advice[1024];
	gather(&info);
	fprintf(out, "farcall %s, library %s\n\n", FAR_VERSION, far_version());
	if (want_json) {
		json_begin(&j, stdout);
		json_string(&j, "version", FAR_VERSION);
		json_string(&j, "library", far_version());
	}
	int rc = info_nics(nics, out, want_json ? &j : NULL) ? 0 : 1;
	fprintf(out, "\nruntime directory  %s (%s; %s)\n", info.dir, info.dir_from, info.dir_state);
	fprintf(out, "cores              %ld online, %d usable here%s\n", info.cores, info.cores_usable,
		info.cores_usable < 2 ? "; polling workers share it: expect latencies of the scheduler" : "");
	print_launcher(out, want_json ? &j : NULL);
	print_quota(out, &info);
	print_memory(out, &info);
	print_limits(out);
	nic_udp_advice(advice, sizeof advice);
	print_udp(out, advice);
	fprintf(out, "not needed         root, huge pages, /dev/shm, a network device; user namespaces are fine\n");
	if (!want_json)
		return rc;
	json_string(&j, "runtime_dir", info.dir);
	json_string(&j, "runtime_dir_from", info.dir_from);
	json_string(&j, "runtime_dir_state", info.dir_state);
	json_u64(&j, "cores", (uint64_t)info.cores);
	json_u64(&j, "cores_usable", (uint64_t)info.cores_usable);
	json_quota(&j, &info);
	json_memory(&j, &info);
	json_limits(&j);
	json_string(&j, "udp", advice);
	json_end(&j);
	return rc;
}

int cmd_info(int argc, char **argv)
{
	bool json = false;
	struct info_nics_opts nics = {.nic = NULL};
	const struct option_spec specs[] = {{"json", 0, OPTION_FLAG, &json, 0, 0, NULL,
					     "one object, the last line of stdout; text to stderr", NULL},
					    {"nic", 0, OPTION_TEXT, &nics.nic, 0, 0, "DRIVERS",
					     "drivers to open, as in a worker's nic= (FAR_NIC, else auto)", NULL},
					    {"security", 0, OPTION_TEXT, &nics.security, 0, 0, "NAME",
					     "none: show a worker with security=none", NULL},
					    {.name = ""}};
	const struct option_command command = {
		NAME, "[--json] [--nic DRIVERS] [--security none]",
		"Lists the NIC drivers that work here, why the others do not, and the addresses that a worker would\n"
		"publish.",
		specs};
	int rest;
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest < argc)
		return options_wrong(NAME, "%s: arguments are not expected", argv[rest]);
	if (nics.security && strcmp(nics.security, "none") != 0)
		return options_wrong(NAME, "--security: \"%.64s\"; it can be none, or be left out", nics.security);
	return print_info(json, &nics);
}
