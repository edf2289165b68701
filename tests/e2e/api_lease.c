/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Leases in a dynamic group: a member that is stopped for longer than its lease, one that is killed; over tcp rank 0
 * killed and started again, or stopped for a while, and every member restarted in turn under load; over a file the
 * directory away for a while; over etcd (ETCD_URL DISTURB CUT_URL CUT_PID) etcd down and hanging, and a member that is
 * cut off from it. Each case is a process that joins as "first", and starts others before it has threads.
 */
#include "api_spawn.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { PROCESSES = 6, REFERENCES = 5, CALLS = 40, WAVE = 200 };

#define LEASE  (2 * FAR_SEC)   /* members get the processor within it */
#define ENDURE (600 * FAR_SEC) /* a lease that no test outlasts */

static struct far_err err;

/* Of all processes of a case. */
static struct shared {
	_Atomic int joined[PROCESSES];    /* incarnations that have joined */
	_Atomic int ticks[PROCESSES + 1]; /* handlers run */
	_Atomic bool logged;              /* one has logged that it is no member any more */
} * shared;

static int number = PROCESSES; /* of this process; of those that were started, from 0 */
static struct far_agent *agent;
static const char *method; /* NULL: tcp://, with rank 0 as host */

static void nap(void)
{
	usleep(1000);
}

/* ---- what members serve ---- */

static enum far_status tick(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_fetch_add(&shared->ticks[number], 1);
	return far_return_int(req, number);
}

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *kept; /* as long as this member */
	return far_defer(req, &kept);
}

static const struct far_function functions[] = {{"t::tick() -> int", FAR_KIND_INLINE, tick, NULL},
						{"t::keep() -> none", FAR_KIND_INLINE, keep, NULL}};

static void on_log(enum far_log_level level, const char *text, const struct far_log_field *fields, size_t n, void *user)
{
	if (strstr(text, "is no member of group"))
		atomic_store(&shared->logged, true);
}

static struct far_agent *joins(const char *name, int rank, uint64_t lease_ns)
{
	const struct far_opts opts = {.init_method = method,
				      .functions = functions,
				      .functions_n = 2,
				      .leaks = FAR_LEAKS_IGNORE,
				      .security = "none",
				      .lease_ns = lease_ns,
				      .init_timeout_ns = 40 * FAR_SEC};
	struct far_agent *a = NULL;
	CHECK_STATUS(check_init(name, rank, FAR_WORLD_DYNAMIC, &opts, &a, &err), FAR_OK, &err);
	return a;
}

static int64_t calls(const char *to)
{
	struct far_val out;
	CHECK_STATUS(far_rpc_sync(agent, to, "t::tick", FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
	return out.u.i;
}

/* Calls until an answer comes: the name has just come back, or its member has. */
static int64_t calls_again(const char *to)
{
	struct far_val out;
	while (far_rpc_sync(agent, to, "t::tick", FAR_NOARGS, NULL, &out, &err))
		nap();
	return out.u.i;
}

/* ---- members that are lost ---- */

static struct lost {
	_Atomic int n;
	char name[FAR_NAME_MAX], why[64];
} lost;

static _Atomic uint64_t joined[16]; /* incarnations, in the order of the callbacks */
static _Atomic unsigned joined_n;

static void on_member(struct far_agent *a, enum far_member_event event, const struct far_worker_info *w, void *user)
{
	if (event == FAR_MEMBER_JOINED) {
		atomic_store(&joined[atomic_fetch_add(&joined_n, 1) % 16], w->incarnation);
		return;
	}
	memcpy(lost.name, w->name, sizeof lost.name);
	memcpy(lost.why, w->lost_why, sizeof lost.why);
	atomic_fetch_add(&lost.n, 1);
}

/* Waits until the callback has seen the member: one that is gone before is not reported. */
static void await_seen(const char *name)
{
	struct far_worker_info w;
	bool seen = false;
	CHECK_STATUS(far_worker_by_name(agent, name, &w, &err), FAR_OK, &err);
	while (!seen) {
		for (unsigned i = 0; i < 16; i++)
			seen |= atomic_load(&joined[i]) == w.incarnation;
		nap();
	}
}

static void await_lost(int n, const char *name, const char *why)
{
	while (atomic_load(&lost.n) < n)
		nap();
	CHECK(strcmp(lost.name, name) == 0);
	if (!strstr(lost.why, why))
		fprintf(stderr, "lost because %s\n", lost.why);
	CHECK(strstr(lost.why, why));
}

/* ---- processes that were started before there were threads, and go on when they are let ---- */

struct later {
	pid_t pid;
	int go;
};

static void later_begin(struct later *l, int n, spawn_main *body)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	for (int i = 0; i < n; i++) {
		int go[2];
		char c;
		CHECK(pipe(go) == 0);
		l[i].go = go[1];
		fflush(NULL);
		l[i].pid = fork();
		CHECK(l[i].pid >= 0);
		if (l[i].pid) {
			close(go[0]);
			continue;
		}
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		unsetenv("FAR_STORE_FD");
		for (int k = 0; k <= i; k++)
			close(l[k].go);
		CHECK(read(go[0], &c, 1) == 1);
		number = i;
		_exit(body(i));
	}
}

static void let(const struct later *l, int i)
{
	CHECK(write(l[i].go, "", 1) == 1);
	while (!atomic_load(&shared->joined[i]))
		nap();
}

static void leaves(void)
{
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
}

/* ---- stopped for longer than the lease ---- */

static int worker(int i)
{
	struct far_rref *held[REFERENCES];
	far_log_set(on_log, NULL);
	agent = joins("worker", FAR_RANK_ANY, LEASE);
	for (int k = 0; k < REFERENCES; k++) {
		CHECK_STATUS(far_remote(agent, "first", "t::tick", FAR_NOARGS, NULL, &held[k], &err), FAR_OK, &err);
		CHECK_STATUS(far_rref_wait(held[k], FAR_FOREVER, &err), FAR_OK, &err);
	}
	atomic_fetch_add(&shared->joined[i], 1);
	CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	leaves();
	return 0;
}

static void await_values(uint64_t want)
{
	struct far_rref_counts counts;
	do
		far_rref_counts_read(agent, &counts);
	while (counts.owned != want && usleep(1000) == 0);
}

/* Waits until no thread of the process runs: a poller that is stopped while it polls may run one more burst. */
static void await_asleep(pid_t pid)
{
	char path[64];
	int running;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	do {
		DIR *tasks = opendir(path);
		CHECK(tasks);
		running = 0;
		for (struct dirent *t; (t = readdir(tasks));) {
			char stat[128], state = 'S';
			snprintf(stat, sizeof stat, "%s/%.16s/stat", path, t->d_name);
			FILE *f = t->d_name[0] == '.' ? NULL : fopen(stat, "r");
			running += f && (fscanf(f, "%*d (%*[^)]) %c", &state) != 1 || state != 'S');
			if (f)
				fclose(f);
		}
		closedir(tasks);
	} while (running && usleep(1000) == 0);
}

static int stopped(int rank)
{
	struct far_worker_info before, after;
	struct far_future *kept, *missed;
	struct later l[2];
	later_begin(l, 2, worker);
	agent = joins("first", 0, LEASE);
	CHECK_STATUS(far_on_member(agent, on_member, NULL, &err), FAR_OK, &err);
	let(l, 0);
	CHECK(calls("worker") == 0);
	await_seen("worker");
	await_values(REFERENCES);
	CHECK_STATUS(far_worker_by_name(agent, "worker", &before, &err), FAR_OK, &err);
	const struct far_call_opts forever = {.timeout_ns = FAR_FOREVER};
	CHECK_STATUS(far_rpc_async(agent, "worker", "t::keep", FAR_NOARGS, &forever, &kept, &err), FAR_OK, &err);
	CHECK(calls("worker") == 0);
	int ticks = atomic_load(&shared->ticks[0]);
	int status;
	await_asleep(l[0].pid);
	kill(l[0].pid, SIGSTOP);
	CHECK(waitpid(l[0].pid, &status, WUNTRACED) == l[0].pid && WIFSTOPPED(status));
	/* It arrives at the worker while that is stopped, and never runs. */
	CHECK_STATUS(far_rpc_async(agent, "worker", "t::tick", FAR_NOARGS, &forever, &missed, &err), FAR_OK, &err);
	await_lost(1, "worker", "lease");
	CHECK_STATUS(far_future_wait(kept, FAR_FOREVER, NULL, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker");
	CHECK_STATUS(far_future_wait(missed, FAR_FOREVER, NULL, &err), FAR_PEER_LOST, &err);
	far_future_free(kept);
	far_future_free(missed);
	await_values(0);
	/* A replacement serves at once. */
	let(l, 1);
	CHECK(calls_again("worker") == 1);
	await_seen("worker");
	kill(l[0].pid, SIGCONT);
	while (!atomic_load(&shared->logged))
		nap();
	CHECK(calls("worker") == 1);
	CHECK(atomic_load(&shared->ticks[0]) == ticks);
	/* The name is free again: the one that was stopped joins by itself, as another incarnation. */
	kill(l[1].pid, SIGTERM);
	await_lost(2, "worker", "left");
	CHECK(calls_again("worker") == 0);
	await_seen("worker");
	CHECK_STATUS(far_worker_by_name(agent, "worker", &after, &err), FAR_OK, &err);
	CHECK(after.incarnation != before.incarnation);
	kill(l[0].pid, SIGTERM);
	await_lost(3, "worker", "left");
	for (int i = 0; i < 2; i++)
		CHECK(waitpid(l[i].pid, &status, 0) == l[i].pid && status == 0);
	leaves();
	return 0;
}

/* ---- killed ---- */

static int enduring(int i)
{
	agent = joins("worker", FAR_RANK_ANY, ENDURE);
	atomic_fetch_add(&shared->joined[i], 1);
	while (pause())
		;
	return 0;
}

static int killed(int rank)
{
	struct later l[2];
	later_begin(l, 2, enduring);
	agent = joins("first", 0, ENDURE);
	CHECK_STATUS(far_on_member(agent, on_member, NULL, &err), FAR_OK, &err);
	for (int i = 0; i < 2; i++) {
		let(l, i);
		CHECK(calls_again("worker") == i);
		await_seen("worker");
		kill(l[i].pid, SIGKILL);
		await_lost(i + 1, "worker", "process");
	}
	leaves();
	return 0;
}

/* ---- rank 0 is killed, and starts again ---- */

static int host(int i)
{
	agent = joins("host", 0, LEASE);
	atomic_fetch_add(&shared->joined[i], 1);
	CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	leaves();
	return 0;
}

static int third(int i)
{
	agent = joins("third", FAR_RANK_ANY, LEASE);
	atomic_fetch_add(&shared->joined[i], 1);
	CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	leaves();
	return 0;
}

static int host_or_third(int i)
{
	return i < 2 ? host(i) : third(i);
}

static int hosted(int rank)
{
	struct far_worker_info second, now;
	struct later l[3];
	later_begin(l, 3, host_or_third);
	unsetenv("FAR_STORE_FD"); /* rank 0 is another process, and listens by itself */
	let(l, 0);
	agent = joins("first", FAR_RANK_ANY, LEASE);
	CHECK_STATUS(far_on_member(agent, on_member, NULL, &err), FAR_OK, &err);
	struct far_agent *other = joins("second", FAR_RANK_ANY, LEASE);
	CHECK_STATUS(far_worker_wait(agent, "second", FAR_FOREVER, &second, &err), FAR_OK, &err);
	await_seen("second");
	await_seen("host");
	kill(l[0].pid, SIGKILL);
	await_lost(1, "host", "");
	/* Calls go on beyond the lease, and a join waits. */
	CHECK(write(l[2].go, "", 1) == 1);
	for (int i = 0; i < CALLS; i++) {
		calls("second");
		usleep((useconds_t)(LEASE / 1000 / 20));
	}
	CHECK(!atomic_load(&shared->joined[2]) && atomic_load(&lost.n) == 1);
	/* Rank 0 is back: who waited joins, and nobody was lost. */
	let(l, 1);
	while (!atomic_load(&shared->joined[2]))
		nap();
	calls_again("third");
	await_seen("third");
	calls_again("host");
	CHECK_STATUS(far_worker_by_name(agent, "second", &now, &err), FAR_OK, &err);
	CHECK(now.incarnation == second.incarnation && atomic_load(&lost.n) == 1);
	calls("second");
	kill(l[2].pid, SIGTERM);
	await_lost(2, "third", "left");
	CHECK_STATUS(far_shutdown(other, FAR_FOREVER, &err), FAR_OK, &err);
	await_lost(3, "second", "left");
	leaves();
	kill(l[1].pid, SIGTERM);
	for (int i = 1; i < 3; i++) {
		int status;
		CHECK(waitpid(l[i].pid, &status, 0) == l[i].pid && status == 0);
	}
	return 0;
}

/* ---- rank 0 is stopped for longer than the lease, and goes on ---- */

static void calls_for(uint64_t ns)
{
	for (uint64_t passed = 0; passed < ns; passed += ns / CALLS) {
		calls("second");
		usleep((useconds_t)(ns / CALLS / 1000));
	}
}

static int paused(int rank)
{
	struct far_worker_info second, now;
	struct later l[3];
	int status;
	later_begin(l, 3, host_or_third);
	unsetenv("FAR_STORE_FD");
	let(l, 0);
	agent = joins("first", FAR_RANK_ANY, LEASE);
	CHECK_STATUS(far_on_member(agent, on_member, NULL, &err), FAR_OK, &err);
	struct far_agent *other = joins("second", FAR_RANK_ANY, LEASE);
	CHECK_STATUS(far_worker_wait(agent, "second", FAR_FOREVER, &second, &err), FAR_OK, &err);
	await_seen("second");
	await_seen("host");
	calls("host");
	kill(l[0].pid, SIGSTOP);
	CHECK(waitpid(l[0].pid, &status, WUNTRACED) == l[0].pid && WIFSTOPPED(status));
	CHECK(write(l[2].go, "", 1) == 1);
	calls_for(3 * LEASE / 2);
	CHECK(!atomic_load(&shared->joined[2]) && atomic_load(&lost.n) == 0);
	kill(l[0].pid, SIGCONT);
	while (!atomic_load(&shared->joined[2]))
		nap();
	calls_again("third");
	await_seen("third");
	calls_again("host");
	calls_for(3 * LEASE / 2);
	CHECK_STATUS(far_worker_by_name(agent, "second", &now, &err), FAR_OK, &err);
	CHECK(now.incarnation == second.incarnation && atomic_load(&lost.n) == 0);
	kill(l[2].pid, SIGTERM);
	await_lost(1, "third", "left");
	CHECK_STATUS(far_shutdown(other, FAR_FOREVER, &err), FAR_OK, &err);
	await_lost(2, "second", "left");
	leaves();
	kill(l[0].pid, SIGTERM);
	kill(l[1].pid, SIGKILL); /* was never let */
	CHECK(waitpid(l[0].pid, &status, 0) == l[0].pid && status == 0);
	CHECK(waitpid(l[1].pid, NULL, 0) == l[1].pid);
	CHECK(waitpid(l[2].pid, &status, 0) == l[2].pid && status == 0);
	return 0;
}

/* ---- all are restarted, one after the other, rank 0 too ---- */

static const char *const rolled[] = {"host", "second", "third"};
static _Atomic bool rolled_all;
static _Atomic uint64_t answers; /* of the load */

/* The process i of the first three, and the one that replaces it, i + 3. */
static int rolls(int i)
{
	agent = joins(rolled[i % 3], i % 3 ? FAR_RANK_ANY : 0, LEASE);
	atomic_fetch_add(&shared->joined[i], 1);
	CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	leaves();
	return 0;
}

/* Calls each name in turn, again until it answers. Returns the calls that may have run without an answer. */
static void *load(void *arg)
{
	uint64_t *maybe = arg;
	for (unsigned i = 0; !atomic_load(&rolled_all); i++) {
		struct far_val out;
		struct far_err e;
		enum far_status status;
		while ((status = far_rpc_sync(agent, rolled[i % 3], "t::tick", FAR_NOARGS, NULL, &out, &e))) {
			CHECK(status == FAR_PEER_LOST || status == FAR_UNKNOWN_WORKER || status == FAR_UNREACHABLE);
			*maybe += e.executed == FAR_EXECUTED_MAYBE;
			nap();
		}
		atomic_fetch_add(&answers, 1);
	}
	return NULL;
}

static void await_answers(void)
{
	for (uint64_t from = atomic_load(&answers); atomic_load(&answers) < from + WAVE;)
		nap();
}

static int rolling(int rank)
{
	struct later l[6];
	pthread_t thread;
	uint64_t maybe = 0;
	int ran = 0;
	later_begin(l, 6, rolls);
	unsetenv("FAR_STORE_FD");
	for (int i = 0; i < 3; i++)
		let(l, i);
	agent = joins("first", FAR_RANK_ANY, LEASE);
	CHECK(pthread_create(&thread, NULL, load, &maybe) == 0);
	await_answers();
	for (int i = 2; i >= 0; i--) {
		int status;
		kill(l[i].pid, SIGTERM);
		CHECK(waitpid(l[i].pid, &status, 0) == l[i].pid && status == 0);
		let(l, i + 3);
		await_answers();
	}
	atomic_store(&rolled_all, true);
	pthread_join(thread, NULL);
	for (int i = 0; i < 6; i++) {
		CHECK(atomic_load(&shared->ticks[i]) > 0); /* each has served */
		ran += atomic_load(&shared->ticks[i]);
	}
	/* No call was lost: each has run, and none twice but where the caller was warned. */
	CHECK((uint64_t)ran >= atomic_load(&answers) && (uint64_t)ran <= atomic_load(&answers) + maybe);
	leaves();
	for (int i = 5; i >= 3; i--) {
		int status;
		kill(l[i].pid, SIGTERM);
		CHECK(waitpid(l[i].pid, &status, 0) == l[i].pid && status == 0);
	}
	return 0;
}

/* ---- the directory of the store's file is not there for a while ---- */

static int hidden(int rank)
{
	char away[80];
	struct far_worker_info before, after;
	struct later l[1];
	later_begin(l, 1, worker);
	agent = joins("first", 0, LEASE);
	CHECK_STATUS(far_on_member(agent, on_member, NULL, &err), FAR_OK, &err);
	let(l, 0);
	await_seen("worker");
	CHECK_STATUS(far_worker_by_name(agent, "worker", &before, &err), FAR_OK, &err);
	snprintf(away, sizeof away, "%s.away", method + 7);
	CHECK(rename(method + 7, away) == 0);
	for (int i = 0; i < CALLS / 2; i++) {
		CHECK(calls("worker") == 0);
		usleep((useconds_t)(LEASE / 1000 / 10));
	}
	CHECK(rename(away, method + 7) == 0);
	for (int i = 0; i < CALLS / 2; i++) {
		CHECK(calls("worker") == 0);
		usleep((useconds_t)(LEASE / 1000 / 10));
	}
	CHECK(atomic_load(&lost.n) == 0 && !atomic_load(&shared->logged));
	CHECK_STATUS(far_worker_by_name(agent, "worker", &after, &err), FAR_OK, &err);
	CHECK(after.incarnation == before.incarnation);
	kill(l[0].pid, SIGTERM);
	await_lost(1, "worker", "left");
	CHECK(waitpid(l[0].pid, NULL, 0) == l[0].pid);
	leaves();
	return 0;
}

#include "api_lease_etcd.h"

/* ---- the cases, each in a process ---- */

static void run(const char *what, spawn_main *body)
{
	struct spawned s = {.world = 1};
	alarm(HANG_GUARD_S);
	int listener = spawn_listen(&s.port);
	bool inherits = body != hosted && body != paused && body != rolling;
	if (!inherits)
		close(listener);
	s.pids[0] = spawn_one(&s, 0, inherits ? listener : -1, body);
	if (inherits)
		close(listener);
	if (spawn_wait(&s, -1)) {
		fprintf(stderr, "case %s over %s\n", what, method ? method : "tcp");
		exit(1);
	}
}

/* Without arguments: tcp and file. */
int main(int argc, char **argv)
{
	if (argc == 5) {
		method = argv[1];
		disturb = argv[2];
		cut_method = argv[3];
		cut_pid = atoi(argv[4]);
		run("stopped", stopped);
		run("killed", killed);
		CHECK(setenv("FAR_NIC", "udp", 1) == 0); /* no driver sees the end of a process */
		run("killed", killed);
		CHECK(unsetenv("FAR_NIC") == 0);
		run("unreachable", unreachable);
		run("cut", cut);
		return 0;
	}
	run("stopped", stopped);
	run("killed", killed);
	run("hosted", hosted);
	run("paused", paused);
	run("rolling", rolling);
	char path[64] = "file:///tmp/farcall-lease-XXXXXX";
	CHECK(mkdtemp(path + 7));
	method = path;
	run("stopped", stopped);
	run("killed", killed);
	run("hidden", hidden);
	CHECK(rmdir(path + 7) == 0);
	return 0;
}
