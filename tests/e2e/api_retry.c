/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Calls with opts.retry over a link that drops requests and answers: every call ends well, and no function runs twice.
 * Two agents in one process; the first one's queue, and the second one's, are wrapped by one that drops.
 * Main thread of each process; handlers on shard threads; threads that it starts.
 */
#include "agent/agent.h"
#include "check.h"
#include "core/deferred.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/shard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

enum { IDS = 4096, STUCK = IDS - 1 };

static struct far_agent *agents[2];
static struct far_err err;
static char url[64];
static _Atomic int runs[IDS]; /* by the number that the call carries */
static int next_id;
static struct far_deferred *_Atomic stuck;

/* ---- the wrapped queue ---- */

struct dropper {
	struct nic_queue base;
	struct nic_queue *inner;
	enum packet_type type;  /* that is dropped */
	unsigned seen, from, n; /* packets [from, from + n) of that type, from 1 */
	unsigned percent;       /* or at random */
	uint32_t random;
	unsigned dropped;
};

static struct dropper droppers[2];

static struct nic_queue *inner_of(struct nic_queue *q)
{
	return ((struct dropper *)q)->inner;
}

static bool drops(struct dropper *d, const struct nic_tx *tx)
{
	if (tx->head[0] != d->type)
		return false;
	d->seen++;
	if (d->percent) {
		d->random = d->random * 1664525u + 1013904223u;
		return (d->random >> 8) % 100 < d->percent;
	}
	return d->seen >= d->from && d->seen < d->from + d->n;
}

static int drop_commit(struct nic_queue *q, struct nic_tx *tx)
{
	struct dropper *d = (struct dropper *)q;
	if (!drops(d, tx))
		return d->inner->ops->tx_commit(d->inner, tx);
	d->dropped++;
	d->inner->ops->tx_cancel(d->inner, tx);
	return 0;
}

#define FORWARD(type, name, params, ...)                                                                               \
	static type drop_##name params                                                                                 \
	{                                                                                                              \
		return inner_of(q)->ops->name(__VA_ARGS__);                                                            \
	}
#define FORWARD_VOID(name, params, ...)                                                                                \
	static void drop_##name params                                                                                 \
	{                                                                                                              \
		inner_of(q)->ops->name(__VA_ARGS__);                                                                   \
	}
FORWARD(int, attach, (struct nic_queue * q, uint32_t peer), inner_of(q), peer)
FORWARD_VOID(detach, (struct nic_queue * q, uint32_t peer), inner_of(q), peer)
FORWARD(unsigned, recv, (struct nic_queue * q, struct nic_pkt *pkts, unsigned max), inner_of(q), pkts, max)
FORWARD_VOID(release, (struct nic_queue * q, uint32_t peer, uint64_t cookie), inner_of(q), peer, cookie)
FORWARD(int, tx_reserve, (struct nic_queue * q, uint32_t peer, uint64_t len, struct nic_tx *tx), inner_of(q), peer, len,
	tx)
FORWARD(uint32_t, tx_room, (struct nic_queue * q, uint32_t peer), inner_of(q), peer)
FORWARD(uint64_t, tx_bytes_max, (struct nic_queue * q, uint32_t peer), inner_of(q), peer)
FORWARD_VOID(tx_cancel, (struct nic_queue * q, struct nic_tx *tx), inner_of(q), tx)
FORWARD_VOID(flush, (struct nic_queue * q), inner_of(q))
FORWARD_VOID(arm, (struct nic_queue * q), inner_of(q))
FORWARD_VOID(disarm, (struct nic_queue * q), inner_of(q))
FORWARD_VOID(wake_clear, (struct nic_queue * q), inner_of(q))
FORWARD_VOID(wake, (struct nic_queue * q), inner_of(q))

static int drop_wake_fd(const struct nic_queue *q)
{
	const struct nic_queue *inner = ((const struct dropper *)q)->inner;
	return inner->ops->wake_fd(inner);
}

static uint64_t drop_deadline(const struct nic_queue *q)
{
	const struct nic_queue *inner = ((const struct dropper *)q)->inner;
	return inner->ops->deadline(inner);
}

static const struct nic_queue_ops drop_ops = {
	.attach = drop_attach,
	.detach = drop_detach,
	.recv = drop_recv,
	.release = drop_release,
	.tx_reserve = drop_tx_reserve,
	.tx_room = drop_tx_room,
	.tx_bytes_max = drop_tx_bytes_max,
	.tx_commit = drop_commit,
	.tx_cancel = drop_tx_cancel,
	.flush = drop_flush,
	.arm = drop_arm,
	.disarm = drop_disarm,
	.wake_fd = drop_wake_fd,
	.wake_clear = drop_wake_clear,
	.wake = drop_wake,
	.deadline = drop_deadline,
};

/* Side 0 drops requests, side 1 answers. */
static void drop(int side, enum packet_type type, unsigned from, unsigned n, unsigned percent)
{
	struct shard *s = agents[side]->shards[0];
	struct dropper *d = &droppers[side];
	CHECK_STATUS(far_shard_acquire(agents[side], 10 * FAR_SEC, &err), FAR_OK, &err);
	if (!d->inner) {
		d->base.ops = &drop_ops;
		d->inner = s->queues[0].q;
		s->queues[0].q = &d->base;
		s->queues[0].ops = &drop_ops;
		for (struct session *se = s->known; se; se = se->next_known)
			if (se->q == d->inner)
				se->q = &d->base;
	}
	d->type = type;
	d->seen = d->dropped = 0;
	d->from = from;
	d->n = n;
	d->percent = percent;
	d->random = from + 1;
	far_shard_release(agents[side]);
}

static unsigned dropped(int side)
{
	CHECK_STATUS(far_shard_acquire(agents[side], 10 * FAR_SEC, &err), FAR_OK, &err);
	unsigned n = droppers[side].dropped;
	far_shard_release(agents[side]);
	return n;
}

static void drop_nothing(void)
{
	drop(0, PACKET_REQUEST, 0, 0, 0);
	drop(1, PACKET_REPLY, 0, 0, 0);
}

/* ---- handlers ---- */

static void ran(int64_t id)
{
	CHECK(id >= 0 && id < IDS);
	CHECK(atomic_fetch_add(&runs[id], 1) == 0);
}

static enum far_status run(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(args[0].u.i * 2);
	ran(args[0].u.i);
	return far_return(req, &v);
}

/* On a fiber: calls back first. */
static enum far_status wait(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err why;
	struct far_val v = far_int(args[0].u.i * 2), w = {0};
	ran(args[0].u.i);
	struct far_call_opts opts = {.retry = true, .retry_after_ns = FAR_MS};
	CHECK_STATUS(far_rpc_sync(far_req_agent(req), "worker0", "far::identity", FAR_ARGS(7), &opts, &w, &why), FAR_OK,
		     &why);
	CHECK(w.u.i == 7);
	return far_return(req, &v);
}

static enum far_status fail(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	ran(args[0].u.i);
	return far_fail(req, FAR_DENIED, 5, "no");
}

static enum far_status stick(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	ran(args[0].u.i);
	CHECK(far_defer(req, &d) == FAR_OK);
	atomic_store(&stuck, d);
	return FAR_OK;
}

static enum far_status large(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	uint64_t shape = 1 << 20;
	void *data;
	ran(args[0].u.i);
	enum far_status status = far_return_tensor(req, FAR_U8, 1, &shape, &data);
	if (!status)
		memset(data, (int)(args[0].u.i & 0xff), shape);
	return status;
}

/* ---- the cases ---- */

static struct far_call_opts often = {.timeout_ns = 50 * FAR_SEC, .retry = true, .retry_after_ns = FAR_MS};

static void call_ok(const char *function)
{
	struct far_val out = {0};
	int id = next_id++;
	CHECK_STATUS(far_rpc_sync(agents[0], "worker1", function, FAR_ARGS(id), &often, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == 2 * id && atomic_load(&runs[id]) == 1);
}

static void each_one(const char *function, int side, enum packet_type type)
{
	for (unsigned n = 1; n <= 8; n++) {
		drop(side, type, n, n % 3 + 1, 0);
		for (int i = 0; i < 8; i++)
			call_ok(function);
		CHECK(dropped(side) == n % 3 + 1);
	}
	drop_nothing();
}

static void errors_are_answers(void)
{
	for (unsigned n = 1; n <= 4; n++) {
		drop(1, PACKET_ERROR, n, 2, 0);
		for (int i = 0; i < 4; i++) {
			int id = next_id++;
			CHECK_STATUS(far_rpc_sync(agents[0], "worker1", "test::fail", FAR_ARGS(id), &often, NULL, &err),
				     FAR_DENIED, &err);
			CHECK(err.executed == FAR_EXECUTED_YES && err.code == 5 && atomic_load(&runs[id]) == 1);
		}
		CHECK(dropped(1) == 2);
	}
	drop_nothing();
}

static void at_random(void)
{
	enum { N = 1000, PENDING = 100 };
	struct far_future *f[PENDING];
	int ids[PENDING];
	drop(0, PACKET_REQUEST, 17, 0, 30);
	drop(1, PACKET_REPLY, 23, 0, 30);
	for (int i = 0; i < N; i += PENDING) {
		for (int k = 0; k < PENDING; k++) {
			ids[k] = next_id++;
			const char *function = k % 3 == 0 ? "test::wait" : k % 3 == 1 ? "test::block" : "test::run";
			CHECK_STATUS(
				far_rpc_async(agents[0], "worker1", function, FAR_ARGS(ids[k]), &often, &f[k], &err),
				FAR_OK, &err);
		}
		for (int k = 0; k < PENDING; k++) {
			struct far_val out = {0};
			CHECK_STATUS(far_future_wait(f[k], 0, &out, &err), FAR_OK, &err);
			CHECK(out.u.i == 2 * ids[k] && atomic_load(&runs[ids[k]]) == 1);
			far_future_free(f[k]);
		}
	}
	CHECK(dropped(0) > N / 5 && dropped(1) > N / 5);
	drop_nothing();
}

/* A call whose request is dropped. On a busy machine the time may be over before the request is sent: then again, with
 * twice as much. */
static void times_out(struct far_call_opts opts)
{
	int id = next_id++;
	do {
		opts.timeout_ns *= 2;
		CHECK_STATUS(far_rpc_sync(agents[0], "worker1", "test::run", FAR_ARGS(id), &opts, NULL, &err),
			     FAR_TIMEOUT, &err);
	} while (err.executed == FAR_EXECUTED_NO && opts.timeout_ns < 20 * FAR_SEC);
	CHECK(err.executed == FAR_EXECUTED_MAYBE && atomic_load(&runs[id]) == 0);
}

static void without_retry(void)
{
	drop(0, PACKET_REQUEST, 1, 1, 0);
	times_out((struct far_call_opts){.timeout_ns = 10 * FAR_MS});
	drop_nothing();
}

/* Nothing comes through: the deadline ends the calls, and a repeated cancel frees what they held. */
static void deadline(void)
{
	struct far_counters before, c;
	far_counters_read(agents[0], &before);
	drop(0, PACKET_REQUEST, 1, 1000000, 0);
	/* Some are sent again; how soon depends on what else runs. */
	for (int i = 0; i < 5 || (i < 1000 && c.calls_retried == before.calls_retried); i++) {
		times_out((struct far_call_opts){.timeout_ns = 10 * FAR_MS, .retry = true, .retry_after_ns = FAR_MS});
		far_counters_read(agents[0], &c);
	}
	drop_nothing();
	CHECK(c.calls_retried > before.calls_retried);
	do {
		usleep(1000);
		far_counters_read(agents[0], &c);
	} while (c.calls_active != before.calls_active);
}

/* One call that stays open holds the floor down: the window fills, and kept answers reach their bound. */
static void bounds(void)
{
	struct far_future *first, *f;
	struct far_val out = {0};
	struct far_call_opts forever = {.timeout_ns = FAR_FOREVER, .retry = true};
	enum far_status status = FAR_OK;
	CHECK_STATUS(far_rpc_async(agents[0], "worker1", "test::stick", FAR_ARGS(STUCK), &forever, &first, &err),
		     FAR_OK, &err);
	while (!atomic_load(&stuck))
		usleep(100);
	drop(1, PACKET_REPLY, 1, 1000000, 0);
	for (int i = 0; i < 10; i++) {
		int id = next_id++;
		bool kept = i < 7; /* the others are answered with an error, which gets through */
		CHECK_STATUS(far_rpc_async(agents[0], "worker1", "test::large", FAR_ARGS(id), &often, &f, &err), FAR_OK,
			     &err);
		while (atomic_load(&runs[id]) == 0)
			usleep(100);
		if (kept)
			CHECK_STATUS(far_future_cancel(f, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_wait(f, 0, NULL, &err), kept ? FAR_CANCELLED : FAR_RESOURCE, &err);
		CHECK(err.executed == (kept ? FAR_EXECUTED_MAYBE : FAR_EXECUTED_YES));
		CHECK(atomic_load(&runs[id]) == 1);
		far_future_free(f);
	}
	drop_nothing();
	int n = 0;
	do {
		status = far_rpc_async(agents[0], "worker1", "far::identity", FAR_ARGS(1), &often, &f, &err);
		if (!status) {
			CHECK_STATUS(far_future_wait(f, 0, &out, &err), FAR_OK, &err);
			far_future_free(f);
		}
	} while (!status && ++n < 2000);
	CHECK(status == FAR_BUSY && n < (int)FAR_RETRY_WINDOW);
	CHECK(far_deferred_return(atomic_load(&stuck), &out) == FAR_OK);
	CHECK_STATUS(far_future_wait(first, 0, NULL, &err), FAR_OK, &err);
	far_future_free(first);
	call_ok("test::run");
}

static void *join(void *rank)
{
	static const struct far_function functions[] = {
		{"test::run(int id) -> int", FAR_KIND_INLINE, run, NULL},
		{"test::wait(int id) -> int", FAR_KIND_FIBER, wait, NULL},
		{"test::block(int id) -> int", FAR_KIND_BLOCKING, run, NULL},
		{"test::fail(int id) -> int", FAR_KIND_FIBER, fail, NULL},
		{"test::stick(int id) -> int", FAR_KIND_INLINE, stick, NULL},
		{"test::large(int id) -> Tensor", FAR_KIND_INLINE, large, NULL},
	};
	struct far_opts opts = {
		.init_method = url, .functions = functions, .functions_n = sizeof functions / sizeof *functions};
	int r = rank ? 1 : 0;
	CHECK_STATUS(check_init(check_name(r), r, 2, &opts, &agents[r], &err), FAR_OK, &err);
	return NULL;
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char text[16];
	pthread_t thread;
	alarm(HANG_GUARD_S);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 8) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	snprintf(text, sizeof text, "%d", fd);
	setenv("FAR_STORE_FD", text, 1);
	snprintf(url, sizeof url, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
	CHECK(pthread_create(&thread, NULL, join, &agents[1]) == 0);
	join(NULL);
	CHECK(pthread_join(thread, NULL) == 0);

	call_ok("test::run");
	for (int answers = 0; answers < 2; answers++) {
		each_one("test::run", answers, answers ? PACKET_REPLY : PACKET_REQUEST);
		each_one("test::wait", answers, answers ? PACKET_REPLY : PACKET_REQUEST);
		each_one("test::block", answers, answers ? PACKET_REPLY : PACKET_REQUEST);
	}
	errors_are_answers();
	at_random();
	without_retry();
	deadline();
	bounds();

	/* A call of without_retry() waits for its last packet for ever, so not gracefully. */
	CHECK_STATUS(far_shutdown_local(agents[0], &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown_local(agents[1], &err), FAR_OK, &err);
	return 0;
}
