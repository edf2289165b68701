/* SPDX-License-Identifier: BSD-3-Clause */
/** Handlers and shard threads of the serving side of a measurement. */
#include "server.h"
#include "agent/agent.h"
#include "perf.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define POLLS    16   /* passes of the shard's loop between two looks at the mode */
#define LOOKS    1024 /* of those between two looks at the peer and at signals */
#define NAP_NS   50000
#define SLEEP_MS 1000 /* between two looks at the mode while asleep */

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	(void)user;
	far_reply(req, data, len);
}

static void read_all(const void *data, size_t len)
{
	static _Atomic uint64_t kept; /* keeps the compiler from dropping the reads */
	atomic_store_explicit(&kept, floor_read(data, len), memory_order_relaxed);
}

static void drain(struct far_req *req, const void *data, size_t len, void *user)
{
	(void)user;
	read_all(data, len);
	far_reply(req, NULL, 0);
}

FAR_HANDLER(read_tensor)
{
	read_all(args[0].u.t.data, far_tensor_count(&args[0].u.t));
	return far_return(req, NULL);
}

FAR_HANDLER(in_place)
{
	struct far_counters c;
	far_counters_read(far_req_agent(req), &c);
	return far_return_int(req, (int64_t)c.bytes_by_reference);
}

const struct far_function server_functions[SERVER_FUNCTIONS] = {
	{SERVER_READ "(Tensor<u8,1> bytes) -> none", FAR_KIND_INLINE, read_tensor, NULL, 0},
	{SERVER_IN_PLACE "() -> int", FAR_KIND_INLINE, in_place, NULL, 0},
};

static void describe(struct far_req *req, const void *data, size_t len, void *user)
{
	const struct server *s = user;
	struct server_description h = {.version = FAR_VERSION,
				       .shared_bytes = sizeof *s->shared,
				       .pid = (int32_t)getpid(),
				       .fd = s->shared_fd,
				       .cookie = s->shared->cookie};
	(void)data;
	(void)len;
	far_reply(req, &h, sizeof h);
}

static void bye(struct far_req *req, const void *data, size_t len, void *user)
{
	struct server *s = user;
	(void)data;
	(void)len;
	far_reply(req, NULL, 0);
	atomic_store_explicit(&s->bye, true, memory_order_release); /* pairs with serve_idle() */
}

static void self_done(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	struct server *s = user;
	(void)data;
	(void)len;
	if (status == FAR_OK)
		atomic_store(&s->self_answered, true);
	else
		far_err_print(stderr, err);
}

static void call_self(struct far_req *req, const void *data, size_t len, void *user)
{
	struct server *s = user;
	struct far_worker_info me;
	struct far_err err;
	(void)data;
	(void)len;
	far_worker_self(s->agent, &me);
	struct far_to to = {.worker = me.rank, .shard = 0};
	if (!atomic_exchange(&s->self_sent, true) &&
	    far_msg_send(s->agent, to, SERVER_ECHO, NULL, 0, NULL, self_done, s, &err) != FAR_OK) {
		far_fail(req, err.status, 0, "%s", err.text);
		return;
	}
	unsigned char answered = atomic_load(&s->self_answered);
	far_reply(req, &answered, 1);
}

static void stamp(struct far_req *req, const void *data, size_t len, void *user)
{
	(void)user;
	struct server_stamp_request q = {0};
	struct server_stamp r = {.begun_ns = floor_now()};
	if (len == sizeof q)
		memcpy(&q, data, len);
	if (q.look) {
		struct rusage used;
		r.run_ns = floor_clock(CLOCK_THREAD_CPUTIME_ID);
		getrusage(RUSAGE_THREAD, &used);
		r.sleeps = (uint64_t)used.ru_nvcsw;
	}
	for (r.ended_ns = r.begun_ns; r.ended_ns - r.begun_ns < q.spin_ns;)
		r.ended_ns = floor_now();
	far_reply(req, &r, sizeof r);
}

void server_handlers(struct server *s, struct far_msg_handler out[SERVER_HANDLERS])
{
	static const enum far_kind kinds[] = {FAR_KIND_INLINE, FAR_KIND_FIBER, FAR_KIND_BLOCKING};
	size_t n = 0;
	for (uint16_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		out[n++] = (struct far_msg_handler){(uint16_t)(SERVER_ECHO + 2 * i), kinds[i], echo, s};
		out[n++] = (struct far_msg_handler){(uint16_t)(SERVER_SINK + 2 * i), kinds[i], drain, s};
	}
	out[n++] = (struct far_msg_handler){SERVER_DESCRIBE, FAR_KIND_INLINE, describe, s};
	out[n++] = (struct far_msg_handler){SERVER_BYE, FAR_KIND_INLINE, bye, s};
	out[n++] = (struct far_msg_handler){SERVER_SELF, FAR_KIND_INLINE, call_self, s};
	out[n++] = (struct far_msg_handler){SERVER_STAMP, FAR_KIND_INLINE, stamp, s};
}

/* Checks at intervals what the shard does not report. */
static int poll_others(struct server *s)
{
	struct far_worker_info client = {.alive = true};
	if (s->signal && *s->signal)
		s->end = SERVER_SIGNALLED;
	else if (s->client >= 0 && far_worker_by_rank(s->agent, s->client, &client, NULL) == FAR_OK && !client.alive)
		s->end = SERVER_LOST;
	else
		return 0;
	return -ECANCELED;
}

/* More shards than cores: they take turns. */
static void give_turn(const struct server *s)
{
	if (far_shards(s->agent) > (unsigned)perf_cpus())
		sched_yield();
}

static int serve_idle(void *ctx)
{
	struct server *s = ctx;
	for (int i = 0; i < POLLS; i++)
		far_shard_poll(s->agent);
	give_turn(s);
	if (atomic_load_explicit(&s->bye, memory_order_acquire)) {
		s->end = SERVER_NOTIFIED;
		return -ECANCELED;
	}
	return ++s->looks % LOOKS == 0 ? poll_others(s) : 0;
}

/* The agent's own thread serves, and sleeps when there is nothing to do; so does this one. */
static int let_sleep(struct server *s, uint64_t mode)
{
	struct far_err err;
	uint64_t since = floor_now();
	int rc = 0;
	far_shard_release(s->agent);
	while (rc == 0) {
		struct pollfd p = {.fd = s->shared->wake_fd, .events = POLLIN};
		uint64_t value;
		if (poll(&p, 1, SLEEP_MS) > 0 && read(p.fd, &value, sizeof value) < 0)
			rc = -errno;
		/* The parent process dies with this one; a long silence is not its death. */
		since = floor_now();
		rc = rc ? rc : floor_poll_mode(s->shared, mode, &since);
	}
	if (far_shard_acquire(s->agent, 0, &err) == FAR_OK)
		return rc < 0 ? rc : 0;
	far_err_print(stderr, &err);
	return -EBUSY;
}

static int serve_mode(void *ctx, uint64_t mode)
{
	struct server *s = ctx;
	switch ((enum floor_mode)(mode & 0xff)) {
	case FLOOR_SLEEP:
		return let_sleep(s, mode);
	case FLOOR_ROWS:
		return floor_rows_serve(s->shared, mode);
	case FLOOR_NIC_OPEN:
		floor_agent_accept(&s->nic, s->agent, s->shared);
		return 0;
	default:
		return floor_nic_serve(s->shared, &s->nic, mode);
	}
}

/* A shard beyond the first: it steps aside while the floors run. */
static void *shard_main(void *arg)
{
	struct server_shard *shard = arg;
	struct server *s = shard->server;
	struct far_err err;
	perf_pin(shard->cpu);
	if (far_shard_acquire_at(s->agent, shard->index, 0, &err) != FAR_OK) {
		far_err_print(stderr, &err); /* the agent's own thread serves it then */
		return NULL;
	}
	while (!atomic_load_explicit(&s->ending, memory_order_relaxed)) {
		uint64_t mode = atomic_load_explicit(&s->shared->state.v, memory_order_relaxed);
		for (int i = 0; i < POLLS; i++)
			far_shard_poll_at(s->agent, shard->index);
		give_turn(s);
		if ((mode & 0xff) != FLOOR_IDLE)
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
	far_shard_release_at(s->agent, shard->index);
	return NULL;
}

static int start_shards(struct server *s)
{
	unsigned n = far_shards(s->agent);
	for (unsigned i = 1; i < n; i++) {
		struct server_shard *shard = &s->shards[i];
		*shard = (struct server_shard){.server = s, .index = i, .cpu = s->cpu < 0 ? -1 : perf_cpu(2 * i + 1)};
		int error = pthread_create(&shard->thread, NULL, shard_main, shard);
		if (error) {
			fprintf(stderr, "farcall perf: cannot start the thread of shard %u: %s\n", i, strerror(error));
			return -error;
		}
		s->threads_n = i;
	}
	return 0;
}

enum server_end server_run(struct server *s)
{
	struct far_err err;
	s->end = SERVER_FAILED;
	int rc = start_shards(s);
	/* This thread holds the shard and never leaves its loop: the policy "busy", with the server's own thread. It is
	 * not the agent's thread because that one could not step aside for the raw floors, and two busy threads on one
	 * core would measure the scheduler. Pinned behind the start of the threads, which shall not inherit it. */
	perf_pin(s->cpu);
	if (rc == 0 && far_shard_acquire(s->agent, 0, &err) != FAR_OK) {
		far_err_print(stderr, &err);
		rc = -EBUSY;
	}
	if (rc == 0) {
		const struct floor_host host = {serve_idle, serve_mode, s};
		rc = floor_serve(s->shared, &host);
		if (rc != -ECANCELED)
			s->end = rc == 0 ? SERVER_NOTIFIED : SERVER_SILENT;
		floor_agent_close(&s->nic);
		far_shard_release(s->agent);
	}
	atomic_store_explicit(&s->ending, true, memory_order_relaxed);
	for (unsigned i = 1; i <= s->threads_n; i++)
		pthread_join(s->shards[i].thread, NULL);
	return s->end;
}
