/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads. */
/** Deadlines: of a call, of a wait, of one nanosecond, and none. */
#include "check.h"

static struct far_agent *agent;
static struct far_err err;
static struct far_deferred *kept;
static unsigned ran;

/* What was kept before is let go: every request must be answered once. */
static enum far_status keep_one(struct far_req *req)
{
	if (kept)
		far_deferred_drop(kept);
	ran++;
	return far_defer(req, &kept);
}

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return keep_one(req);
}

static char box[1]; /* the only object; nothing to free */

static enum far_status box_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return_object(req, box);
}

static enum far_status box_keep(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	return keep_one(req);
}

/* Answers what was kept: 0 in time, the status of the late answer otherwise. */
static enum far_status release_kept(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val five = far_int(5);
	struct far_val v = far_int(kept ? (int)far_deferred_return(kept, &five) : -1);
	kept = NULL;
	return far_return(req, &v);
}

static enum far_status count(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(ran);
	return far_return(req, &v);
}

/* Occupies its shard, so that the answer comes when the caller has given up. */
static enum far_status slow(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	usleep((useconds_t)args[0].u.i);
	ran++;
	return far_return(req, NULL);
}

static int64_t query(const char *fn)
{
	struct far_val out;
	CHECK_STATUS(far_rpc_sync(agent, "worker1", fn, FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
	return out.u.i;
}

static enum far_status call_for(uint64_t timeout, const char *fn, const struct far_val *args, size_t n)
{
	struct far_call_opts opts = {.timeout_ns = timeout};
	return far_rpc_sync(agent, "worker1", fn, args, n, &opts, NULL, &err);
}

static struct far_counters counters(void)
{
	struct far_counters c;
	far_counters_read(agent, &c);
	return c;
}

/* A call that is kept ends with its time; its answer is dropped. On a busy machine the time may be over before the
 * callee has the call: then again, with twice as much. */
static void kept_times_out(enum far_status (*call)(uint64_t timeout))
{
	uint64_t timeout = 5 * FAR_MS;
	enum far_executed executed;
	do {
		timeout *= 2;
		CHECK(timeout < 20 * FAR_SEC);
		CHECK_STATUS(call(timeout), FAR_TIMEOUT, &err);
		executed = err.executed;
	} while (query("t::release") != FAR_CANCELLED);
	CHECK(executed == FAR_EXECUTED_MAYBE);
}

static enum far_status keep_for(uint64_t timeout)
{
	return call_for(timeout, "t::keep", FAR_NOARGS);
}

static void per_call(void)
{
	kept_times_out(keep_for);
	CHECK(counters().calls_timed_out + counters().calls_failed > 0);
}

/* The answer is on its way when the caller gives up: it is dropped and counted. */
static void late_reply(void)
{
	uint64_t late = counters().replies_late, timeout = FAR_MS;
	enum far_status status;
	int64_t before;
	/* On a busy machine the time may be over before the callee has the call: then it is not run. Or the answer is
	 * there before the caller looks at the clock. Then again. */
	do {
		timeout *= 2;
		CHECK(timeout < FAR_SEC);
		before = query("t::count");
		status = call_for(timeout, "t::slow", FAR_ARGS((int64_t)(timeout * 15 / 1000)));
		CHECK(status == FAR_OK || status == FAR_TIMEOUT);
	} while (status == FAR_OK || query("t::count") == before);
	CHECK(counters().replies_late == late + 1);
	CHECK(counters().calls_active == 0);
}

static void one_nanosecond(void)
{
	/* An answer that is there when the clock is next looked at counts. */
	for (int i = 0; i < 100; i++) {
		enum far_status status = call_for(1, "t::slow", FAR_ARGS(0));
		CHECK(status == FAR_TIMEOUT || status == FAR_OK);
	}
	struct far_future *f;
	struct far_call_opts opts = {.timeout_ns = 1};
	for (int i = 0; i < 100; i++) {
		CHECK_STATUS(far_rpc_async(agent, "worker1", "t::keep", FAR_NOARGS, &opts, &f, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_TIMEOUT, &err);
		far_future_free(f);
	}
}

static void for_ever(void)
{
	struct far_future *f;
	struct far_val out;
	struct far_call_opts opts = {.timeout_ns = FAR_FOREVER};
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::keep", FAR_NOARGS, &opts, &f, &err), FAR_OK, &err);
	/* The wait's own limit ends the wait, not the call. */
	CHECK_STATUS(far_future_wait(f, FAR_MS, &out, &err), FAR_PENDING, &err);
	CHECK_STATUS(far_future_value(f, &out, &err), FAR_PENDING, &err);
	CHECK_STATUS(far_future_wait_all(&f, 1, 1, &err), FAR_PENDING, &err);
	CHECK(!far_future_done(f));
	CHECK(query("t::release") == FAR_OK);
	CHECK_STATUS(far_future_wait(f, FAR_FOREVER, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == 5);
	far_future_free(f);
}

/* ---- one nanosecond and no limit, on every kind of call and every kind of handler ---- */

enum { KEEP = 1, ECHO, FIBER, BLOCKING, NOTE, TIMES = 20, LONG = 20 << 20 };

static const struct far_to peer = {1, 0};
static const char *const functions[] = {"t::slow", "t::fiber", "t::blocking"};
static char long_one[LONG];

static void on_end(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	*(int *)user = (int)status;
}

/* Calls whose time is up hold their places until the callee's last word, so there may be no room for a moment. */
static enum far_status when_there_is_room(enum far_status status)
{
	if (status == FAR_BUSY)
		far_shard_poll(agent);
	else
		CHECK_STATUS(status, FAR_OK, &err);
	return status;
}

static enum far_status end_of(uint16_t id, size_t len, const struct far_call_opts *opts)
{
	int status = -1;
	while (when_there_is_room(far_msg_send(agent, peer, id, long_one, len, opts, on_end, &status, &err)))
		;
	while (status < 0)
		far_shard_poll(agent);
	return (enum far_status)status;
}

static enum far_status async_end(const char *fn, const struct far_call_opts *opts)
{
	struct far_future *f;
	while (when_there_is_room(far_rpc_async(agent, "worker1", fn, FAR_ARGS(0), opts, &f, &err)))
		;
	enum far_status status = far_future_wait(f, 0, NULL, &err);
	far_future_free(f);
	return status;
}

static enum far_status fanout_end(const char *fn, uint64_t timeout)
{
	const struct far_target targets[4] = {{.to = {1, 0}}, {.to = {0, 0}}, {.to = {1, 0}}, {.to = {1, 0}}};
	struct far_fanout_opts opts = {.timeout_ns = timeout};
	struct far_future *f;
	CHECK_STATUS(far_rpc_fanout(agent, fn, FAR_ARGS(0), targets, 4, &opts, NULL, &f, &err), FAR_OK, &err);
	enum far_status status = far_future_wait(f, 0, NULL, &err);
	far_future_free(f);
	return status;
}

static unsigned ended_in_time, ended_by_time;

/* An answer that is there when the clock is next looked at counts, over every network: but not every time. */
static enum far_status fit(enum far_status status, enum far_status expected)
{
	ended_in_time += status == FAR_OK && expected == FAR_TIMEOUT;
	ended_by_time += status == FAR_TIMEOUT;
	return status == FAR_OK ? expected : status;
}

/* Handlers that answer only when they are let: whenever the clock is looked at, it is the time that ends the call. */
static void unanswered(bool held)
{
	struct far_call_opts opts = {.timeout_ns = 1};
	struct far_fanout_opts all = {.timeout_ns = 1};
	const struct far_target target = {.to = {1, 0}};
	struct far_future *f;
	char reply[8];
	CHECK_STATUS(call_for(1, "t::keep", FAR_NOARGS), FAR_TIMEOUT, &err);
	CHECK(err.executed != FAR_EXECUTED_YES);
	CHECK_STATUS(far_msg_call(agent, peer, KEEP, "x", 1, &opts, reply, sizeof reply, NULL, &err), FAR_TIMEOUT,
		     &err);
	CHECK_STATUS(far_rpc_fanout(agent, "t::keep", FAR_NOARGS, &target, 1, &all, NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_TIMEOUT, &err);
	far_future_free(f);
	if (!held)
		return;
	CHECK(end_of(KEEP, 1, &opts) == FAR_TIMEOUT);
	while (when_there_is_room(far_rpc_async(agent, "worker1", "t::keep", FAR_NOARGS, &opts, &f, &err)))
		;
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_TIMEOUT, &err);
	far_future_free(f);
}

/* `held`: by the thread that drives the shard itself; else by one that may hand its calls over, and waits for room. */
static void every_kind(uint64_t timeout, enum far_status expected, bool held)
{
	struct far_call_opts opts = {.timeout_ns = timeout};
	const struct far_part part = {long_one, LONG};
	char reply[8];
	if (held)
		CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	for (unsigned i = 0; i < TIMES; i++) {
		for (unsigned k = 0; k < 3; k++) {
			CHECK_STATUS(fit(call_for(timeout, functions[k], FAR_ARGS(0)), expected), expected, &err);
			CHECK(expected == FAR_OK || err.executed != FAR_EXECUTED_YES);
			CHECK(!held || fit(async_end(functions[k], &opts), expected) == expected);
			enum far_status ended = fanout_end(functions[k], timeout);
			/* Its answers may all come before its timer is looked at. */
			CHECK(ended == expected || ended == FAR_OK);
		}
		for (uint16_t id = ECHO; id <= BLOCKING; id++) {
			enum far_status called =
				far_msg_call(agent, peer, id, "x", 1, &opts, reply, sizeof reply, NULL, &err);
			CHECK_STATUS(fit(called, expected), expected, &err);
			CHECK(!held || fit(end_of(id, 1, &opts), expected) == expected);
		}
	}
	enum far_status called =
		far_msg_call_parts(agent, peer, NOTE, &part, 1, &opts, reply, sizeof reply, NULL, &err);
	CHECK_STATUS(fit(called, expected), expected, &err);
	CHECK(!held || fit(end_of(NOTE, LONG, &opts), expected) == expected);
	if (timeout == 1)
		unanswered(held);
	if (held)
		far_shard_release(agent);
}

/* One-way messages report nothing: each is run, or dropped and counted, here or there. */
static void one_ways(uint64_t timeout)
{
	struct far_call_opts opts = {.timeout_ns = timeout};
	int64_t noted = query("t::noted"), dropped = query("t::dropped") + (int64_t)counters().oneways_dropped, sum;
	for (unsigned i = 0; i < TIMES; i++)
		CHECK_STATUS(far_msg_oneway(agent, peer, NOTE, long_one, i ? 8 : LONG, &opts, &err), FAR_OK, &err);
	do
		sum = query("t::noted") + query("t::dropped") + (int64_t)counters().oneways_dropped - noted - dropped;
	while (sum < TIMES);
	CHECK(sum == TIMES);
	noted = query("t::noted") - noted;
	/* One may be run before the clock is looked at. */
	CHECK(timeout == FAR_FOREVER ? noted == TIMES : noted < TIMES);
}

static void at_both_ends(void)
{
	for (int held = 0; held < 2; held++) {
		every_kind(1, FAR_TIMEOUT, held);
		every_kind(FAR_FOREVER, FAR_OK, held);
	}
	fprintf(stderr, "of 1 ns: %u calls ended by it, %u were answered before the clock was looked at\n",
		ended_by_time, ended_in_time);
	one_ways(1);
	one_ways(FAR_FOREVER);
	query("t::release");
	while (query("t::open") || counters().calls_active || counters().rendezvous_active)
		;
}

/* The longest times that are none for ever. */
static void nearly_for_ever(void)
{
	CHECK_STATUS(call_for(FAR_FOREVER - 1, "t::slow", FAR_ARGS(0)), FAR_OK, &err);
	CHECK_STATUS(call_for(FAR_FOREVER / 2, "t::slow", FAR_ARGS(0)), FAR_OK, &err);
	CHECK_STATUS(call_for(FAR_FOREVER - 1, "t::fiber", FAR_ARGS(0)), FAR_OK, &err);
	CHECK_STATUS(call_for(FAR_FOREVER - 1, "t::blocking", FAR_ARGS(0)), FAR_OK, &err);
}

static enum far_status keep_by_default(uint64_t timeout)
{
	uint64_t before = far_rpc_timeout_ns(agent);
	CHECK(far_set_rpc_timeout_ns(agent, timeout) == FAR_OK);
	enum far_status status = far_rpc_sync(agent, "worker1", "t::keep", FAR_NOARGS, NULL, NULL, &err);
	struct far_err why = err;
	CHECK_STATUS(call_for(20 * FAR_SEC, "t::slow", FAR_ARGS((int64_t)(timeout * 4 / 1000))), FAR_OK, &err);
	CHECK(far_set_rpc_timeout_ns(agent, before) == FAR_OK);
	err = why;
	return status;
}

static void default_deadline(void)
{
	kept_times_out(keep_by_default);
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	CHECK(status == FAR_TIMEOUT && e && e->status == FAR_TIMEOUT);
	*(bool *)user = true;
}

static void message_deadline(void)
{
	bool done = false;
	struct far_call_opts opts = {.timeout_ns = FAR_MS};
	CHECK_STATUS(far_msg_call(agent, (struct far_to){1, 0}, 1, NULL, 0, &opts, NULL, 0, NULL, &err), FAR_TIMEOUT,
		     &err);
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_msg_send(agent, (struct far_to){1, 0}, 1, NULL, 0, &opts, on_done, &done, &err), FAR_OK, &err);
	while (!done)
		far_shard_poll(agent);
	far_shard_release(agent);
}

static void msg_keep(struct far_req *req, const void *data, size_t len, void *user)
{
	keep_one(req);
}

static enum far_status quick(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return(req, NULL);
}

static void msg_echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static _Atomic int64_t noted;

static void msg_note(struct far_req *req, const void *data, size_t len, void *user)
{
	noted++;
	far_reply(req, NULL, 0);
}

/* What of this worker's counters the user pointer names. */
static enum far_status counted(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_counters c;
	far_counters_read(far_req_agent(req), &c);
	struct far_val v = far_int(!user                  ? noted
				   : *(char *)user == 'd' ? (int64_t)c.oneways_dropped
							  : (int64_t)(c.requests_active + c.rendezvous_active));
	return far_return(req, &v);
}

/* ---- errors name the function and the time ---- */

static void names_both(struct far_future *f, const char *function)
{
	CHECK_STATUS(far_future_wait(f, FAR_FOREVER, NULL, &err), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, function);
	CHECK_TEXT(&err, "the call's time-out of 20 ms");
	far_future_free(f);
}

static void call_names_both(enum far_status status, const char *function, const char *time)
{
	CHECK_STATUS(status, FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, function);
	CHECK_TEXT(&err, time);
}

/* Calls that wait: of a message, of a method, with a reference, for a value. */
static void texts_of_waits(struct far_rref *r)
{
	const struct far_call_opts opts = {.timeout_ns = 20 * FAR_MS};
	uint64_t usual = far_rpc_timeout_ns(agent);
	struct far_rref *object, *own;
	struct far_val one = far_int(1);
	struct far_future *f;
	char reply[8];
	call_names_both(far_rref_to_here(r, 20 * FAR_MS, NULL, &err), "the fetch of a reference", "time-out of 20 ms");
	CHECK_STATUS(far_rref_of(agent, &one, &own, &err), FAR_OK, &err);
	call_names_both(far_rpc_sync(agent, "worker1", "t::keep_of", FAR_ARGS(own), &opts, NULL, &err), "t::keep_of",
			"time-out of 20 ms");
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::keep_of", FAR_ARGS(own), &opts, &f, &err), FAR_OK, &err);
	names_both(f, "t::keep_of");
	far_rref_free(own);
	CHECK_STATUS(far_remote(agent, "worker1", "t::Box", FAR_NOARGS, NULL, &object, &err), FAR_OK, &err);
	call_names_both(far_rref_rpc_sync(object, "keep", FAR_NOARGS, &opts, NULL, &err), "t::Box.keep",
			"time-out of 20 ms");
	CHECK_STATUS(far_rref_wait(object, FAR_FOREVER, &err), FAR_OK, &err);
	call_names_both(far_rref_rpc_sync(object, "keep", FAR_NOARGS, &opts, NULL, &err), "t::Box.keep",
			"time-out of 20 ms");
	call_names_both(far_msg_call(agent, peer, KEEP, "x", 1, &opts, reply, sizeof reply, NULL, &err), "message 1",
			"time-out of 20 ms");
	CHECK_STATUS(far_set_rpc_timeout_ns(agent, 50 * FAR_MS), FAR_OK, &err);
	for (int i = 0; i < 3; i++) { /* also by the fast path */
		call_names_both(far_rref_rpc_sync(object, "keep", FAR_NOARGS, NULL, NULL, &err), "t::Box.keep",
				"time-out of 50 ms");
		call_names_both(far_msg_call(agent, peer, KEEP, "x", 1, NULL, reply, sizeof reply, NULL, &err),
				"message 1", "time-out of 50 ms");
	}
	CHECK_STATUS(far_set_rpc_timeout_ns(agent, usual), FAR_OK, &err);
	far_rref_free(object);
}

static void texts(void)
{
	const struct far_call_opts opts = {.timeout_ns = 20 * FAR_MS};
	uint64_t usual = far_rpc_timeout_ns(agent);
	struct far_rref *r;
	struct far_future *f;
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::keep", FAR_NOARGS, &opts, &f, &err), FAR_OK, &err);
	names_both(f, "t::keep");
	CHECK_STATUS(call_for(20 * FAR_MS, "t::keep", FAR_NOARGS), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "t::keep");
	CHECK_TEXT(&err, "the call's time-out of 20 ms");
	CHECK_STATUS(far_remote(agent, "worker1", "t::keep", FAR_NOARGS, NULL, &r, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_to_here_async(r, 20 * FAR_MS, &f, &err), FAR_OK, &err);
	names_both(f, "the fetch of a reference");
	texts_of_waits(r);
	query("t::release");
	far_rref_free(r);
	CHECK_STATUS(far_set_rpc_timeout_ns(agent, 20 * FAR_MS), FAR_OK, &err);
	for (int i = 0; i < 3; i++) {
		CHECK_STATUS(far_rpc_async(agent, "worker1", "t::keep", FAR_NOARGS, NULL, &f, &err), FAR_OK, &err);
		names_both(f, "t::keep");
	}
	CHECK_STATUS(far_set_rpc_timeout_ns(agent, usual), FAR_OK, &err);
}

int main(void)
{
	static char dropped[] = "d", open[] = "o";
	static const struct far_function table[] = {
		{"t::keep() -> int", FAR_KIND_INLINE, keep, NULL},
		{"t::keep_of(rref r) -> int", FAR_KIND_INLINE, keep, NULL},
		{"t::release() -> int", FAR_KIND_INLINE, release_kept, NULL},
		{"t::count() -> int", FAR_KIND_INLINE, count, NULL},
		{"t::slow(int us) -> none", FAR_KIND_INLINE, slow, NULL},
		{"t::fiber(int i) -> none", FAR_KIND_FIBER, quick, NULL},
		{"t::blocking(int i) -> none", FAR_KIND_BLOCKING, quick, NULL},
		{"t::noted() -> int", FAR_KIND_INLINE, counted, NULL},
		{"t::dropped() -> int", FAR_KIND_INLINE, counted, dropped},
		{"t::open() -> int", FAR_KIND_INLINE, counted, open},
	};
	static const struct far_function make = {"t::Box() -> t::Box", FAR_KIND_INLINE, box_new, NULL};
	static const struct far_method method = {"keep() -> int", FAR_KIND_INLINE, box_keep, NULL};
	static const struct far_class cls = {"t::Box", &make, 1, &method, 1, NULL, NULL, NULL};
	static const struct far_msg_handler messages[] = {{KEEP, FAR_KIND_INLINE, msg_keep, NULL},
							  {ECHO, FAR_KIND_INLINE, msg_echo, NULL},
							  {FIBER, FAR_KIND_FIBER, msg_echo, NULL},
							  {BLOCKING, FAR_KIND_BLOCKING, msg_echo, NULL},
							  {NOTE, FAR_KIND_INLINE, msg_note, NULL}};
	struct far_opts opts = {.functions = table,
				.functions_n = sizeof table / sizeof *table,
				.classes = &cls,
				.classes_n = 1,
				.messages = messages,
				.messages_n = sizeof messages / sizeof *messages};
	agent = check_join(&opts);
	if (check_rank() == 0) {
		/* Held where it matters that calls are sent before their time is up. */
		CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
		per_call();
		late_reply();
		far_shard_release(agent);
		for_ever();
		one_nanosecond();
		query("t::release");
		at_both_ends();
		nearly_for_ever();
		CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
		default_deadline();
		texts();
		far_shard_release(agent);
		texts();
		query("t::release");
		message_deadline();
		query("t::release");
		CHECK(counters().calls_sent == counters().calls_completed + counters().calls_failed);
	}
	check_leave(agent);
	return 0;
}
