/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages in fragments, in parts, into memory of the caller's; one-way messages; between real workers.
 * Main thread of each process; threads that it starts. */
#include "api_spawn.h"
#include "large_handlers.h"

#include <stdatomic.h>

enum { LARGEST = 100 * MIB };

static struct far_agent *agent;
static struct far_err err;
static uint8_t *sent, *got;

static struct far_counters counters(void)
{
	struct far_counters c;
	far_counters_read(agent, &c);
	return c;
}

static void join(uint64_t limit, enum far_progress progress)
{
	struct far_opts opts = {.messages = handlers,
				.messages_n = sizeof handlers / sizeof *handlers,
				.placements = &placement,
				.placements_n = 1,
				.functions = functions,
				.functions_n = 1,
				.max_message_bytes = limit,
				/* Inline handlers fill 100 MiB, on a busy machine, too. */
				.peer_limit_ns = 60 * FAR_SEC,
				.progress = progress};
	agent = check_join(&opts);
	sent = malloc(LARGEST + 64);
	got = malloc(LARGEST + 64);
	CHECK(sent && got);
}

static const struct far_to to = {1, -1};

/* ---- sizes and content ---- */

static void one_size(size_t len, struct far_to dest)
{
	size_t n = 0;
	pattern_fill(sent, 0, len, len);
	memset(got, 0xee, len + 8);
	CHECK_STATUS(far_msg_call(agent, dest, ECHO, sent, len, NULL, got, LARGEST, &n, &err), FAR_OK, &err);
	CHECK(n == len && pattern_holds(got, len, len));
	CHECK(got[len] == 0xee && got[len + 7] == 0xee);
}

/* The acknowledgement of a message may come after its answer. */
static void wait_acknowledged(void)
{
	while (counters().rendezvous_active)
		one_size(32, to);
}

static void sizes(void)
{
	static const size_t lens[] = {0,
				      32,
				      33,
				      256 * 1024 - 1,
				      256 * 1024 + 1,
				      16 * MIB - 1,
				      16 * MIB,
				      16 * MIB + 1,
				      16 * MIB + 256 * 1024 - 1,
				      16 * MIB + 256 * 1024,
				      16 * MIB + 256 * 1024 + 1,
				      40 * MIB,
				      LARGEST};
	for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++)
		one_size(lens[i], to);
	one_size(17 * MIB, (struct far_to){0, 0}); /* to oneself */
	wait_acknowledged();
	struct far_counters c = counters();
	CHECK(c.calls_active == 0 && c.rendezvous_sent > 0 && c.rendezvous_received > 0);
}

static void replies(void)
{
	size_t n;
	for (uint64_t len = 16 * MIB; len <= 40 * MIB; len += 12 * MIB - 1) {
		CHECK_STATUS(far_msg_call(agent, to, MAKE, &len, sizeof len, NULL, got, LARGEST, &n, &err), FAR_OK,
			     &err);
		CHECK(n == len && pattern_holds(got, len, len));
		/* Too small: nothing is written beyond it, and the length says what would fit. */
		memset(got, 0xee, 128);
		CHECK_STATUS(far_msg_call(agent, to, MAKE, &len, sizeof len, NULL, got, 100, &n, &err), FAR_TOO_LARGE,
			     &err);
		CHECK(n == len && got[100] == 0xee && got[127] == 0xee);
	}
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_msg_call(agent, to, LATER, NULL, 0, NULL, got, LARGEST, &n, &err), FAR_OK, &err);
		CHECK(n == 40 * MIB + 1 && pattern_holds(got, n, n));
	}
}

/* ---- parts, release, into ---- */

static _Atomic int released, done_n;
static enum far_status done_status;
static size_t done_len;
static const void *done_data;

static void on_release(void *user)
{
	CHECK(user == &released);
	atomic_fetch_add(&released, 1);
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	done_status = status;
	done_len = len;
	done_data = data;
	if (e)
		err = *e;
	if (status == FAR_OK && len == 16) {
		uint64_t ok[2];
		memcpy(ok, data, sizeof ok);
		CHECK(ok[0] == 1);
	}
	atomic_fetch_add(&done_n, 1);
}

static void wait_done(int n)
{
	while (atomic_load(&done_n) < n) {
		uint64_t reply;
		size_t len;
		CHECK_STATUS(far_msg_call(agent, to, SMALL, "12345678", 8, NULL, &reply, sizeof reply, &len, &err),
			     FAR_OK, &err);
	}
	atomic_store(&done_n, 0);
}

/* They come with the acknowledgements, which may be after the answers; not more of them. */
static void wait_released(int n)
{
	while (atomic_load(&released) < n)
		usleep(100);
	CHECK(atomic_load(&released) == n);
}

static void parts(void)
{
	struct far_part p[FAR_PARTS_MAX + 1] = {{NULL, 0}};
	static const size_t lens[] = {100, 16 * MIB - 8, 16 * MIB, 16 * MIB + 8, 50 * MIB};
	uint64_t ok[2];
	for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++) {
		size_t len = lens[i], at = 0;
		pattern_fill(sent, 0, len, len);
		for (unsigned k = 0; k < FAR_PARTS_MAX; k++) {
			size_t n = k == FAR_PARTS_MAX - 1 ? len - at : k % 3 == 1 ? 0 : len / 20 + (len > 1000 ? k : 0);
			p[k] = (struct far_part){n ? sent + at : NULL, n};
			at += n;
		}
		CHECK_STATUS(far_msg_call_parts(agent, to, CHECKED, p, FAR_PARTS_MAX, NULL, ok, sizeof ok, NULL, &err),
			     FAR_OK, &err);
		CHECK(ok[0] == 1 && ok[1] == len);
		atomic_store(&released, 0);
		CHECK_STATUS(far_msg_send_parts(agent, to, CHECKED, p, FAR_PARTS_MAX, on_release, &released, NULL,
						on_done, NULL, &err),
			     FAR_OK, &err);
		wait_done(1);
		CHECK(done_status == FAR_OK);
		wait_released(1);
		/* Without a release the memory is ours at once. */
		CHECK_STATUS(
			far_msg_send_parts(agent, to, CHECKED, p, FAR_PARTS_MAX, NULL, NULL, NULL, on_done, NULL, &err),
			FAR_OK, &err);
		memset(sent, 0, len);
		wait_done(1);
		CHECK(done_status == FAR_OK);
	}
	/* Refused: released all the same, before it returns. */
	atomic_store(&released, 0);
	CHECK(far_msg_send_parts(agent, to, CHECKED, p, FAR_PARTS_MAX + 1, on_release, &released, NULL, on_done, NULL,
				 &err) == FAR_INVALID);
	CHECK_TEXT(&err, "17 parts");
	CHECK(atomic_load(&released) == 1);
	struct far_part null = {NULL, 5}, huge[2] = {{sent, SIZE_MAX / 2}, {sent, SIZE_MAX / 2 + 2}};
	CHECK(far_msg_call_parts(agent, to, CHECKED, &null, 1, NULL, ok, sizeof ok, NULL, &err) == FAR_INVALID);
	CHECK(far_msg_oneway_parts(agent, to, CHECKED, huge, 2, on_release, &released, NULL, &err) == FAR_TOO_LARGE);
	CHECK(far_msg_oneway_parts(agent, to, CHECKED, NULL, 1, on_release, &released, NULL, &err) == FAR_INVALID);
	CHECK(far_msg_send_parts(agent, (struct far_to){9, 0}, CHECKED, NULL, 0, on_release, &released, NULL, on_done,
				 NULL, &err) == FAR_UNKNOWN_WORKER);
	CHECK(atomic_load(&released) == 4);
	CHECK_STATUS(far_msg_call_parts(agent, to, CHECKED, NULL, 0, NULL, ok, sizeof ok, NULL, &err), FAR_OK, &err);
	CHECK(ok[1] == 0);
}

static void recv_buf(void)
{
	for (uint64_t len = 8; len <= 40 * MIB; len = len == 8 ? 5 * MIB : len * 8) {
		struct far_call_opts opts = {.recv_buf = {got, len}};
		memset(got, 0xee, len + 8);
		CHECK_STATUS(far_msg_send(agent, to, MAKE, &len, sizeof len, &opts, on_done, NULL, &err), FAR_OK, &err);
		wait_done(1);
		CHECK(done_status == FAR_OK && done_len == len && done_data == got && pattern_holds(got, len, len));
		CHECK(got[len] == 0xee);
		opts.recv_buf.cap = len - 1;
		memset(got, 0xee, len + 8);
		CHECK_STATUS(far_msg_send(agent, to, MAKE, &len, sizeof len, &opts, on_done, NULL, &err), FAR_OK, &err);
		wait_done(1);
		CHECK(done_status == FAR_TOO_LARGE && got[len - 1] == 0xee && err.executed == FAR_EXECUTED_YES);
		char text[64];
		snprintf(text, sizeof text, "%llu bytes, the buffer %llu", (unsigned long long)len,
			 (unsigned long long)len - 1);
		CHECK_TEXT(&err, text);
	}
	struct far_call_opts opts = {.recv_buf = {got, 8}};
	CHECK(far_msg_call(agent, to, ECHO, sent, 8, &opts, got, 8, NULL, &err) == FAR_INVALID);
	CHECK(far_msg_oneway(agent, to, NOTE, sent, 8, &opts, &err) == FAR_INVALID);
}

static void typed(void)
{
	enum { SMALL_N = 16, LARGE_N = 3 * MIB };
	double *x = malloc(LARGE_N * sizeof *x), *y = malloc(LARGE_N * sizeof *y);
	for (int i = 0; i < LARGE_N; i++)
		x[i] = i % 1000;
	for (int large = 0; large < 2; large++) {
		uint64_t n = large ? LARGE_N : SMALL_N;
		struct far_tensor t = far_tensor_1d(FAR_F64, x, n);
		struct far_call_opts opts = {.recv_buf = {y, n * sizeof *y}},
				     small = {.recv_buf = {y, n * sizeof *y - 1}};
		struct far_val out;
		struct far_future *f;
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::total", FAR_ARGS(&t), NULL, &out, &err), FAR_OK, &err);
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "far::add", FAR_ARGS(&t, &t), NULL, &out, &err), FAR_OK,
			     &err);
		CHECK(far_tensor_count(&out.u.t) == n && ((double *)out.u.t.data)[n - 1] == 2 * x[n - 1]);
		far_val_fini(&out);
		memset(y, 0, n * sizeof *y);
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "far::add", FAR_ARGS(&t, &t), &opts, &out, &err), FAR_OK,
			     &err);
		CHECK(out.u.t.data == y && far_tensor_count(&out.u.t) == n && y[n - 1] == 2 * x[n - 1] && y[1] == 2);
		far_val_fini(&out);
		memset(y, 0, n * sizeof *y);
		CHECK_STATUS(far_rpc_async(agent, "worker1", "far::add", FAR_ARGS(&t, &t), &opts, &f, &err), FAR_OK,
			     &err);
		CHECK_STATUS(far_future_wait(f, 0, &out, &err), FAR_OK, &err);
		CHECK(out.u.t.data == y && far_tensor_count(&out.u.t) == n && y[n - 1] == 2 * x[n - 1]);
		far_val_fini(&out);
		far_future_free(f);
		memset(y, 0, n * sizeof *y);
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "far::add", FAR_ARGS(&t, &t), &small, &out, &err),
			     FAR_TOO_LARGE, &err);
		CHECK(err.executed == FAR_EXECUTED_YES && y[n - 1] == 0);
		CHECK_STATUS(far_rpc_async(agent, "worker1", "far::add", FAR_ARGS(&t, &t), &small, &f, &err), FAR_OK,
			     &err);
		CHECK_STATUS(far_future_wait(f, 0, &out, &err), FAR_TOO_LARGE, &err);
		far_future_free(f);
		/* Other types come as ever. */
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::total", FAR_ARGS(&t), &small, &out, &err), FAR_OK,
			     &err);
		CHECK(out.type == FAR_TYPE_FLOAT);
	}
	free(x);
	free(y);
}

static void set_placement(void)
{
	static const size_t lens[] = {1000, 17 * MIB, 51 * MIB};
	uint64_t ok[4];
	for (unsigned i = 0; i < 3; i++) {
		pattern_fill(sent, 0, lens[i], lens[i]);
		CHECK_STATUS(far_msg_call(agent, to, PLACED, sent, lens[i], NULL, ok, sizeof ok, NULL, &err), FAR_OK,
			     &err);
		CHECK(ok[0] == 1 && ok[1] == (i == 1) && ok[2] == i);
	}
	/* Its sender gives up: the memory goes back. */
	struct far_call_opts opts = {.timeout_ns = FAR_MS};
	enum far_status status = far_msg_call(agent, to, PLACED, sent, 49 * MIB, &opts, ok, sizeof ok, NULL, &err);
	CHECK_STATUS(status, FAR_TIMEOUT, &err);
	CHECK_STATUS(far_msg_call(agent, to, PLACED, sent, 8, NULL, ok, sizeof ok, NULL, &err), FAR_OK, &err);
	struct far_msg_placement again = placement, none = {.id = 77, .get_buffer = get_buffer, .abandon = abandon};
	CHECK(far_register_placement(agent, &again, &err) == FAR_INVALID);
	CHECK(far_register_placement(agent, &none, &err) == FAR_INVALID);
	none.abandon = NULL;
	CHECK(far_register_placement(agent, &none, &err) == FAR_INVALID);
}

/* ---- one-way ---- */

static uint64_t posted;

static void post(size_t len)
{
	enum far_status status;
	memcpy(sent, &posted, sizeof posted);
	while ((status = far_msg_oneway(agent, to, NOTE, sent, len, NULL, &err)) == FAR_BUSY)
		usleep(100);
	CHECK_STATUS(status, FAR_OK, &err);
	posted++;
}

static void post_large(size_t len)
{
	struct far_part p[2] = {{&posted, sizeof posted}, {sent + 8, len - 8}};
	enum far_status status;
	while ((status = far_msg_oneway_parts(agent, to, NOTE_LARGE, p, 2, NULL, NULL, NULL, &err)) == FAR_BUSY)
		usleep(100);
	CHECK_STATUS(status, FAR_OK, &err);
	posted++;
}

static void one_way(void)
{
	uint64_t n[2];
	pattern_fill(sent + 8, 0, 40 * MIB, 5);
	for (int i = 0; i < 20000; i++)
		post(8 + (size_t)(i % 100 == 0) * 5000);
	post_large(17 * MIB);
	for (int i = 0; i < 100; i++)
		post(8);
	pattern_fill(sent + 8, 0, 40 * MIB, 5);
	post_large(20 * MIB);
	post_large(18 * MIB);
	post(40);
	do
		CHECK_STATUS(far_msg_call(agent, to, NOTES, NULL, 0, NULL, n, sizeof n, NULL, &err), FAR_OK, &err);
	while (n[0] < posted);
	CHECK(n[0] == posted && n[1] == 3);
	CHECK(far_msg_oneway(agent, to, FAR_MSG_HANDLERS_MAX, NULL, 0, NULL, &err) == FAR_INVALID);
	CHECK(far_msg_oneway(agent, (struct far_to){5, 0}, NOTE, NULL, 0, NULL, &err) == FAR_UNKNOWN_WORKER);
	/* No handler there: counted there, nobody hears. */
	CHECK_STATUS(far_msg_oneway(agent, to, 999, "x", 1, NULL, &err), FAR_OK, &err);
	/* Who holds the shard and does not let it run is notified, in bounded time. */
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	enum far_status status = FAR_OK;
	for (int i = 0; i < 100000 && !status; i++) {
		memcpy(sent, &posted, sizeof posted);
		status = far_msg_oneway(agent, to, NOTE, sent, 8, NULL, &err);
		posted += !status;
	}
	CHECK_STATUS(status, FAR_BUSY, &err);
	CHECK_TEXT(&err, "worker1");
	far_shard_release(agent);
	post(8);
}

/* ---- together ---- */

struct both {
	struct far_to to;
	_Atomic bool stop;
};

static void *small_calls(void *arg)
{
	struct both *b = arg;
	uint64_t n = 0, reply;
	struct far_err e;
	while (!atomic_load(&b->stop)) {
		CHECK_STATUS(far_msg_call(agent, b->to, SMALL, &n, sizeof n, NULL, &reply, sizeof reply, NULL, &e),
			     FAR_OK, &e);
		CHECK(reply == n);
		n++;
	}
	CHECK(n > 0);
	return NULL;
}

/* Both workers send long messages at once, several of them, and small calls go in between. */
static void both_ways(int rank)
{
	struct both b = {.to = {1 - rank, -1}};
	pthread_t thread;
	uint64_t len = 40 * MIB;
	CHECK(pthread_create(&thread, NULL, small_calls, &b) == 0);
	pattern_fill(sent, 0, len, len);
	for (int round = 0; round < 2; round++) {
		struct far_part p = {sent, len};
		atomic_store(&released, 0);
		atomic_store(&done_n, 0);
		for (int i = 0; i < 6; i++)
			CHECK_STATUS(far_msg_send_parts(agent, b.to, CHECKED, &p, 1, on_release, &released, NULL,
							on_done, NULL, &err),
				     FAR_OK, &err);
		while (atomic_load(&done_n) < 6)
			usleep(1000);
		CHECK(done_status == FAR_OK);
		wait_released(6);
	}
	atomic_store(&b.stop, true);
	pthread_join(thread, NULL);
}

static void finish_threads(void)
{
	while (threads_n)
		pthread_join(threads[--threads_n], NULL);
	free(sent);
	free(got);
}

static int main_worker(int rank)
{
	join(0, FAR_PROGRESS_SHARED);
	if (rank == 0) {
		sizes();
		replies();
		parts();
		recv_buf();
		typed();
		set_placement();
		one_way();
		wait_acknowledged();
		struct far_counters c = counters();
		CHECK(c.calls_active == 0 && c.packets_dropped == 0);
	}
	/* What was accepted is delivered before a graceful leave ends. */
	check_leave(agent);
	if (rank == 1)
		CHECK(noted > 20000 && recorded_large == 3 && abandons <= 1);
	finish_threads();
	return 0;
}

static int both_worker(int rank)
{
	join(0, rank ? FAR_PROGRESS_DEDICATED : FAR_PROGRESS_SHARED);
	both_ways(rank);
	check_leave(agent);
	finish_threads();
	return 0;
}

/* ---- limits, time-outs ---- */

static int limit_worker(int rank)
{
	join(rank == 1 ? 20 * MIB : 0, FAR_PROGRESS_SHARED);
	if (rank == 0) {
		struct far_counters before = counters();
		struct far_part p = {sent, 20 * MIB + 1};
		uint64_t ok[2], bytes = 21 * MIB;
		CHECK(far_msg_call(agent, to, CHECKED, sent, 20 * MIB + 1, NULL, ok, sizeof ok, NULL, &err) ==
		      FAR_TOO_LARGE);
		CHECK_TEXT(&err, "20971521");
		CHECK_TEXT(&err, "20971520");
		CHECK(far_msg_oneway(agent, to, NOTE, sent, 20 * MIB + 1, NULL, &err) == FAR_TOO_LARGE);
		atomic_store(&released, 0);
		CHECK(far_msg_send_parts(agent, to, CHECKED, &p, 1, on_release, &released, NULL, on_done, NULL, &err) ==
		      FAR_TOO_LARGE);
		CHECK(atomic_load(&released) == 1);
		CHECK(counters().bytes_sent == before.bytes_sent && counters().calls_sent == before.calls_sent);
		pattern_fill(sent, 0, 20 * MIB, 20 * MIB);
		CHECK_STATUS(far_msg_call(agent, to, CHECKED, sent, 20 * MIB, NULL, ok, sizeof ok, NULL, &err), FAR_OK,
			     &err);
		CHECK(ok[0] == 1);
		/* Our own limit is another one: the reply may be longer. */
		CHECK_STATUS(far_msg_call(agent, to, MAKE, &bytes, sizeof bytes, NULL, got, LARGEST, NULL, &err),
			     FAR_OK, &err);
		/* A time-out in the middle: executed NO, nothing left behind, and the next one works. */
		for (int i = 0; i < 20; i++) {
			struct far_call_opts opts = {.timeout_ns = (uint64_t)(i + 1) * 200000};
			enum far_status status =
				far_msg_call(agent, to, CHECKED, sent, 20 * MIB, &opts, ok, sizeof ok, NULL, &err);
			CHECK(status == FAR_OK || (status == FAR_TIMEOUT && err.executed <= FAR_EXECUTED_MAYBE));
			status = far_msg_call(agent, to, MAKE, &bytes, sizeof bytes, &opts, got, LARGEST, NULL, &err);
			CHECK(status == FAR_OK || status == FAR_TIMEOUT);
			CHECK_STATUS(far_msg_send(agent, to, CHECKED, sent, 20 * MIB, &opts, on_done, NULL, &err),
				     FAR_OK, &err);
			wait_done(1);
		}
		do
			CHECK_STATUS(far_msg_call(agent, to, ECHO, sent, 17 * MIB, NULL, got, LARGEST, NULL, &err),
				     FAR_OK, &err);
		while (counters().rendezvous_active || counters().calls_active);
		CHECK(counters().packets_dropped == 0);
	}
	check_leave(agent);
	finish_threads();
	return 0;
}

/* ---- death in the middle ---- */

static int killed_rank;

/* Was it started; else its peer was lost before. */
static int may_be_lost(enum far_status status)
{
	if (status != FAR_PEER_LOST)
		CHECK_STATUS(status, FAR_OK, &err);
	return status == FAR_OK;
}

/* Worker 0 sends to worker 1 (or receives from it) without end; the one that is to die dies in the middle. */
static int death_worker(int rank)
{
	join(0, FAR_PROGRESS_SHARED);
	uint64_t len = LARGEST;
	struct far_part p = {sent, LARGEST};
	atomic_store(&released, 0);
	pattern_fill(sent, 0, LARGEST, LARGEST); /* a sender may learn of its bytes when all have been read */
	for (int i = 0; i < 6 && rank == 0; i++)
		CHECK_STATUS(
			far_msg_send_parts(agent, to, CHECKED, &p, 1, on_release, &released, NULL, on_done, NULL, &err),
			FAR_OK, &err);
	int sent_n = 0; /* the other may have died already */
	for (int i = 0; i < 4 && rank == 1 && killed_rank == 0; i++)
		sent_n += may_be_lost(
			far_msg_send(agent, (struct far_to){0, -1}, MAKE, &len, sizeof len, NULL, on_done, NULL, &err));
	while (rank == killed_rank && counters().bytes_sent + counters().bytes_received < 30 * MIB)
		usleep(100);
	if (rank == killed_rank)
		raise(SIGKILL);
	if (rank == 0) {
		while (atomic_load(&done_n) < 6 || atomic_load(&released) < 6)
			usleep(1000);
		CHECK(done_status == FAR_PEER_LOST);
		CHECK(far_msg_oneway(agent, to, NOTE, sent, 8, NULL, &err) == FAR_PEER_LOST);
	} else {
		while (atomic_load(&done_n) < sent_n)
			usleep(1000);
	}
	CHECK(counters().rendezvous_active == 0 && counters().calls_active == 0);
	CHECK(atomic_load(&released) == (rank == 0 ? 6 : 0));
	enum far_status status = far_shutdown(agent, 5 * FAR_SEC, &err);
	CHECK(status == FAR_PEER_LOST);
	finish_threads();
	return 0;
}

/* Shut down at once with everything under way: released, completed, freed. */
static int local_worker(int rank)
{
	join(0, FAR_PROGRESS_SHARED);
	struct far_part p = {sent, LARGEST};
	atomic_store(&released, 0);
	int started = 0;
	for (int i = 0; i < 6; i++) {
		started += may_be_lost(far_msg_send_parts(agent, (struct far_to){1 - rank, -1}, CHECKED, &p, 1,
							  on_release, &released, NULL, on_done, NULL, &err));
		may_be_lost(far_msg_oneway_parts(agent, (struct far_to){1 - rank, -1}, 900, &p, 1, on_release,
						 &released, NULL, &err));
	}
	usleep(2000);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	CHECK(atomic_load(&released) == 12 && atomic_load(&done_n) == started);
	finish_threads();
	return 0;
}

static const struct {
	const char *name;
	spawn_main *worker;
	int killed;
} groups[] = {
	{"messages", main_worker, -1}, {"both", both_worker, -1},   {"limit", limit_worker, -1},
	{"death0", death_worker, 0},   {"death1", death_worker, 1}, {"local", local_worker, -1},
};

/* usage: api_large [GROUP], all without one */
int main(int argc, char **argv)
{
	int ran = 0;
	for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
		if (argc > 1 && strcmp(argv[1], groups[i].name) != 0)
			continue;
		killed_rank = groups[i].killed;
		struct spawned s = spawn(2, groups[i].worker);
		if (spawn_wait(&s, groups[i].killed))
			return 1;
		ran++;
	}
	CHECK(ran > 0);
	return 0;
}
