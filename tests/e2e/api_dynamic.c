/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A dynamic group: members that join without a world size, leave alone, come back and die; references of those that
 * have gone; mixtures with static members; the bound of members. Each case is a process with several agents, and has a
 * group of its own. usage: api_dynamic [INIT_METHOD], by default a store of rank 0, and then a file.
 *
 * Main thread of each process; handlers on shard threads; threads that it starts.
 */
#include "api_spawn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { TOGETHER = 8, ROUNDS = 5, KILLS = 2 };

static const char *method; /* NULL: tcp://, with rank 0 as host */
static struct far_err err;

/* ---- what each member serves ---- */

/* Who the caller is, by the name that the callee has of its rank; found by name, it is called back. */
static enum far_status greet(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *agent = *(struct far_agent **)user;
	struct far_worker_info caller;
	struct far_val out;
	struct far_err own;
	char name[FAR_NAME_MAX] = "";
	memcpy(name, args[0].u.s.data, args[0].u.s.len);
	CHECK_STATUS(far_worker_by_name(agent, name, &caller, &own), FAR_OK, &own);
	CHECK(caller.alive && caller.rank == far_req_from(req).worker);
	CHECK_STATUS(far_rpc_sync(agent, name, "far::add", FAR_ARGS(caller.rank, 1), NULL, &out, &own), FAR_OK, &own);
	return far_return_int(req, out.u.i - 1);
}

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *kept; /* as long as this member */
	return far_defer(req, &kept);
}

struct member {
	struct far_agent *agent;
	struct far_function functions[2];
	struct far_opts opts;
};

static struct member *member_new(const char *group)
{
	struct member *m = calloc(1, sizeof *m);
	CHECK(m);
	m->functions[0] = (struct far_function){"t::greet(str name) -> int", FAR_KIND_FIBER, greet, &m->agent};
	m->functions[1] = (struct far_function){"t::keep() -> none", FAR_KIND_INLINE, keep, NULL};
	m->opts = (struct far_opts){.group = group,
				    .init_method = method,
				    .functions = m->functions,
				    .functions_n = 2,
				    .leaks = FAR_LEAKS_IGNORE,
				    .init_timeout_ns = 40 * FAR_SEC};
	return m;
}

static struct member *joins_with(struct member *m, const char *name, int rank)
{
	CHECK_STATUS(check_init(name, rank, FAR_WORLD_DYNAMIC, &m->opts, &m->agent, &err), FAR_OK, &err);
	return m;
}

static struct member *joins(const char *group, const char *name, int rank)
{
	return joins_with(member_new(group), name, rank);
}

static void leaves(struct member *m)
{
	CHECK_STATUS(far_shutdown(m->agent, FAR_FOREVER, &err), FAR_OK, &err);
	free(m);
}

static void refused(const char *group, const char *name, int rank, int world, unsigned members_max,
		    enum far_status want, const char *text)
{
	struct member *m = member_new(group);
	m->opts.members_max = members_max;
	CHECK_STATUS(check_init(name, rank, world, &m->opts, &m->agent, &err), want, &err);
	CHECK_TEXT(&err, text);
	CHECK(!m->agent);
	free(m);
}

/* Calls by name. A call to a name that has come back may still meet the end of the sessions before. */
static void calls(struct member *m, const struct far_worker_info *from, const struct far_worker_info *to)
{
	struct far_val out;
	enum far_status status;
	do
		status = far_rpc_sync(m->agent, to->name, "t::greet", FAR_ARGS(from->name), NULL, &out, &err);
	while (status == FAR_PEER_LOST);
	CHECK_STATUS(status, FAR_OK, &err);
	CHECK(out.u.i == from->rank);
}

/* Both call each other. */
static void meet(struct member *a, struct member *b)
{
	struct far_worker_info of_a, of_b;
	far_worker_self(a->agent, &of_a);
	far_worker_self(b->agent, &of_b);
	calls(a, &of_a, &of_b);
	calls(b, &of_b, &of_a);
}

/* Waits until a member has gone from another one's view. */
static void forgets(struct member *m, const char *name)
{
	struct far_worker_info info;
	while (far_worker_by_name(m->agent, name, &info, &err) == FAR_OK)
		usleep(1000);
	CHECK_STATUS(far_worker_by_name(m->agent, name, &info, &err), FAR_UNKNOWN_WORKER, &err);
}

/* ---- cases ---- */

static int join_leave(int rank)
{
	struct far_worker_info all[4], info;
	struct far_future *pending;
	struct far_val out;
	struct member *host = joins("g", "host", 0), *a = joins("g", "a", FAR_RANK_ANY);
	meet(host, a);
	struct member *b = joins("g", "b", FAR_RANK_ANY);
	meet(a, b);
	meet(b, host);
	CHECK(far_world_size(b->agent) == 3 && far_workers(b->agent, all, 4) == 3);
	CHECK(strcmp(all[0].name, "host") == 0 && all[0].alive && far_self(a->agent).worker == 1 && all[2].rank == 2);
	/* Calls of whatever stage end when their callee leaves. */
	CHECK_STATUS(far_rpc_async(host->agent, "a", "t::keep", FAR_NOARGS, NULL, &pending, &err), FAR_OK, &err);
	leaves(a);
	CHECK_STATUS(far_future_wait(pending, FAR_FOREVER, NULL, &err), FAR_PEER_LOST, &err);
	far_future_free(pending);
	forgets(host, "a");
	forgets(b, "a");
	CHECK(far_world_size(host->agent) == 2);
	CHECK_STATUS(far_worker_by_rank(host->agent, 1, &info, &err), FAR_UNKNOWN_WORKER, &err);
	CHECK_STATUS(far_rpc_sync_to(host->agent, (struct far_to){1, -1}, "far::add", FAR_ARGS(1, 2), NULL, &out, &err),
		     FAR_UNKNOWN_WORKER, &err);
	/* The name comes back with more shards, and the rank with another name. */
	for (int i = 0; i < ROUNDS; i++) {
		char name[16];
		snprintf(name, sizeof name, "c%d", i);
		struct member *c = joins("g", name, 1), *again = member_new("g");
		again->opts.shards = 1 + (unsigned)i % 2;
		joins_with(again, "a", FAR_RANK_ANY);
		CHECK(far_self(again->agent).worker == 3);
		meet(c, again);
		meet(host, again);
		meet(c, b);
		leaves(c);
		leaves(again);
	}
	leaves(b);
	leaves(host);
	return 0;
}

static int references(int rank)
{
	struct far_rref_counts counts;
	struct far_rref *held[ROUNDS];
	struct member *host = joins("g", "host", 0);
	for (int local = 0; local < 2; local++) {
		struct member *a = joins("g", "a", FAR_RANK_ANY);
		for (int i = 0; i < ROUNDS; i++) {
			CHECK_STATUS(far_remote(a->agent, "host", "far::add", FAR_ARGS(i, 1), NULL, &held[i], &err),
				     FAR_OK, &err);
			CHECK_STATUS(far_rref_wait(held[i], FAR_FOREVER, &err), FAR_OK, &err);
		}
		far_rref_counts_read(host->agent, &counts);
		CHECK(counts.owned == ROUNDS);
		if (local)
			CHECK_STATUS(far_shutdown_local(a->agent, &err), FAR_OK, &err);
		else
			CHECK_STATUS(far_shutdown(a->agent, FAR_FOREVER, &err), FAR_OK, &err);
		free(a);
		for (int i = 0; i < ROUNDS; i++)
			far_rref_free(held[i]);
		do
			far_rref_counts_read(host->agent, &counts);
		while (counts.owned && usleep(1000) == 0);
	}
	leaves(host);
	return 0;
}

static int mixtures(int rank)
{
	struct member *host = joins("g", "host", 0), *m;
	struct far_worker_info info;
	refused("g", "static", 1, 2, 0, FAR_INVALID, "mixes statically and dynamically");
	refused("g", "other", FAR_RANK_ANY, FAR_WORLD_DYNAMIC, 9, FAR_INVALID, "members_max");
	refused("g", "other", 0, FAR_WORLD_DYNAMIC, 0, method ? FAR_NOT_UNIQUE : FAR_SYSTEM,
		method ? "\"host\"" : "listen");
	refused("g", "other", 256, FAR_WORLD_DYNAMIC, 0, FAR_INVALID, "[0, 256)");
	refused("g", "other", -3, FAR_WORLD_DYNAMIC, 0, FAR_INVALID, "rank");
	refused("g", "other", 1, FAR_WORLD_DYNAMIC, 1025, FAR_INVALID, "members_max");
	/* From the environment, and from the URL; a name with the rank. */
	setenv("WORLD_SIZE", "dynamic", 1);
	unsetenv("RANK");
	m = member_new("g");
	CHECK_STATUS(check_init("env%d", FAR_RANK_ENV, FAR_WORLD_ENV, &m->opts, &m->agent, &err), FAR_OK, &err);
	CHECK_STATUS(far_worker_by_name(host->agent, "env1", &info, &err), FAR_OK, &err);
	meet(m, host);
	leaves(m);
	leaves(host);
	return 0;
}

static int in_static(int rank)
{
	struct member *m = member_new("s");
	CHECK_STATUS(check_init("alone", 0, 1, &m->opts, &m->agent, &err), FAR_OK, &err);
	refused("s", "dynamic", 1, FAR_WORLD_DYNAMIC, 0, FAR_INVALID, "mixes statically and dynamically");
	leaves(m);
	return 0;
}

static int bound(int rank)
{
	struct member *m[3], *late;
	for (int i = 0; i < 3; i++) {
		m[i] = member_new("g");
		m[i]->opts.members_max = 3;
		joins_with(m[i], "m%d", i ? FAR_RANK_ANY : 0);
	}
	refused("g", "late", FAR_RANK_ANY, FAR_WORLD_DYNAMIC, 3, FAR_RESOURCE, "all 3 members");
	refused("g", "late", 3, FAR_WORLD_DYNAMIC, 3, FAR_INVALID, "[0, 3)");
	meet(m[1], m[2]);
	leaves(m[1]);
	late = member_new("g");
	late->opts.members_max = 3;
	joins_with(late, "late", FAR_RANK_ANY);
	CHECK(far_self(late->agent).worker == 1);
	meet(late, m[2]);
	leaves(late);
	leaves(m[2]);
	leaves(m[0]);
	return 0;
}

/* ---- many at once ---- */

static void *joins_one(void *arg)
{
	struct member *m = arg;
	struct far_err own;
	CHECK_STATUS(check_init("m%d", FAR_RANK_ANY, FAR_WORLD_DYNAMIC, &m->opts, &m->agent, &own), FAR_OK, &own);
	return NULL;
}

static int together(int rank)
{
	struct member *host = joins("g", "host", 0), *m[TOGETHER];
	pthread_t threads[TOGETHER];
	for (int round = 0; round < 2; round++) {
		uint32_t taken = 1;
		for (int i = 0; i < TOGETHER; i++) {
			m[i] = member_new("g");
			CHECK(pthread_create(&threads[i], NULL, joins_one, m[i]) == 0);
		}
		for (int i = 0; i < TOGETHER; i++) {
			CHECK(pthread_join(threads[i], NULL) == 0);
			int r = far_self(m[i]->agent).worker;
			CHECK(r > 0 && r < 32 && !(taken >> r & 1));
			taken |= 1u << r;
		}
		for (int i = 0; i < TOGETHER; i++) {
			struct far_worker_info info;
			far_worker_self(m[i]->agent, &info);
			for (int k = 0; k < TOGETHER; k++) {
				while (far_world_size(m[k]->agent) < TOGETHER + 1)
					usleep(1000);
				CHECK_STATUS(far_worker_by_name(m[k]->agent, info.name, &info, &err), FAR_OK, &err);
			}
			meet(m[i], m[(i + 1) % TOGETHER]);
		}
		for (int i = 0; i < TOGETHER; i++)
			leaves(m[i]);
		while (far_world_size(host->agent) > 1)
			usleep(1000);
	}
	leaves(host);
	return 0;
}

/* The host leaves first: calls among the others go on. */
static int without_host(int rank)
{
	struct member *host = joins("g", "host", 0), *a = joins("g", "a", FAR_RANK_ANY),
		      *b = joins("g", "b", FAR_RANK_ANY);
	meet(a, b);
	meet(a, host);
	leaves(host);
	forgets(a, "host");
	forgets(b, "host");
	meet(a, b);
	leaves(a);
	forgets(b, "a");
	leaves(b);
	return 0;
}

/* ---- a member that is killed ---- */

static _Atomic int *victim_is; /* shared: incarnations of the victim that have joined */

static int victim(int rank)
{
	struct member *m = joins("g", "victim", rank ? rank : FAR_RANK_ANY);
	struct far_val out;
	CHECK_STATUS(far_rpc_sync(m->agent, "host", "t::greet", FAR_ARGS("victim"), NULL, &out, &err), FAR_OK, &err);
	atomic_fetch_add(victim_is, 1);
	for (;;)
		pause();
}

/* A process that was begun before there were threads; it goes on when the parent writes to `go`. */
struct later {
	pid_t pid;
	int go;
};

static void later_begin(struct later *l, size_t n, spawn_main *body)
{
	for (size_t i = 0; i < n; i++) {
		int go[2];
		CHECK(pipe(go) == 0);
		l[i].go = go[1];
		fflush(NULL);
		l[i].pid = fork();
		CHECK(l[i].pid >= 0);
		if (l[i].pid == 0) {
			char c;
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			unsetenv("FAR_STORE_FD");
			for (size_t k = 0; k <= i; k++)
				close(l[k].go);
			CHECK(read(go[0], &c, 1) == 1);
			_exit(body(1));
		}
		close(go[0]);
	}
}

static int killed(int rank)
{
	struct far_worker_info info;
	struct far_future *pending;
	struct far_val out;
	struct later l[KILLS];
	uint64_t before = 0;
	victim_is = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(victim_is != MAP_FAILED);
	later_begin(l, KILLS, victim);
	struct member *host = joins("g", "host", 0);
	for (int i = 0; i < KILLS; i++) {
		CHECK(write(l[i].go, "", 1) == 1);
		while (atomic_load(victim_is) <= i)
			usleep(1000);
		CHECK_STATUS(far_worker_by_name(host->agent, "victim", &info, &err), FAR_OK, &err);
		CHECK(info.incarnation != before && info.rank == 1);
		before = info.incarnation;
		CHECK_STATUS(far_rpc_async(host->agent, "victim", "t::keep", FAR_NOARGS,
					   &(struct far_call_opts){.timeout_ns = FAR_FOREVER}, &pending, &err),
			     FAR_OK, &err);
		CHECK_STATUS(far_rpc_sync(host->agent, "victim", "far::add", FAR_ARGS(1, 2), NULL, &out, &err), FAR_OK,
			     &err);
		kill(l[i].pid, SIGKILL);
		CHECK(waitpid(l[i].pid, NULL, 0) == l[i].pid);
		CHECK_STATUS(far_future_wait(pending, FAR_FOREVER, NULL, &err), FAR_PEER_LOST, &err);
		far_future_free(pending);
		forgets(host, "victim");
	}
	leaves(host);
	return 0;
}

static int namesake(int rank)
{
	refused("g", "host", rank, FAR_WORLD_DYNAMIC, 0, FAR_NOT_UNIQUE, "\"host\" is not unique: rank 0");
	refused("g", "host", FAR_RANK_ANY, FAR_WORLD_DYNAMIC, 0, FAR_NOT_UNIQUE, "\"host\" is not unique: rank 0");
	refused("g", "other", 2, FAR_WORLD_DYNAMIC, 0, FAR_NOT_UNIQUE, "\"guest\"");
	return 0;
}

/* The name, and the rank, of a living member. */
static int taken(int rank)
{
	struct later l;
	int status;
	later_begin(&l, 1, namesake);
	struct member *host = joins("g", "host", 0), *guest = joins("g", "guest", 2);
	CHECK(write(l.go, "", 1) == 1);
	CHECK(waitpid(l.pid, &status, 0) == l.pid && status == 0);
	meet(guest, host);
	leaves(guest);
	leaves(host);
	return 0;
}

/* ---- the cases, each in a process ---- */

static void run(const char *what, spawn_main *body)
{
	struct spawned s = {.world = 1};
	int listener = spawn_listen(&s.port);
	s.pids[0] = spawn_one(&s, 0, listener, body);
	close(listener);
	if (spawn_wait(&s, -1)) {
		fprintf(stderr, "case %s over %s\n", what, method ? method : "tcp");
		exit(1);
	}
}

static void run_all(void)
{
	run("join_leave", join_leave);
	run("references", references);
	run("mixtures", mixtures);
	run("in_static", in_static);
	run("bound", bound);
	run("together", together);
	run("without_host", without_host);
	run("taken", taken);
	run("killed", killed);
}

int main(int argc, char **argv)
{
	char path[64] = "file:///tmp/farcall-dynamic-XXXXXX";
	alarm(HANG_GUARD_S);
	if (argc > 1) {
		method = argv[1];
		run_all();
		return 0;
	}
	run_all();
	CHECK(mkdtemp(path + 7));
	method = path;
	run_all();
	CHECK(rmdir(path + 7) == 0);
	return 0;
}
