/* SPDX-License-Identifier: BSD-3-Clause */
/** Workers of several shards, not all of the same number: ways of a call, who drives, death and shutdown.
 * Main thread of each process; handlers on shard threads; threads that it starts. */
#include "api_spawn.h"
#include "handlers.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

enum { WORLD = 3, THREADS = 32, CALLS = 60, IDS = 8, LATER_MAX = 4096 };

static const unsigned shards_of[WORLD] = {2, 4, 1};
static struct far_agent *agent;
static int self;
static struct far_opts base;

struct seen {
	int32_t worker, shard, here;
};

/* ---- handlers ---- */

static enum far_status where(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_to from = far_req_from(req);
	struct far_val v = far_int((int64_t)far_req_shard(req) * 10000 + from.worker * 100 + from.shard);
	return far_return(req, &v);
}

static void where_message(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_to from = far_req_from(req);
	struct seen seen = {from.worker, from.shard, (int32_t)far_req_shard(req)};
	far_reply(req, &seen, sizeof seen);
}

static void relayed(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	CHECK(status == FAR_OK && len == sizeof(struct seen));
	far_deferred_reply(user, data, len);
}

/* Reads the shard of its own call. Expect its shard, and no other to be allowed. */
static void relay(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_deferred *d;
	struct far_err err;
	struct far_to to;
	CHECK(len == sizeof to);
	memcpy(&to, data, sizeof to);
	unsigned here = far_req_shard(req), shards = far_shards(far_req_agent(req));
	CHECK(far_shard_of_thread(far_req_agent(req)) == here);
	CHECK(far_defer(req, &d) == FAR_OK);
	if (shards > 1) {
		struct far_call_opts other = {.via = FAR_VIA((here + 1) % shards)};
		CHECK_STATUS(far_msg_send(far_req_agent(req), to, 1, NULL, 0, &other, relayed, d, &err), FAR_INVALID,
			     &err);
		CHECK_TEXT(&err, "a handler's calls go through its own shard");
	}
	CHECK_STATUS(far_msg_send(far_req_agent(req), to, 1, NULL, 0, NULL, relayed, d, &err), FAR_OK, &err);
}

static pthread_mutex_t later_lock = PTHREAD_MUTEX_INITIALIZER;
static struct far_deferred *later[LATER_MAX];
static unsigned later_n, later_all;

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	pthread_mutex_lock(&later_lock);
	CHECK(later_n < LATER_MAX && far_defer(req, &later[later_n]) == FAR_OK);
	later_n++;
	later_all++;
	pthread_mutex_unlock(&later_lock);
	return FAR_OK;
}

static _Atomic bool ready;

static enum far_status set_ready(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_store(&ready, true);
	return far_return(req, NULL);
}

static const struct far_function functions[] = {
	{"t::where() -> int", FAR_KIND_INLINE, where, NULL},
	{"t::a() -> int", FAR_KIND_INLINE, where, NULL},
	{"t::b() -> int", FAR_KIND_INLINE, where, NULL},
	{"t::c() -> int", FAR_KIND_INLINE, where, NULL},
	{"t::d() -> int", FAR_KIND_INLINE, where, NULL},
	{"t::e() -> int", FAR_KIND_INLINE, where, NULL},
	{"t::f() -> int", FAR_KIND_INLINE, where, NULL},
	{"t::g() -> int", FAR_KIND_INLINE, where, NULL},
	{"t::keep() -> none", FAR_KIND_INLINE, keep, NULL},
	{"t::die() -> none", FAR_KIND_INLINE, handler_die, NULL},
	{"t::ready() -> none", FAR_KIND_INLINE, set_ready, NULL},
};

static struct far_agent *join(int rank)
{
	static struct far_msg_handler messages[IDS + 1];
	struct far_opts opts = base;
	self = rank;
	for (uint16_t id = 0; id < IDS; id++)
		messages[id] = (struct far_msg_handler){id, FAR_KIND_INLINE, where_message, NULL};
	messages[IDS] = (struct far_msg_handler){IDS, FAR_KIND_INLINE, relay, NULL};
	opts.functions = functions;
	opts.functions_n = sizeof functions / sizeof *functions;
	opts.messages = messages;
	opts.messages_n = IDS + 1;
	opts.shards = shards_of[rank];
	return check_join(&opts);
}

/* ---- callers ---- */

static struct seen message(struct far_to to, uint16_t id, unsigned via)
{
	struct far_call_opts opts = {.via = via};
	struct far_err err;
	struct seen seen;
	size_t len;
	const void *body = id == IDS ? &to : NULL;
	CHECK_STATUS(far_msg_call(agent, to, id, body, body ? sizeof to : 0, &opts, &seen, sizeof seen, &len, &err),
		     FAR_OK, &err);
	CHECK(len == sizeof seen);
	return seen;
}

static int64_t call(struct far_to to, const char *function, unsigned via)
{
	struct far_call_opts opts = {.via = via};
	struct far_err err;
	struct far_val out;
	CHECK_STATUS(far_rpc_sync_to(agent, to, function, FAR_NOARGS, &opts, &out, &err), FAR_OK, &err);
	return out.u.i;
}

/* Every shard of ours calls every shard of everybody, oneself included. */
static void every_pair(void)
{
	for (int w = 0; w < WORLD; w++)
		for (int k = 0; k < (int)shards_of[w]; k++)
			for (int v = 0; v < (int)shards_of[self]; v++) {
				struct far_to to = {w, k};
				struct seen m = message(to, 3, 1 + (unsigned)v);
				CHECK(call(to, "t::where", 1 + (unsigned)v) == k * 10000 + self * 100 + v);
				CHECK(m.worker == self && m.shard == v && m.here == k);
				m = message(to, IDS, 1 + (unsigned)v);
				CHECK(m.worker == w && m.shard == k && m.here == k);
			}
}

static void hashed(void)
{
	bool used[FAR_SHARDS_MAX] = {false};
	int shards_used = 0;
	for (int w = 0; w < WORLD; w++)
		for (uint16_t id = 0; id < IDS; id++)
			CHECK(message((struct far_to){w, -1}, id, 0).here == (int32_t)(id % shards_of[w]));
	for (char c = 'a'; c <= 'g'; c++) {
		char name[] = "t::x";
		name[3] = c;
		int64_t shard = call((struct far_to){1, -1}, name, 0) / 10000;
		CHECK(shard == call((struct far_to){1, -1}, name, 0) / 10000);
		CHECK(shard >= 0 && shard < shards_of[1]);
		shards_used += !used[shard];
		used[shard] = true;
	}
	CHECK(shards_used > 1);
}

static void refusals(void)
{
	struct far_err err;
	struct far_future *f;
	struct far_counters c;
	char text[64];
	struct far_call_opts via = {.via = FAR_VIA(shards_of[self])};
	CHECK_STATUS(far_rpc_async_to(agent, (struct far_to){1, 4}, "t::where", FAR_NOARGS, NULL, &f, &err),
		     FAR_INVALID, &err);
	CHECK_TEXT(&err, "worker \"worker1\" has 4 shards, 0 to 3");
	CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){2, 1}, "t::where", FAR_NOARGS, NULL, NULL, &err),
		     FAR_INVALID, &err);
	CHECK_TEXT(&err, "has 1 shard,");
	CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){1, -2}, "t::where", FAR_NOARGS, NULL, NULL, &err),
		     FAR_INVALID, &err);
	CHECK_STATUS(far_msg_call(agent, (struct far_to){1, INT32_MAX}, 1, NULL, 0, NULL, NULL, 0, NULL, &err),
		     FAR_INVALID, &err);
	CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){0, 0}, "t::where", FAR_NOARGS, &via, NULL, &err),
		     FAR_INVALID, &err);
	snprintf(text, sizeof text, "via is %u", via.via);
	CHECK_TEXT(&err, text);
	CHECK_STATUS(far_shard_acquire_at(agent, shards_of[self], 0, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_shard_counters_read(agent, shards_of[self], &c, &err), FAR_INVALID, &err);
	CHECK(far_shard_poll_at(agent, shards_of[self]) == 0);
	far_shard_release_at(agent, shards_of[self]);
	for (int w = 0; w < WORLD; w++) {
		struct far_worker_info info;
		CHECK_STATUS(far_worker_by_rank(agent, w, &info, &err), FAR_OK, &err);
		CHECK(info.shards == shards_of[w]);
	}
}

/* A thread that holds a shard calls through it, and may wait for what other shards do. */
static void holding(void)
{
	struct far_err err;
	struct far_val out;
	struct far_future *f;
	unsigned last = shards_of[self] - 1;
	enum far_status status = far_shard_acquire_at(agent, last, 20 * FAR_SEC, &err);
	if (status == FAR_UNSUPPORTED)
		return;
	CHECK_STATUS(status, FAR_OK, &err);
	CHECK(far_shard_of_thread(agent) == last);
	CHECK(call((struct far_to){2, 0}, "t::where", 0) == self * 100 + (int)last);
	CHECK(call((struct far_to){2, 0}, "t::where", 1 + last) == self * 100 + (int)last);
	if (last) {
		struct far_call_opts other = {.via = FAR_VIA(0)};
		CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){2, 0}, "t::where", FAR_NOARGS, &other, NULL, &err),
			     FAR_INVALID, &err);
		CHECK_TEXT(&err, "this thread holds shard");
	}
	far_shard_release_at(agent, last);
	if (!last)
		return;
	/* Started through shard 1, run by shard 0, which this thread then holds. */
	struct far_call_opts via = {.via = FAR_VIA(1)};
	CHECK_STATUS(far_shard_acquire_at(agent, 1, 20 * FAR_SEC, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_async_to(agent, (struct far_to){self, 0}, "t::where", FAR_NOARGS, &via, &f, &err), FAR_OK,
		     &err);
	CHECK_STATUS(far_shard_acquire_at(agent, 0, 20 * FAR_SEC, &err), FAR_OK, &err);
	far_shard_release_at(agent, 1);
	CHECK_STATUS(far_future_wait(f, 0, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == self * 100 + 1);
	far_future_free(f);
	far_shard_release(agent);
}

static void *thread_main(void *arg)
{
	int id = (int)(intptr_t)arg;
	for (int i = 0; i < CALLS; i++) {
		struct far_to to = {(id + i) % WORLD, -1};
		if (i % 3)
			to.shard = (id + i) % (int)shards_of[to.worker];
		unsigned via = i % 4 ? 0 : 1 + (unsigned)(id + i) % shards_of[self];
		int64_t got = call(to, "t::where", via);
		CHECK(got / 100 % 100 == self);
		CHECK(to.shard < 0 || got / 10000 == to.shard);
		CHECK(!via || got % 100 == via - 1);
		CHECK(message(to, 5, via).worker == self);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[THREADS];
	struct far_counters all, one;
	uint64_t sent = 0;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, thread_main, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	far_counters_read(agent, &all);
	for (unsigned i = 0; i < far_shards(agent); i++) {
		CHECK(far_shard_counters_read(agent, i, &one, NULL) == FAR_OK);
		CHECK(one.calls_sent > 0 && one.calls_active == 0);
		sent += one.calls_sent;
	}
	CHECK(sent == all.calls_sent && all.calls_active == 0 && all.packets_dropped == 0);
}

static void *answer_main(void *arg)
{
	for (;;) {
		usleep(20000);
		pthread_mutex_lock(&later_lock);
		while (later_n)
			CHECK(far_deferred_return(later[--later_n], NULL) == FAR_OK);
		pthread_mutex_unlock(&later_lock);
	}
	return NULL;
}

/* Everybody leaves while every pair of shards has open requests, which are answered later. Expect none to be lost. */
static void leave_with_work(void)
{
	struct far_err err;
	struct far_future *f;
	pthread_t t;
	unsigned expected = 0;
	CHECK(pthread_create(&t, NULL, answer_main, NULL) == 0);
	for (int w = 0; w < WORLD; w++)
		for (int k = 0; k < (int)shards_of[w]; k++)
			for (unsigned v = 1; v <= shards_of[self]; v++) {
				struct far_call_opts via = {.via = v};
				CHECK_STATUS(far_rpc_async_to(agent, (struct far_to){w, k}, "t::keep", FAR_NOARGS, &via,
							      &f, &err),
					     FAR_OK, &err);
				far_future_free(f);
			}
	for (int w = 0; w < WORLD; w++)
		expected += shards_of[w] * shards_of[self];
	check_leave(agent);
	CHECK(later_all == expected && later_n == 0);
}

static int worker(int rank)
{
	agent = join(rank);
	every_pair();
	hashed();
	refusals();
	holding();
	threads();
	leave_with_work();
	return 0;
}

/* ---- death ---- */

static int mortal(int rank)
{
	struct far_future *f[2][4][4];
	struct far_err err;
	struct far_worker_info info;
	agent = join(rank);
	if (rank == 1)
		pause();
	for (unsigned v = 0; v < shards_of[rank]; v++)
		for (int k = 0; k < 4; k++)
			for (int i = 0; i < 4; i++) {
				struct far_call_opts via = {.via = FAR_VIA(v)};
				CHECK_STATUS(far_rpc_async_to(agent, (struct far_to){1, k}, "t::keep", FAR_NOARGS, &via,
							      &f[v][k][i], &err),
					     FAR_OK, &err);
			}
	if (rank == 2)
		CHECK_STATUS(far_rpc_sync(agent, "worker0", "t::ready", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	while (rank == 0 && !atomic_load(&ready)) /* worker 2 has joined, and has pending calls too */
		usleep(1000);
	if (rank == 0)
		CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){1, 3}, "t::die", FAR_NOARGS, NULL, NULL, &err),
			     FAR_PEER_LOST, &err);
	for (unsigned v = 0; v < shards_of[rank]; v++)
		for (int k = 0; k < 4; k++)
			for (int i = 0; i < 4; i++) {
				CHECK_STATUS(far_future_wait(f[v][k][i], 0, NULL, &err), FAR_PEER_LOST, &err);
				CHECK(strcmp(err.origin, "worker1") == 0);
				far_future_free(f[v][k][i]);
			}
	CHECK(far_worker_by_rank(agent, 1, &info, &err) == FAR_OK && !info.alive);
	for (int k = 0; k < 4; k++)
		CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){1, k}, "t::where", FAR_NOARGS, NULL, NULL, &err),
			     FAR_PEER_LOST, &err);
	/* The living go on. */
	for (int k = 0; k < (int)shards_of[2 - rank]; k++)
		CHECK(call((struct far_to){2 - rank, k}, "t::where", 0) / 10000 == k);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker1");
	return 0;
}

static int end_pipe[2]; /* a pipe whose end shows that worker 1 is gone */

/* Worker 1 dies before anybody has a session with it. Expect the callers and the leaving workers to be notified. */
static int unseen(int rank)
{
	struct far_err err;
	char byte;
	/* The kernel closes a dead process's descriptors in their order: this one after its sockets. */
	if (rank == 1)
		CHECK(fcntl(end_pipe[1], F_DUPFD, 500) >= 500);
	close(end_pipe[1]);
	agent = join(rank);
	if (rank == 1)
		raise(SIGKILL);
	CHECK(read(end_pipe[0], &byte, 1) == 0);
	for (int k = 0; rank == 2 && k < 4; k++) {
		CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){1, k}, "t::where", FAR_NOARGS, NULL, NULL, &err),
			     FAR_PEER_LOST, &err);
		CHECK(strcmp(err.origin, "worker1") == 0);
	}
	if (rank == 2)
		CHECK(call((struct far_to){0, 1}, "t::where", 0) == 10000 + 200);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker1");
	return 0;
}

int main(void)
{
	static const struct far_opts ways[] = {
		{.progress = FAR_PROGRESS_SHARED},
		{.progress = FAR_PROGRESS_DEDICATED},
		{.progress = FAR_PROGRESS_SHARED, .connect = FAR_CONNECT_LAZY},
		{.progress = FAR_PROGRESS_DEDICATED, .connect = FAR_CONNECT_LAZY},
	};
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		base = ways[i];
		struct spawned s = spawn(WORLD, worker);
		if (spawn_wait(&s, -1))
			return 1;
		s = spawn(WORLD, mortal);
		if (spawn_wait(&s, 1))
			return 1;
		if (base.connect != FAR_CONNECT_LAZY)
			continue; /* the others have sessions with it */
		if (strcmp(check_nic(), "shm") != 0)
			continue; /* over a network a dead worker looks like one that is out of reach */
		CHECK(pipe(end_pipe) == 0);
		s = spawn(WORLD, unseen);
		close(end_pipe[1]);
		if (spawn_wait(&s, 1))
			return 1;
		close(end_pipe[0]);
	}
	return 0;
}
