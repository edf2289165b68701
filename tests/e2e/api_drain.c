/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Shutdowns that have something to wait for, or must not wait: calls that lead to others when all have sent bye,
 * handlers of one-way messages that do, a member that dies meanwhile, values that refer to each other across workers;
 * and what is done about leaks. Main thread of each process; handlers on shard threads.
 */
#include "api_spawn.h"
#include "handlers.h"

#include <stdatomic.h>
#include <time.h>

enum { WORLD = 3, HOPS = 30, CHAINS = 4 };

static struct far_err err;
static _Atomic int hops;

/* Calls the next worker, after a moment, and does not wait for it. */
static enum far_status hop(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *agent = far_req_agent(req);
	struct far_worker_info me;
	struct far_future *f;
	int64_t left = args[0].u.i;
	CHECK_STATUS(far_future_create(&f, NULL), FAR_OK, NULL);
	far_future_wait(f, 2 * FAR_MS, NULL, NULL);
	far_future_free(f);
	atomic_fetch_add(&hops, 1);
	if (left > 0) {
		far_worker_self(agent, &me);
		enum far_status status = far_rpc_async_to(agent, (struct far_to){(me.rank + 1) % WORLD, -1}, "d::hop",
							  FAR_ARGS(left - 1), NULL, &f, NULL);
		if (status) /* the deadline of its shutdown has passed */
			return status;
		far_future_free(f);
	}
	return far_return(req, NULL);
}

static struct far_rref *kept[2];

/* Keeps a reference, and returns it: so the value refers to it too. */
static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	kept[0] = far_rref_ref(args[0].u.rref);
	return far_return(req, &args[0]);
}

/* Until the end. */
static enum far_status stay(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *f;
	CHECK_STATUS(far_future_create(&f, NULL), FAR_OK, NULL);
	far_future_wait(f, FAR_FOREVER, NULL, NULL);
	far_future_free(f);
	return far_return(req, NULL);
}

static const struct far_function functions[] = {
	{"d::stay() -> none", FAR_KIND_FIBER, stay, NULL},
	{"d::hop(int left) -> none", FAR_KIND_FIBER, hop, NULL},
	{"d::keep(rref r) -> rref", FAR_KIND_FIBER, keep, NULL},
	{"d::echo(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL},
};

enum { NOTE_FIBER = 7, NOTE_BLOCKING };

/* A one-way message whose handler is slow, and then calls the next worker. */
static void record_message(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_agent *agent = far_req_agent(req);
	struct far_worker_info me;
	struct far_future *f;
	struct far_err e;
	CHECK_STATUS(far_future_create(&f, &e), FAR_OK, &e);
	far_future_wait(f, 100 * FAR_MS, NULL, NULL);
	far_future_free(f);
	far_worker_self(agent, &me);
	CHECK_STATUS(far_rpc_async_to(agent, (struct far_to){(me.rank + 1) % WORLD, -1}, "d::hop", FAR_ARGS(0), NULL,
				      &f, &e),
		     FAR_OK, &e);
	far_future_free(f);
}

static const struct far_msg_handler messages[] = {
	{NOTE_FIBER, FAR_KIND_FIBER, record_message, NULL},
	{NOTE_BLOCKING, FAR_KIND_BLOCKING, record_message, NULL},
};
static struct far_opts opts = {.messages = messages,
			       .messages_n = sizeof messages / sizeof messages[0],
			       .functions = functions,
			       .functions_n = sizeof functions / sizeof functions[0]};

/* Four chains of calls, each worker having nothing outstanding for most of the time: all are run to their ends. */
static int chains(int rank)
{
	struct far_agent *agent = check_join(&opts);
	struct far_future *f;
	for (int i = 0; i < CHAINS && rank == 0; i++) {
		CHECK_STATUS(
			far_rpc_async_to(agent, (struct far_to){0, -1}, "d::hop", FAR_ARGS(HOPS - 1), NULL, &f, &err),
			FAR_OK, &err);
		far_future_free(f);
	}
	check_leave(agent);
	CHECK(atomic_load(&hops) == CHAINS * HOPS / WORLD);
	return 0;
}

/* Each sends one-way messages to the next one and to itself, and leaves: what their handlers call has been done. */
static int oneways(int rank)
{
	struct far_agent *agent = check_join(&opts);
	for (int i = 0; i < 2; i++)
		for (uint16_t id = NOTE_FIBER; id <= NOTE_BLOCKING; id++)
			CHECK_STATUS(
				far_msg_oneway(agent, (struct far_to){(rank + i) % WORLD, -1}, id, NULL, 0, NULL, &err),
				FAR_OK, &err);
	check_leave(agent);
	CHECK(atomic_load(&hops) == 4);
	return 0;
}

/* The last one ends while the others wait for it. */
static int one_dies(int rank)
{
	struct far_agent *agent = check_join(&opts);
	struct far_rref *r;
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	if (rank == 2) { /* it holds a value of 1's */
		CHECK_STATUS(far_remote_to(agent, (struct far_to){1, -1}, "d::echo", FAR_ARGS(1), NULL, &r, &err),
			     FAR_OK, &err);
		CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_OK, &err);
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
		raise(SIGKILL);
	}
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "\"worker2\"");
	return 0;
}

/* What is on stderr from here on. Returns what it was. */
static int catch_stderr(char *path)
{
	int fd = mkstemp(path), before = dup(STDERR_FILENO);
	CHECK(fd >= 0 && before >= 0);
	fflush(stderr);
	CHECK(dup2(fd, STDERR_FILENO) >= 0);
	close(fd);
	return before;
}

static size_t caught(int before, char *path, char *text, size_t len)
{
	fflush(stderr);
	dup2(before, STDERR_FILENO);
	close(before);
	FILE *f = fopen(path, "r");
	CHECK(f);
	size_t n = fread(text, 1, len - 1, f);
	text[n] = 0;
	fclose(f);
	unlink(path);
	return n;
}

/* 0 and 1 hold, and have in values of theirs, references to a value of the other each. Nobody waits for that. */
static void tie(struct far_agent *agent, int rank)
{
	struct far_val v;
	if (rank > 1)
		return;
	int other = 1 - rank;
	struct far_rref *mine, *there;
	CHECK_STATUS(far_remote_to(agent, (struct far_to){rank, -1}, "d::echo", FAR_ARGS(rank), NULL, &mine, &err),
		     FAR_OK, &err);
	CHECK_STATUS(far_remote_to(agent, (struct far_to){other, -1}, "d::keep", FAR_ARGS(mine), NULL, &there, &err),
		     FAR_OK, &err);
	CHECK_STATUS(far_rref_to_here(there, 0, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_RREF && far_rref_same(v.u.rref, mine));
	far_val_fini(&v);
	far_rref_free(mine);
	kept[1] = there;
}

static int garbage(int rank, enum far_leaks leaks)
{
	char path[] = "/tmp/farcall-drain-XXXXXX", text[8192];
	opts.leaks = leaks;
	struct far_agent *agent = check_join(&opts);
	tie(agent, rank);
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	int before = catch_stderr(path);
	enum far_status status = far_shutdown(agent, FAR_FOREVER, &err);
	size_t n = caught(before, path, text, sizeof text);
	bool tied = rank < 2;
	if (n)
		fprintf(stderr, "[%d] said at the end:\n%s", rank, text);
	CHECK(status == (tied && leaks == FAR_LEAKS_FAIL ? FAR_LEAKED : FAR_OK));
	CHECK((n > 0) == (tied && leaks != FAR_LEAKS_IGNORE));
	if (n) {
		CHECK(strstr(text, rank ? "worker \"worker1\" still holds" : "worker \"worker0\" still holds"));
		CHECK(strstr(text, rank ? "still held by worker \"worker0\" (rank 0, shard 0)"
					: "still held by worker \"worker1\" (rank 1, shard 0)"));
	}
	if (status)
		CHECK_TEXT(&err, "RRef(created_on=");
	far_rref_free(kept[0]);
	far_rref_free(kept[1]);
	return 0;
}

static int garbage_reported(int rank)
{
	return garbage(rank, FAR_LEAKS_REPORT);
}

static int garbage_ignored(int rank)
{
	return garbage(rank, FAR_LEAKS_IGNORE);
}

static int garbage_fails(int rank)
{
	return garbage(rank, FAR_LEAKS_FAIL);
}

/* Calls that lead to others for ever, and one whose deadline comes first: the others see it go, and with it the chain
 * ends. They name it. */
static int late(int rank, int first)
{
	struct far_agent *agent = check_join(&opts);
	struct far_future *f;
	char name[32];
	if (rank == 0) {
		CHECK_STATUS(
			far_rpc_async_to(agent, (struct far_to){1, -1}, "d::hop", FAR_ARGS(1000000), NULL, &f, &err),
			FAR_OK, &err);
		far_future_free(f);
	}
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown(agent, (rank == first ? 300 : 20000) * FAR_MS, &err), FAR_TIMEOUT, &err);
	snprintf(name, sizeof name, "\"worker%d\"", first);
	if (rank != first && first)
		CHECK_TEXT(&err, name);
	else if (first == 0 && rank)
		CHECK_TEXT(&err, "rank 0");
	return 0;
}

static int late_first(int rank)
{
	return late(rank, 0);
}

static int late_last(int rank)
{
	return late(rank, 2);
}

/* The last one leaves at its deadline, with a reference to a value of 1's: no leak, since it could not give it back. */
static int late_holder(int rank)
{
	char path[] = "/tmp/farcall-drain-XXXXXX", text[8192];
	opts.leaks = FAR_LEAKS_FAIL;
	struct far_agent *agent = check_join(&opts);
	struct far_rref *r = NULL;
	struct far_future *f;
	if (rank == 2) {
		CHECK_STATUS(far_remote_to(agent, (struct far_to){1, -1}, "d::echo", FAR_ARGS(1), NULL, &r, &err),
			     FAR_OK, &err);
		CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_OK, &err);
		CHECK_STATUS(far_rpc_async_to(agent, (struct far_to){2, -1}, "d::stay", FAR_NOARGS, NULL, &f, &err),
			     FAR_OK, &err);
		far_future_free(f);
	}
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	int before = catch_stderr(path);
	enum far_status status = far_shutdown(agent, (rank == 2 ? 300 : 20000) * FAR_MS, &err);
	caught(before, path, text, sizeof text);
	CHECK_STATUS(status, FAR_TIMEOUT, &err);
	CHECK(!strstr(text, "still held by"));
	far_rref_free(r);
	return 0;
}

int main(void)
{
	static const struct {
		spawn_main *body;
		int killed;
	} all[] = {{chains, -1},           {oneways, -1},         {one_dies, 2},
		   {garbage_reported, -1}, {garbage_ignored, -1}, {garbage_fails, -1},
		   {late_first, -1},       {late_last, -1},       {late_holder, -1}};
	int bad = 0;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct spawned s = spawn(WORLD, all[i].body);
		int ended = spawn_wait(&s, all[i].killed);
		if (ended)
			fprintf(stderr, "case %zu failed\n", i);
		bad |= ended;
	}
	return bad;
}
