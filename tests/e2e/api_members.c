/* SPDX-License-Identifier: BSD-3-Clause */
/** far_worker_wait() and far_on_member(): waits before and after the worker has joined, from threads, fibers and inline
 * handlers; callbacks that call, their order, their bounds; the end of the agent. The agents are in one process. */
#include "api_spawn.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 4, EVENTS_MAX = 64 };

static struct far_err err;

/* ---- handlers ---- */

static struct far_agent *host;

static enum far_status await(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	char name[FAR_NAME_MAX] = "";
	struct far_worker_info info;
	struct far_err own;
	memcpy(name, args[0].u.s.data, args[0].u.s.len);
	enum far_status status = far_worker_wait(host, name, FAR_FOREVER, &info, &own);
	return status ? far_fail(req, status, 0, "%s", own.text) : far_return_int(req, info.rank);
}

static const struct far_function functions[] = {
	{"t::await(str name) -> int", FAR_KIND_FIBER, await, NULL},
	{"t::await_inline(str name) -> int", FAR_KIND_INLINE, await, NULL},
};

static struct far_agent *joins(const char *name, int rank)
{
	const struct far_opts opts = {.functions = functions, .functions_n = 2, .init_timeout_ns = 40 * FAR_SEC};
	struct far_agent *agent = NULL;
	CHECK_STATUS(check_init(name, rank, FAR_WORLD_DYNAMIC, &opts, &agent, &err), FAR_OK, &err);
	return agent;
}

/* ---- callbacks ---- */

static struct event {
	enum far_member_event event;
	uint64_t incarnation;
	int rank;
	char name[FAR_NAME_MAX];
} events[EVENTS_MAX];
static _Atomic int events_n;

static void on_member(struct far_agent *agent, enum far_member_event event, const struct far_worker_info *worker,
		      void *user)
{
	struct far_val out;
	struct far_err own;
	int n = atomic_load(&events_n);
	CHECK(user == &events && n < EVENTS_MAX);
	events[n] = (struct event){.event = event, .incarnation = worker->incarnation, .rank = worker->rank};
	snprintf(events[n].name, sizeof events[n].name, "%s", worker->name);
	/* It calls the member that has come, unless that has gone again. */
	if (event == FAR_MEMBER_JOINED) {
		enum far_status status =
			far_rpc_sync(agent, worker->name, "far::add", FAR_ARGS(1, 2), NULL, &out, &own);
		CHECK(status == FAR_OK || status == FAR_PEER_LOST || status == FAR_UNKNOWN_WORKER);
	}
	CHECK_STATUS(far_shutdown(agent, 0, &own), FAR_WOULD_DEADLOCK, &own);
	CHECK_TEXT(&own, "far_on_member");
	atomic_store(&events_n, n + 1);
}

static void on_other(struct far_agent *agent, enum far_member_event event, const struct far_worker_info *worker,
		     void *user)
{
}

static void await_events(int n)
{
	while (atomic_load(&events_n) < n)
		usleep(1000);
}

static void callbacks(void)
{
	struct far_agent *first = joins("first", FAR_RANK_ANY);
	struct far_worker_info info;
	uint64_t before = 0;
	CHECK_STATUS(far_on_member(host, NULL, NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_on_member(host, on_member, &events, &err), FAR_OK, &err);
	await_events(1);
	CHECK(events[0].event == FAR_MEMBER_JOINED && strcmp(events[0].name, "first") == 0);
	for (int i = 0; i < ROUNDS; i++) {
		struct far_agent *guest = joins("guest", FAR_RANK_ANY);
		far_worker_self(guest, &info);
		await_events(2 + 2 * i);
		const struct event *e = &events[1 + 2 * i];
		CHECK(e->event == FAR_MEMBER_JOINED && e->rank == info.rank && e->incarnation == info.incarnation);
		CHECK(strcmp(e->name, "guest") == 0 && e->incarnation != before);
		before = e->incarnation;
		CHECK_STATUS(far_shutdown(guest, FAR_FOREVER, &err), FAR_OK, &err);
		await_events(3 + 2 * i);
		e++;
		CHECK(e->event == FAR_MEMBER_LOST && e->incarnation == before && strcmp(e->name, "guest") == 0);
	}
	for (int i = 1; i < FAR_MEMBER_CALLBACKS_MAX; i++)
		CHECK_STATUS(far_on_member(host, on_other, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_on_member(host, on_other, NULL, &err), FAR_RESOURCE, &err);
	CHECK_STATUS(far_shutdown(first, FAR_FOREVER, &err), FAR_OK, &err);
}

/* ---- waits ---- */

static void *waits(void *unused)
{
	struct far_worker_info info;
	struct far_err own;
	CHECK_STATUS(far_worker_wait(host, "late", FAR_FOREVER, &info, &own), FAR_OK, &own);
	CHECK(info.alive && strcmp(info.name, "late") == 0);
	return NULL;
}

static void waiting(void)
{
	struct far_future *future, *handler, *f;
	struct far_worker_info info;
	struct far_val out;
	pthread_t thread;
	CHECK_STATUS(far_worker_wait(host, "host", 0, &info, &err), FAR_OK, &err);
	CHECK(info.rank == 0);
	CHECK_STATUS(far_worker_wait(host, "late", FAR_MS, NULL, &err), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "\"late\"");
	CHECK_STATUS(far_worker_wait(host, "no name", FAR_MS, NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_worker_wait(host, NULL, FAR_MS, NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_rpc_sync(host, "host", "t::await_inline", FAR_ARGS("late"), NULL, &out, &err),
		     FAR_WOULD_DEADLOCK, &err);
	CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
	CHECK_STATUS(far_worker_wait_async(host, "late", &future, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_async(host, "host", "t::await", FAR_ARGS("late"), NULL, &handler, &err), FAR_OK, &err);
	CHECK(!far_future_done(future));
	struct far_agent *late = joins("late", 7);
	CHECK_STATUS(far_future_wait(future, FAR_FOREVER, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == 7);
	CHECK_STATUS(far_future_wait(handler, FAR_FOREVER, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == 7);
	CHECK(pthread_join(thread, NULL) == 0);
	far_future_free(future);
	far_future_free(handler);
	CHECK_STATUS(far_worker_wait(late, "host", 0, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown(late, FAR_FOREVER, &err), FAR_OK, &err);
	/* As many as there may be. Those that are freed make room. */
	struct far_future *all[FAR_MEMBER_WAITS_MAX];
	for (int i = 0; i < FAR_MEMBER_WAITS_MAX; i++) {
		enum far_status status;
		while ((status = far_worker_wait_async(host, "never", &all[i], &err)) == FAR_RESOURCE)
			usleep(1000); /* those of above are not taken off yet */
		CHECK_STATUS(status, FAR_OK, &err);
	}
	CHECK_STATUS(far_worker_wait_async(host, "never", &f, &err), FAR_RESOURCE, &err);
	for (int i = 1; i < FAR_MEMBER_WAITS_MAX; i++)
		far_future_free(all[i]);
	while (far_worker_wait_async(host, "never", &f, &err) == FAR_RESOURCE)
		usleep(1000);
	far_future_free(f);
	CHECK_STATUS(far_shutdown(host, FAR_FOREVER, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(all[0], FAR_FOREVER, NULL, &err), FAR_SHUTDOWN, &err);
	far_future_free(all[0]);
}

/* In a static group the members are there. */
static void in_static(void)
{
	struct far_agent *agent = NULL;
	struct far_worker_info info;
	const struct far_opts opts = {.group = "static"};
	CHECK_STATUS(check_init("alone", 0, 1, &opts, &agent, &err), FAR_OK, &err);
	CHECK_STATUS(far_worker_wait(agent, "alone", 0, &info, &err), FAR_OK, &err);
	CHECK(info.rank == 0 && info.alive);
	CHECK_STATUS(far_worker_wait(agent, "other", FAR_MS, &info, &err), FAR_TIMEOUT, &err);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
}

static int dynamic(int rank)
{
	host = joins("host", 0);
	callbacks();
	waiting();
	return 0;
}

static int alone(int rank)
{
	in_static();
	return 0;
}

static void run(spawn_main *body)
{
	struct spawned s = {.world = 1};
	int listener = spawn_listen(&s.port);
	s.pids[0] = spawn_one(&s, 0, listener, body);
	close(listener);
	CHECK(spawn_wait(&s, -1) == 0);
}

int main(void)
{
	alarm(HANG_GUARD_S);
	run(dynamic);
	run(alone);
	return 0;
}
