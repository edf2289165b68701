/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads; threads that it starts. */
/** Back-pressure is seen by the caller, costs nothing but that call, and ends. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { KEEP = 1, BIG, ECHO, PENDING_MAX = 4096, BIG_BYTES = 1 << 20, BIGS = 64 };

static struct far_agent *agent;
static struct far_err err;
static const struct far_to to = {1, -1};
static struct far_deferred *kept[PENDING_MAX];
static unsigned kept_n, done_n, done_ok;

static void keep(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(kept_n < PENDING_MAX);
	CHECK(far_defer(req, &kept[kept_n++]) == FAR_OK);
}

static _Atomic bool stop;

static enum far_status on_stop(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_store(&stop, true);
	return far_return(req, NULL);
}

/* Worker 1 answers what it kept now and then, by itself: the window towards it is full, so no request could make it do
 * so. */
static void release_until_stopped(void)
{
	while (!atomic_load(&stop)) {
		usleep(20000);
		CHECK_STATUS(far_shard_acquire(agent, 20 * FAR_SEC, &err), FAR_OK, &err);
		while (kept_n)
			CHECK(far_deferred_reply(kept[--kept_n], "r", 1) == FAR_OK);
		far_shard_release(agent);
	}
}

static void big(struct far_req *req, const void *data, size_t len, void *user)
{
	void *at;
	CHECK(len == 1);
	CHECK(far_reply_alloc(req, BIG_BYTES, &at) == FAR_OK);
	memset(at, *(const char *)data, BIG_BYTES);
}

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	done_n++;
	done_ok += status == FAR_OK && len == 1;
}

/* Calls that are not answered, until one is refused. Then answers come, and there is room again. */
static void window_full(void)
{
	struct far_counters c;
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	for (int round = 0; round < 3; round++) {
		unsigned sent = 0;
		enum far_status status;
		done_n = done_ok = 0;
		while ((status = far_msg_send(agent, to, KEEP, NULL, 0, NULL, on_done, NULL, &err)) == FAR_OK)
			CHECK(++sent < PENDING_MAX);
		CHECK_STATUS(status, FAR_BUSY, &err);
		CHECK_TEXT(&err, "worker1");
		CHECK(err.executed == FAR_EXECUTED_NO);
		CHECK(sent >= 100);
		far_counters_read(agent, &c);
		CHECK(c.calls_active == sent);
		CHECK(c.busy_refusals > 0);
		/* Another worker's window is its own. */
		CHECK_STATUS(far_msg_call(agent, (struct far_to){0, 0}, ECHO, "x", 1, NULL, &(char){0}, 1, NULL, &err),
			     FAR_OK, &err);
		/* Who waits for the answer waits the back-pressure out: worker 1 answers by its clock. */
		char reply;
		CHECK_STATUS(far_msg_call(agent, to, ECHO, "y", 1, NULL, &reply, 1, NULL, &err), FAR_OK, &err);
		while (done_n < sent)
			far_shard_poll(agent);
		CHECK(done_ok == sent);
	}
	far_shard_release(agent);
}

/* More bytes of answers than the peers' memory holds, requested and not read: they wait at the callee. */
static void answers_wait(void)
{
	char tags[BIGS];
	unsigned started = 0;
	bool ok = true;
	done_n = 0;
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	for (; started < BIGS && ok; started++) {
		tags[started] = (char)('a' + started % 26);
		ok = far_msg_send(agent, to, BIG, &tags[started], 1, NULL, on_done, NULL, &err) == FAR_OK;
	}
	CHECK(ok);
	usleep(100000); /* nobody reads here meanwhile: worker 1 runs out of memory towards us */
	while (done_n < BIGS)
		far_shard_poll(agent);
	far_shard_release(agent);
	char reply;
	CHECK_STATUS(far_msg_call(agent, to, ECHO, "z", 1, NULL, &reply, 1, NULL, &err), FAR_OK, &err);
	CHECK(reply == 'z');
}

static void requests_too_many_bytes(void)
{
	static char bytes[BIG_BYTES];
	unsigned sent = 0;
	enum far_status status = FAR_OK;
	done_n = 0;
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	while (sent < 2000 &&
	       (status = far_msg_send(agent, to, ECHO, bytes, sizeof bytes, NULL, on_done, NULL, &err)) == FAR_OK)
		sent++;
	CHECK_STATUS(status, FAR_BUSY, &err);
	while (done_n < sent)
		far_shard_poll(agent);
	far_shard_release(agent);
	CHECK_STATUS(far_msg_send(agent, (struct far_to){0, 0}, ECHO, bytes, 1, NULL, on_done, NULL, &err), FAR_OK,
		     &err);
	while (done_n < sent + 1) {
		CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
		far_shard_poll(agent);
		far_shard_release(agent);
	}
}

/* The ring of calls handed over fills up while its shard is kept from taking them. */

static unsigned ring_taken;

static void *hand_over(void *arg)
{
	struct far_err e;
	enum far_status status;
	while ((status = far_msg_send(agent, (struct far_to){0, 0}, ECHO, "r", 1, NULL, on_done, NULL, &e)) == FAR_OK)
		CHECK(++ring_taken < 100000);
	CHECK_STATUS(status, FAR_BUSY, &e);
	return NULL;
}

static void ring_full(void)
{
	pthread_t t;
	done_n = done_ok = 0;
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	CHECK(pthread_create(&t, NULL, hand_over, NULL) == 0);
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(ring_taken >= 512);
	CHECK(done_n == 0);
	/* Each that was taken is done, well: BUSY is said at the call and never later. */
	while (done_n < ring_taken)
		far_shard_poll(agent);
	CHECK(done_ok == ring_taken);
	far_shard_release(agent);
}

/* A thousand calls at once work with default options, if this thread runs the shard and if the poller does. */
static void thousand(bool held)
{
	enum { N = 1000 };
	static struct far_future *f[N];
	struct far_val v;
	if (held)
		CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	for (int i = 0; i < N; i++)
		CHECK_STATUS(far_rpc_async(agent, "worker1", "far::add", FAR_ARGS(i, 1), NULL, &f[i], &err), FAR_OK,
			     &err);
	for (int i = 0; i < N; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == i + 1);
		far_future_free(f[i]);
	}
	if (held)
		far_shard_release(agent);
}

static void *thousand_more(void *arg)
{
	thousand(false);
	return NULL;
}

/* The same by a thread that hands them over. */
static void thousand_handed_over(void)
{
	pthread_t t;
	struct far_counters c;
	far_counters_read(agent, &c);
	uint64_t ended = c.calls_completed;
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	CHECK(pthread_create(&t, NULL, thousand_more, NULL) == 0);
	do {
		far_shard_poll(agent);
		far_counters_read(agent, &c);
	} while (c.calls_completed < ended + 1000);
	far_shard_release(agent);
	CHECK(pthread_join(t, NULL) == 0);
}

static _Atomic unsigned looped_ok;

static void on_looped(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	CHECK_STATUS(status, FAR_OK, e);
	atomic_fetch_add(&looped_ok, 1);
}

/* A thread that only sends, and retries at FAR_BUSY, makes progress: a retry makes room. */
static void retries_make_room(void)
{
	enum { SENDS = 5000 };
	unsigned sent = 0;
	while (atomic_load(&looped_ok) < SENDS) {
		if (sent == SENDS) {
			usleep(100);
			continue;
		}
		enum far_status status = far_msg_send(agent, to, ECHO, "x", 1, NULL, on_looped, NULL, &err);
		if (status == FAR_OK)
			sent++;
		else
			CHECK_STATUS(status, FAR_BUSY, &err);
	}
}

int main(void)
{
	static const struct far_msg_handler messages[] = {{KEEP, FAR_KIND_INLINE, keep, NULL},
							  {BIG, FAR_KIND_INLINE, big, NULL},
							  {ECHO, FAR_KIND_INLINE, echo, NULL}};
	static const struct far_function f = {"t::stop() -> none", FAR_KIND_INLINE, on_stop, NULL};
	struct far_opts opts = {.messages = messages, .messages_n = 3, .functions = &f, .functions_n = 1};
	struct far_counters c;
	agent = check_join(&opts);
	if (check_rank() == 0) {
		window_full();
		answers_wait();
		requests_too_many_bytes();
		ring_full();
		retries_make_room();
		thousand(true);
		thousand(false);
		thousand_handed_over();
		far_counters_read(agent, &c);
		CHECK(c.calls_active == 0 && c.packets_dropped == 0);
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::stop", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	} else {
		release_until_stopped();
	}
	check_leave(agent);
	return 0;
}
