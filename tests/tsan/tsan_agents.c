/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Two agents in one process, of one shard and of several, called by several threads, with every way of driving a shard;
 * deferred answers come from other threads; then both leave. For a build with ThreadSanitizer: both ends share one
 * mapping of their rings, so it sees them.
 */
#include "../e2e/check.h"

#include <farcall/farcall.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CALLERS = 3, CALLS = 150, LATER_MAX = 64 };

static const char *const names[] = {"left", "right"};
static struct far_agent *agents[2];
static char url[64];
static struct far_opts opts;
static unsigned shards[2];

/* ---- answers from another thread ---- */

static pthread_mutex_t later_lock = PTHREAD_MUTEX_INITIALIZER;
static struct far_deferred *later[LATER_MAX];
static unsigned later_n;
static _Atomic bool stop;

static enum far_status answer_later(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	pthread_mutex_lock(&later_lock);
	bool room = later_n < LATER_MAX;
	if (room && far_defer(req, &d) == FAR_OK)
		later[later_n++] = d;
	pthread_mutex_unlock(&later_lock);
	struct far_val v = far_str("at once");
	return room ? FAR_OK : far_return(req, &v);
}

static void *answerer_main(void *arg)
{
	struct far_val v = far_str("later, in more bytes than the line of a small message has room for");
	while (!atomic_load(&stop)) {
		pthread_mutex_lock(&later_lock);
		struct far_deferred *d = later_n ? later[--later_n] : NULL;
		pthread_mutex_unlock(&later_lock);
		if (d)
			far_deferred_return(d, &v);
		else
			usleep(200);
	}
	return NULL;
}

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

/* ---- one-way messages, short and in fragments ---- */

enum { LONG = (17 << 20) + 3 };

static uint8_t long_bytes[LONG];
static _Atomic unsigned posted, noted, borrowed;

static void record(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(len == 1 || (len == LONG && memcmp(data, long_bytes, len) == 0));
	atomic_fetch_add(&noted, 1);
}

static void on_release(void *user)
{
	atomic_fetch_sub(&borrowed, 1);
}

static void post(struct far_agent *a, int to, bool in_fragments)
{
	struct far_part part = {in_fragments ? (const void *)long_bytes : "n", in_fragments ? LONG : 1};
	struct far_err err;
	atomic_fetch_add(&borrowed, 1);
	enum far_status status =
		far_msg_oneway_parts(a, (struct far_to){to, -1}, 2, &part, 1, on_release, NULL, NULL, &err);
	CHECK(status == FAR_OK || status == FAR_BUSY);
	atomic_fetch_add(&posted, status == FAR_OK);
}

/* ---- callers ---- */

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	CHECK(status == FAR_OK || status == FAR_BUSY);
	atomic_fetch_add((_Atomic unsigned *)user, 1);
}

/* Futures of both agents, and of none. */
static void of_both(int i)
{
	struct far_err err;
	struct far_future *f[3], *all;
	size_t index;
	for (int k = 0; k < 2; k++) {
		enum far_status status;
		while ((status = far_rpc_async(agents[k], names[(i + k) % 2], "far::add", FAR_ARGS(i, k), NULL, &f[k],
					       &err)) == FAR_BUSY)
			usleep(100);
		CHECK(status == FAR_OK);
	}
	CHECK(far_future_create(&f[2], &err) == FAR_OK);
	CHECK(far_future_collect(f, 3, &all, &err) == FAR_OK);
	CHECK(far_future_wait_any(f, 3, 0, &index, &err) == FAR_OK && index < 2);
	CHECK(far_future_wait_all(f, 2, 0, &err) == FAR_OK);
	CHECK(!far_future_done(all));
	CHECK(far_future_set_value(f[2], NULL, &err) == FAR_OK);
	CHECK(far_future_wait(all, 0, NULL, &err) == FAR_OK);
	for (int k = 0; k < 3; k++)
		far_future_free(f[k]);
	far_future_free(all);
}

static void mixed(struct far_agent *a, int to, int i)
{
	struct far_err err;
	struct far_val out;
	struct far_future *f;
	char small[8] = "abcdefg", large[3000], reply[3000];
	size_t len;
	memset(large, 'l', sizeof large);
	switch (i % 6) {
	case 0:
		CHECK(far_rpc_sync(a, names[to], "far::add", FAR_ARGS(i, 1), NULL, &out, &err) == FAR_OK);
		CHECK(out.u.i == i + 1);
		break;
	case 1:
		CHECK(far_rpc_sync(a, names[to], "t::later", FAR_NOARGS, NULL, &out, &err) == FAR_OK);
		CHECK(out.type == FAR_TYPE_STRING);
		far_val_fini(&out);
		break;
	case 2:
		CHECK(far_msg_call(a, (struct far_to){to, i % (int)shards[to]}, 1, small, sizeof small, NULL, reply,
				   sizeof reply, &len, &err) == FAR_OK);
		CHECK(len == sizeof small && memcmp(small, reply, len) == 0);
		break;
	case 3:
		CHECK(far_msg_call(a, (struct far_to){to, -1}, 1, large, sizeof large, NULL, reply, sizeof reply, &len,
				   &err) == FAR_OK);
		CHECK(len == sizeof large && memcmp(large, reply, len) == 0);
		break;
	case 4:
		of_both(i);
		break;
	default:
		CHECK(far_rpc_async(a, names[to], "t::later", FAR_NOARGS, NULL, &f, &err) == FAR_OK);
		if (i % 4 == 1)
			CHECK(far_future_wait(f, 0, NULL, &err) == FAR_OK);
		far_future_free(f);
	}
}

struct caller {
	pthread_t thread;
	int from, to, seed;
};

static void *caller_main(void *arg)
{
	const struct caller *c = arg;
	struct far_agent *a = agents[c->from];
	struct far_err err;
	_Atomic unsigned done = 0;
	unsigned sent = 0;
	for (int i = 0; i < CALLS; i++) {
		mixed(a, c->to, i + c->seed);
		post(a, c->to, i == 20 && c->seed % 2 == 1);
		if (i == 30 && c->seed % 2 == 0) {
			struct far_part part = {long_bytes, LONG};
			uint8_t *reply = malloc(LONG);
			size_t len;
			atomic_fetch_add(&borrowed, 1);
			sent += far_msg_send_parts(a, (struct far_to){c->to, -1}, 1, &part, 1, on_release, NULL, NULL,
						   on_done, &done, &err) == FAR_OK;
			CHECK(far_msg_call(a, (struct far_to){c->to, -1}, 1, long_bytes, LONG, NULL, reply, LONG, &len,
					   &err) == FAR_OK);
			CHECK(len == LONG && memcmp(reply, long_bytes, LONG) == 0);
			free(reply);
		}
		if (i % 10 == 0)
			sent += far_msg_send(a, (struct far_to){c->to, i / 10 % (int)shards[c->to]}, 1, "x", 1,
					     &(struct far_call_opts){.via = FAR_VIA((unsigned)i % shards[c->from])},
					     on_done, &done, &err) == FAR_OK;
		unsigned held = (unsigned)i % shards[c->from];
		if (i % 20 == 7 && far_shard_acquire_at(a, held, 0, &err) == FAR_OK) {
			mixed(a, c->to, i);
			far_shard_poll_at(a, held);
			far_shard_release_at(a, held);
		}
		struct far_counters counters;
		far_counters_read(a, &counters);
	}
	/* The callbacks write to this stack. */
	while (atomic_load(&done) < sent)
		mixed(a, c->to, 0);
	return NULL;
}

static void *join_main(void *arg)
{
	int rank = (int)(intptr_t)arg;
	struct far_err err;
	struct far_opts own = opts;
	own.shards = shards[rank];
	if (far_init_rpc(names[rank], rank, 2, &own, &agents[rank], &err))
		_exit(1 + (int)far_err_print(stderr, &err));
	return NULL;
}

static void *leave_main(void *arg)
{
	struct far_err err;
	if (far_shutdown(arg, FAR_FOREVER, &err))
		_exit(1 + (int)far_err_print(stderr, &err));
	return NULL;
}

static void in_both(void *(*body)(void *), void *left, void *right)
{
	pthread_t t[2];
	CHECK(pthread_create(&t[0], NULL, body, left) == 0);
	CHECK(pthread_create(&t[1], NULL, body, right) == 0);
	CHECK(pthread_join(t[0], NULL) == 0 && pthread_join(t[1], NULL) == 0);
}

static void run(enum far_progress progress, enum far_idle idle, unsigned left, unsigned right, enum far_connect connect)
{
	struct caller callers[2 * CALLERS];
	pthread_t answerer;
	opts.progress = progress;
	opts.idle = idle;
	opts.connect = connect;
	shards[0] = left;
	shards[1] = right;
	atomic_store(&stop, false);
	in_both(join_main, (void *)0, (void *)1);
	CHECK(pthread_create(&answerer, NULL, answerer_main, NULL) == 0);
	for (int i = 0; i < 2 * CALLERS; i++) {
		/* Towards the other one, and each to itself. */
		callers[i].from = i % 2;
		callers[i].to = i < 4 ? 1 - i % 2 : i % 2;
		callers[i].seed = i;
		CHECK(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]) == 0);
	}
	for (int i = 0; i < 2 * CALLERS; i++)
		CHECK(pthread_join(callers[i].thread, NULL) == 0);
	/* Leaving waits for the calls whose futures were dropped, so the answers go on. */
	in_both(leave_main, agents[0], agents[1]);
	atomic_store(&stop, true);
	CHECK(pthread_join(answerer, NULL) == 0);
	CHECK(later_n == 0);
	/* What was accepted was delivered before they left. */
	CHECK(atomic_load(&noted) == atomic_load(&posted) && atomic_load(&borrowed) == 0);
}

/* A free port. The first store inherits its listener, the later ones listen there again. */
static void listen_somewhere(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	char text[16];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 16) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	snprintf(url, sizeof url, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
	snprintf(text, sizeof text, "%d", fd);
	setenv("FAR_STORE_FD", text, 1);
}

int main(void)
{
	static const struct far_function functions[] = {{"t::later() -> str", FAR_KIND_INLINE, answer_later, NULL}};
	static const struct far_msg_handler messages[] = {{1, FAR_KIND_INLINE, echo, NULL},
							  {2, FAR_KIND_INLINE, record, NULL}};
	alarm(150);
	for (unsigned i = 0; i < LONG; i++)
		long_bytes[i] = (uint8_t)(i * 13 + i / 509);
	opts = (struct far_opts){
		.init_method = url, .functions = functions, .functions_n = 1, .messages = messages, .messages_n = 2};
	listen_somewhere();
	run(FAR_PROGRESS_SHARED, FAR_IDLE_ADAPTIVE, 1, 1, FAR_CONNECT_AUTO);
	run(FAR_PROGRESS_DEDICATED, FAR_IDLE_ADAPTIVE, 1, 1, FAR_CONNECT_AUTO);
	run(FAR_PROGRESS_DEDICATED, FAR_IDLE_BUSY, 1, 1, FAR_CONNECT_AUTO);
	run(FAR_PROGRESS_SHARED, FAR_IDLE_ADAPTIVE, 2, 3, FAR_CONNECT_AUTO);
	run(FAR_PROGRESS_SHARED, FAR_IDLE_ADAPTIVE, 3, 2, FAR_CONNECT_LAZY);
	run(FAR_PROGRESS_DEDICATED, FAR_IDLE_ADAPTIVE, 2, 2, FAR_CONNECT_LAZY);
	return 0;
}
