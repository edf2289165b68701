/* SPDX-License-Identifier: BSD-3-Clause */
/** Options from the environment, names by pattern, the list of workers, log lines and their hook.
 * Main thread of each process. */
#include "api_spawn.h"

#include <stdatomic.h>
#include <sys/mman.h>

static struct far_err err;
static struct shared {
	_Atomic bool waits;    /* rank 0 has logged that it waits for rank 1 */
	_Atomic unsigned left; /* workers that have logged a leak */
} * shared;

static enum far_status join(struct far_agent **a, const char *name, const struct far_opts *opts)
{
	alarm(HANG_GUARD_S);
	return check_init(name, FAR_RANK_ENV, FAR_WORLD_ENV, opts, a, &err);
}

static void refused(const char *variable, const char *value, const char *text)
{
	struct far_agent *a;
	setenv(variable, value, 1);
	CHECK_STATUS(join(&a, "worker0", NULL), FAR_INVALID, &err);
	CHECK_TEXT(&err, text);
	unsetenv(variable);
}

static int from_environment(int rank)
{
	struct far_opts opts = {.calls = 88};
	struct far_limits limits;
	struct far_agent *a;
	refused("FAR_SHARDS", "many", "environment variable FAR_SHARDS is \"many\", expected a whole number");
	refused("FAR_CALLS", "-1", "expected a whole number");
	refused("FAR_FIBERS", "4294967296", "expected a whole number");
	refused("FAR_IDLE", "lazy", "environment variable FAR_IDLE is \"lazy\", expected adaptive, busy");
	refused("FAR_LOG", "loud",
		"environment variable FAR_LOG is \"loud\", expected none, error, warning, info, debug");
	refused("FAR_LEAKS", "1", "expected report, ignore, fail");
	refused("FAR_SECURITY", "some", "security is \"some\"");
	refused("FAR_PEER_CALLS", "203", "peer_calls is 203"); /* checked as the option is */
	setenv("FAR_SHARDS", "2", 1);
	setenv("FAR_CALLS", "77", 1);
	setenv("FAR_BLOCKING_QUEUE", "64", 1);
	setenv("FAR_RPC_TIMEOUT_NS", "forever", 1);
	CHECK_STATUS(join(&a, "worker0", &opts), FAR_OK, &err);
	far_limits_read(a, &limits);
	/* The program's own value takes precedence. */
	CHECK(limits.calls == 88 && limits.blocking_queue == 64);
	CHECK(far_shards(a) == 2 && far_rpc_timeout_ns(a) == FAR_FOREVER);
	check_leave(a);
	CHECK_STATUS(join(&a, "worker0", NULL), FAR_OK, &err);
	far_limits_read(a, &limits);
	CHECK(limits.calls == 77);
	check_leave(a);
	return 0;
}

static int names(int rank)
{
	struct far_worker_info all[4], by_name;
	struct far_agent *a;
	CHECK_STATUS(join(&a, "node%d-a", NULL), FAR_OK, &err);
	CHECK(far_self(a).worker == rank && far_self(a).shard == -1);
	memset(all, 0, sizeof all);
	CHECK(far_workers(a, NULL, 0) == 3 && far_workers(a, all, 2) == 3 && all[2].name[0] == 0);
	CHECK(far_workers(a, all, 4) == 3);
	for (int r = 0; r < 3; r++) {
		char name[16];
		snprintf(name, sizeof name, "node%d-a", r);
		CHECK(strcmp(all[r].name, name) == 0 && all[r].rank == r && all[r].alive && all[r].shards == 1);
		CHECK_STATUS(far_worker_by_name(a, name, &by_name, &err), FAR_OK, &err);
		CHECK(by_name.incarnation == all[r].incarnation && all[r].incarnation);
		/* Also of a worker that is reached by shared memory. */
		CHECK(strcmp(all[r].ip, "127.0.0.1") == 0 && all[r].port);
		CHECK(strcmp(by_name.ip, all[r].ip) == 0 && by_name.port == all[r].port);
	}
	CHECK(all[0].port != all[1].port);
	CHECK_STATUS(far_rpc_sync(a, "ndoe2-a", "far::add", FAR_ARGS(1, 2), NULL, NULL, &err), FAR_UNKNOWN_WORKER,
		     &err);
	CHECK_TEXT(&err, "could not find destination name \"ndoe2-a\"; the nearest of 3 workers: node2-a, ");
	CHECK_STATUS(far_rpc_sync(a, "node0-", "far::add", FAR_ARGS(1, 2), NULL, NULL, &err), FAR_UNKNOWN_WORKER, &err);
	CHECK_TEXT(&err, ": node0-a, ");
	check_leave(a);
	return 0;
}

static const char *field(const struct far_log_field *fields, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(fields[i].name, name) == 0)
			return fields[i].value;
	return "";
}

static void on_log(enum far_log_level level, const char *text, const struct far_log_field *fields, size_t n, void *user)
{
	CHECK(user == shared);
	if (level == FAR_LOG_INFO && strstr(text, "worker \"worker0\" has waited")) {
		CHECK(strcmp(field(fields, n, "worker"), "worker0") == 0);
		CHECK(strstr(field(fields, n, "waits_for"), "rank 1") && strstr(text, "rank 1"));
		CHECK(atoi(field(fields, n, "seconds")) >= 2);
		atomic_store(&shared->waits, true);
	}
	if (level == FAR_LOG_WARNING && strstr(text, "still holds"))
		atomic_fetch_add(&shared->left, 1);
}

/* Rank 1 joins only when rank 0 has logged that it waits for it. */
static int waits(int rank)
{
	struct far_agent *a;
	far_log_set(on_log, shared);
	while (rank == 1 && !atomic_load(&shared->waits))
		usleep(1000);
	CHECK_STATUS(join(&a, "worker%d", NULL), FAR_OK, &err);
	check_leave(a);
	return 0;
}

/* A leak is logged, but not with a limit below its level. */
static int leaks(int rank)
{
	const enum far_log_level limits[] = {FAR_LOG_WARNING, FAR_LOG_ERROR, FAR_LOG_INFO};
	far_log_set(on_log, shared);
	for (unsigned i = 0; i < 3; i++) {
		struct far_agent *a;
		struct far_rref *r;
		far_log_level_set(limits[i]);
		CHECK_STATUS(join(&a, "worker%d", NULL), FAR_OK, &err);
		CHECK_STATUS(far_remote(a, "worker0", "far::identity", FAR_ARGS(1), NULL, &r, &err), FAR_OK, &err);
		check_leave(a);
		far_rref_free(r);
		CHECK(atomic_load(&shared->left) == (i + 2) / 2);
	}
	return 0;
}

int main(void)
{
	static const struct {
		const char *name;
		int world;
		spawn_main *body;
	} runs[] = {{"from the environment", 1, from_environment},
		    {"names", 3, names},
		    {"waits", 2, waits},
		    {"leaks", 1, leaks}};
	int bad = 0;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
		struct spawned s = spawn(runs[i].world, runs[i].body);
		int failed = spawn_wait(&s, -1);
		if (failed)
			fprintf(stderr, "%s: failed\n", runs[i].name);
		bad |= failed;
	}
	return bad;
}
