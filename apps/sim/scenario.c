/* SPDX-License-Identifier: BSD-3-Clause */
/** Scenario files: their words, and where they are found. Main thread. */
#include "sim/scenario.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define HOUR   (3600 * SECOND)

const char *const load_kind_names[LOAD_KINDS + 1] = {"echo",   "fiber", "slow",  "deferred", "nested",
						     "oneway", "typed", "retry", "fanout",   "cancel",
						     "fail",   "rref",  "refs",  "some",     NULL};
const char *const disturb_drop_names[DISTURB_DROPS + 1] = {
	"request",        "reply",      "error", "cancel", "cancelled", "oneway", "credit",
	"credit-request", "rendezvous", "data",  "grant",  "refuse",    "abort",  NULL};
const char *const checker_names[CHECKS + 1] = {
	[CHECK_ONCE] = "once",
	[CHECK_REPLY] = "reply",
	[CHECK_BYTES] = "bytes",
	[CHECK_DEADLINE] = "deadline",
	[CHECK_CLASS] = "class",
	[CHECK_EXECUTED] = "executed",
	[CHECK_INCARNATION] = "incarnation",
	[CHECK_ORDER] = "order",
	[CHECK_DELIVERED] = "delivered",
	[CHECK_CONSERVED] = "conserved",
	[CHECK_LEVEL] = "level",
	[CHECK_MEMBERS] = "members",
	[CHECK_NO_DEATH] = "no-death",
	[CHECK_NO_TIMEOUT] = "no-timeout",
	[CHECK_RESENDS] = "resends",
	[CHECK_QUIET] = "quiet",
	[CHECK_LATE] = "late",
	[CHECK_ORPHANS] = "orphans",
};

static const char *const patterns[] = {"pairs", "all", "first", NULL};
static const char *const no_yes[] = {"no", "yes", NULL};
static const char *const topologies[] = {"pair", "star", "leaf-spine", NULL};

/* clang-format off */
#define FIELD(type, field) offsetof(struct type, field)
static const struct word workload_keywords[] = {
	{"mix", KEYWORD_PICK, FIELD(workload, mix), 0, 1000000, load_kind_names, true},
	{"pattern", KEYWORD_CHOICE, FIELD(workload, pattern), 0, 0, patterns, false},
	{"calls", KEYWORD_COUNT, FIELD(workload, calls), 1, 1000000, NULL, true},
	{"in-flight", KEYWORD_COUNT, FIELD(workload, in_flight), 1, 256, NULL, false},
	{"request", KEYWORD_SIZES, FIELD(workload, request), 0, UINT64_C(64) << 20, NULL, false},
	{"reply", KEYWORD_SIZES, FIELD(workload, reply), 0, UINT64_C(64) << 20, NULL, false},
	{"timeout", KEYWORD_TIMES, FIELD(workload, timeout), 1000, HOUR, NULL, false},
	{"pause", KEYWORD_TIMES, FIELD(workload, pause), 0, HOUR, NULL, false},
	{"work", KEYWORD_TIMES, FIELD(workload, work), 0, HOUR, NULL, false},
	{"cancel-after", KEYWORD_TIMES, FIELD(workload, cancel_after), 0, HOUR, NULL, false},
	{"depth", KEYWORD_COUNT, FIELD(workload, depth), 1, 16, NULL, false},
	{"fibers", KEYWORD_COUNT, FIELD(workload, fibers), 1, 65536, NULL, false},
	{NULL, KEYWORD_COUNT, 0, 0, 0, NULL, false}};

static const struct word disturbance_keywords[] = {
	{"loss", KEYWORD_CHANCE, FIELD(disturbance, loss), 0, KEYWORDS_CHANCE, NULL, false},
	{"duplicate", KEYWORD_CHANCE, FIELD(disturbance, duplicate), 0, KEYWORDS_CHANCE, NULL, false},
	{"reorder", KEYWORD_CHANCE, FIELD(disturbance, reorder), 0, KEYWORDS_CHANCE, NULL, false},
	{"reorder-by", KEYWORD_TIMES, FIELD(disturbance, reorder_by), 0, SECOND, NULL, false},
	{"corrupt", KEYWORD_CHANCE, FIELD(disturbance, corrupt), 0, KEYWORDS_CHANCE, NULL, false},
	{"cut", KEYWORD_CHANCE, FIELD(disturbance, cut), 0, KEYWORDS_CHANCE, NULL, false},
	{"burst", KEYWORD_CHANCE, FIELD(disturbance, burst), 0, KEYWORDS_CHANCE, NULL, false},
	{"burst-packets", KEYWORD_COUNT, FIELD(disturbance, burst_packets), 1, 10000, NULL, false},
	{"burst-time", KEYWORD_TIME, FIELD(disturbance, burst_ns), 1000, HOUR, NULL, false},
	{"stale-connects", KEYWORD_CHANCE, FIELD(disturbance, stale_connects), 0, KEYWORDS_CHANCE, NULL, false},
	{"stale-downs", KEYWORD_CHANCE, FIELD(disturbance, stale_downs), 0, KEYWORDS_CHANCE, NULL, false},
	{"stale-mails", KEYWORD_CHANCE, FIELD(disturbance, stale_mails), 0, KEYWORDS_CHANCE, NULL, false},
	{"stale-streams", KEYWORD_CHANCE, FIELD(disturbance, stale_streams), 0, KEYWORDS_CHANCE, NULL, false},
	{"stale-by", KEYWORD_TIMES, FIELD(disturbance, stale_by), 1000, HOUR, NULL, false},
	{"partitions", KEYWORD_COUNT, FIELD(disturbance, partitions), 0, 1000, NULL, false},
	{"one-way", KEYWORD_COUNT, FIELD(disturbance, one_way), 0, 1000, NULL, false},
	{"partition-for", KEYWORD_TIMES, FIELD(disturbance, partition_for), 0, HOUR, NULL, false},
	{"crashes", KEYWORD_COUNT, FIELD(disturbance, crashes), 0, 1000, NULL, false},
	{"restarts", KEYWORD_COUNT, FIELD(disturbance, restarts), 0, 1000, NULL, false},
	{"down-for", KEYWORD_TIMES, FIELD(disturbance, down_for), 0, HOUR, NULL, false},
	{"pauses", KEYWORD_COUNT, FIELD(disturbance, pauses), 0, 1000, NULL, false},
	{"pause-for", KEYWORD_TIMES, FIELD(disturbance, pause_for), 0, HOUR, NULL, false},
	{"outages", KEYWORD_COUNT, FIELD(disturbance, outages), 0, 1000, NULL, false},
	{"outage-for", KEYWORD_TIMES, FIELD(disturbance, outage_for), 0, HOUR, NULL, false},
	{"during", KEYWORD_TIMES, FIELD(disturbance, during), 0, HOUR, NULL, false},
	{"drop", KEYWORD_PICK, FIELD(disturbance, drop), 0, 1000000, disturb_drop_names, false},
	{NULL, KEYWORD_COUNT, 0, 0, 0, NULL, false}};

static const struct word checks_keywords[] = {
	{"check", KEYWORD_SET, FIELD(checks, check), 0, 0, checker_names, true},
	{"slack", KEYWORD_TIME, FIELD(checks, slack_ns), 0, HOUR, NULL, false},
	{"resends", KEYWORD_COUNT, FIELD(checks, resends), 0, 1000000000, NULL, false},
	{NULL, KEYWORD_COUNT, 0, 0, 0, NULL, false}};

static const struct word scenario_keywords[] = {
	{"about", KEYWORD_TEXT, FIELD(scenario, about), 0, 0, NULL, true},
	{"workload", KEYWORD_NAME, FIELD(scenario, workload_name), 0, 0, NULL, true},
	{"disturbance", KEYWORD_NAME, FIELD(scenario, disturbance_name), 0, 0, NULL, true},
	{"checkers", KEYWORD_NAME, FIELD(scenario, checkers_name), 0, 0, NULL, true},
	{"topology", KEYWORD_CHOICE, FIELD(scenario, topology), 0, 0, topologies, false},
	{"rails", KEYWORD_COUNT, FIELD(scenario, rails), 1, 4, NULL, false},
	{"workers", KEYWORD_COUNT, FIELD(scenario, workers), 2, 1000, NULL, false},
	{"shards", KEYWORD_COUNT, FIELD(scenario, shards), 1, SCENARIO_SHARDS_MAX, NULL, false},
	{"time", KEYWORD_TIME, FIELD(scenario, time_ns), 1000000, 24 * HOUR, NULL, false},
	{"rate", KEYWORD_RATE, FIELD(scenario, rate), 1000000, 1000 * SECOND, NULL, false},
	{"delay", KEYWORD_TIME, FIELD(scenario, delay_ns), 0, SECOND, NULL, false},
	{"queue", KEYWORD_SIZE, FIELD(scenario, queue), 4096, UINT64_C(1) << 30, NULL, false},
	{"packet", KEYWORD_SIZE, FIELD(scenario, packet), 576, 65535, NULL, false},
	{"receive-ring", KEYWORD_COUNT, FIELD(scenario, receive_ring), 2, 65536, NULL, false},
	{"send-ring", KEYWORD_COUNT, FIELD(scenario, send_ring), 2, 65536, NULL, false},
	{"zero-copy", KEYWORD_CHOICE, FIELD(scenario, zero_copy), 0, 0, no_yes, false},
	{"lazy", KEYWORD_CHOICE, FIELD(scenario, lazy), 0, 0, no_yes, false},
	{"late", KEYWORD_TIME, FIELD(scenario, late_ns), 1000000, HOUR, NULL, false},
	{"peer-limit", KEYWORD_TIME, FIELD(scenario, peer_limit_ns), 1000000, HOUR, NULL, false},
	{NULL, KEYWORD_COUNT, 0, 0, 0, NULL, false}};
/* clang-format on */

static const struct scenario scenario_defaults = {
	.topology = TOPOLOGY_STAR,
	.rails = 1,
	.workers = 4,
	.shards = 1,
	.time_ns = 60 * SECOND,
	.rate = 25 * SECOND,
	.delay_ns = 1000,
	.packet = 1500,
	.late_ns = SECOND,
	.peer_limit_ns = SECOND,
	.workload = {.in_flight = 4,
		     .request = {8, 64},
		     .reply = {0, 64},
		     .timeout = {10 * SECOND, 10 * SECOND},
		     .work = {100000, 1000000},
		     .cancel_after = {0, 1000000},
		     .depth = 3},
	.disturbance = {.burst_packets = 8,
			.burst_ns = 10000000,
			.reorder_by = {1000, 100000},
			.stale_by = {1000000, SECOND},
			.partition_for = {1000000, 100000000},
			.down_for = {SECOND, 3 * SECOND},
			.pause_for = {1000000, 100000000},
			.outage_for = {1000000, 100000000},
			.during = {0, HOUR}},
	.checks = {.slack_ns = 100000000, .resends = UINT32_MAX},
};

/* ---- where the files are ---- */

static const char *builtin(const char *path)
{
	for (const struct scenario_text *t = scenario_texts; t->path; t++)
		if (strcmp(t->path, path) == 0)
			return t->text;
	return NULL;
}

const char *scenario_builtin(unsigned i)
{
	static char name[KEYWORDS_NAME_MAX];
	for (const struct scenario_text *t = scenario_texts; t->path; t++) {
		size_t len = strlen(t->path);
		if (strchr(t->path, '/') || i--)
			continue;
		snprintf(name, sizeof name, "%.*s", (int)(len - 4), t->path);
		return name;
	}
	return NULL;
}

static int read_disk(const char *path, char text[KEYWORDS_FILE_MAX], char err[KEYWORDS_ERR_MAX])
{
	FILE *f = fopen(path, "r");
	if (!f) {
		int error = errno;
		snprintf(err, KEYWORDS_ERR_MAX, "cannot read %s: %s", path, strerror(error));
		return -error;
	}
	size_t n = fread(text, 1, KEYWORDS_FILE_MAX, f);
	int error = ferror(f) ? -EIO : n == KEYWORDS_FILE_MAX ? -EFBIG : memchr(text, 0, n) ? -EINVAL : 0;
	fclose(f);
	if (error) {
		snprintf(err, KEYWORDS_ERR_MAX, "%s: %s", path,
			 error == -EFBIG    ? "longer than 64 KiB"
			 : error == -EINVAL ? "no text: it has a byte 0"
					    : strerror(-error));
		return error;
	}
	text[n] = '\0';
	return 0;
}

/* The built-in files of one kind, for an error. */
static void list_builtin(const char *folder, char *out, size_t cap)
{
	static const char more[] = ", ...";
	size_t n = 0, len = strlen(folder);
	out[0] = '\0';
	for (const struct scenario_text *t = scenario_texts; t->path; t++) {
		const char *name = t->path + len;
		if (strncmp(t->path, folder, len) != 0 || strchr(name, '/'))
			continue;
		size_t need = (n ? 2 : 0) + strlen(name) - 4;
		if (n + need + sizeof more > cap) { /* whole names only */
			snprintf(out + n, cap - n, "%s", more);
			return;
		}
		n += (size_t)snprintf(out + n, cap - n, "%s%.*s", n ? ", " : "", (int)(strlen(name) - 4), name);
	}
}

struct source {
	const char *what;   /* "workload" */
	const char *folder; /* "workloads/"; "" for scenarios */
	const char *dir;    /* of the scenario's file; NULL: it is built in */
	const struct word *table;
};

static int read_part(const struct source *src, const char *name, void *out, char err[KEYWORDS_ERR_MAX])
{
	static char text[KEYWORDS_FILE_MAX];
	char path[1024], all[480];
	if (src->dir) {
		snprintf(path, sizeof path, "%s%s%s.txt", src->dir, src->folder, name);
		int error = read_disk(path, text, err);
		if (!error)
			return keywords_read(src->what, path, text, src->table, out, err);
		if (error != -ENOENT)
			return error;
	}
	snprintf(path, sizeof path, "%s%s.txt", src->folder, name);
	const char *known = builtin(path);
	if (known)
		return keywords_read(src->what, path, known, src->table, out, err);
	list_builtin(src->folder, all, sizeof all);
	snprintf(err, KEYWORDS_ERR_MAX, "there is no %s '%s'%s; built in are: %s", src->what, name,
		 src->dir ? " beside the scenario" : "", all);
	return -ENOENT;
}

/* ---- what the parts mean together ---- */

static int check_together(const char *file, const struct scenario *s, char err[KEYWORDS_ERR_MAX])
{
	uint64_t weights = 0;
	for (unsigned i = 0; i < LOAD_KINDS; i++)
		weights += s->workload.mix[i];
	if (weights == 0) {
		snprintf(err, KEYWORDS_ERR_MAX, "%s: every 'mix' of the workload is 0; give one a weight", file);
		return -EINVAL;
	}
	if (s->topology == TOPOLOGY_PAIR && s->workers != 2) {
		snprintf(err, KEYWORDS_ERR_MAX,
			 "%s: topology pair has 2 workers, not %u; use 'workers 2' or topology star", file, s->workers);
		return -EINVAL;
	}
	if (s->workload.pattern == PATTERN_PAIRS && s->workers % 2) {
		snprintf(err, KEYWORDS_ERR_MAX, "%s: pattern pairs needs an even number of workers, not %u", file,
			 s->workers);
		return -EINVAL;
	}
	const struct disturbance *d = &s->disturbance;
	if (d->outages && s->rails < 2) {
		snprintf(err, KEYWORDS_ERR_MAX, "%s: outages need a second network to fail over to; use 'rails 2'",
			 file);
		return -EINVAL;
	}
	if (d->crashes + d->restarts >= s->workers) {
		snprintf(err, KEYWORDS_ERR_MAX,
			 "%s: %u workers cannot have %u crashes and restarts: worker 0, which has the store, stays",
			 file, s->workers, d->crashes + d->restarts);
		return -EINVAL;
	}
	return 0;
}

static bool is_path(const char *name)
{
	size_t len = strlen(name);
	return strchr(name, '/') || (len > 4 && strcmp(name + len - 4, ".txt") == 0);
}

int scenario_load(const char *name, struct scenario *out, char err[KEYWORDS_ERR_MAX])
{
	static char text[KEYWORDS_FILE_MAX];
	char dir[900] = "";
	const char *slash = strrchr(name, '/');
	struct scenario s = scenario_defaults;
	struct source src = {"scenario", "", NULL, scenario_keywords};
	int error;
	if (is_path(name)) {
		if (strlen(name) >= sizeof dir) {
			snprintf(err, KEYWORDS_ERR_MAX, "the file's name is longer than %zu bytes", sizeof dir - 1);
			return -ENAMETOOLONG;
		}
		snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - name + 1) : 0, name);
		src.dir = dir;
		error = read_disk(name, text, err);
		if (!error)
			error = keywords_read("scenario", name, text, scenario_keywords, &s, err);
	} else {
		error = read_part(&src, name, &s, err);
	}
	if (error)
		return error;
	snprintf(s.name, sizeof s.name, "%s", slash ? slash + 1 : name);
	if ((error = read_part(&(struct source){"workload", "workloads/", src.dir, workload_keywords}, s.workload_name,
			       &s.workload, err)) ||
	    (error = read_part(&(struct source){"disturbance", "disturbances/", src.dir, disturbance_keywords},
			       s.disturbance_name, &s.disturbance, err)) ||
	    (error = read_part(&(struct source){"checker file", "checkers/", src.dir, checks_keywords}, s.checkers_name,
			       &s.checks, err)) ||
	    (error = check_together(name, &s, err)))
		return error;
	*out = s;
	return 0;
}
