/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A worker in a network namespace of its own, over the driver that FAR_NIC names: calls every shard of every other
 * worker with messages of all sizes and with typed calls, with many at once, sends one-way messages, and after a while
 * of doing nothing is woken, and wakes, by a call. Main thread of each process; handlers on shard threads.
 *
 * usage: agents_net SHARDS LARGEST [PATIENCE]; the group is that of the environment. PATIENCE: seconds that all of it
 * may take, and that a silent worker is borne with, where the machine is slow
 */
#include "../e2e/check.h"
#include "../e2e/pattern.h"

#include <stdatomic.h>
#include <time.h>

enum { ECHO = 1, NOTE, MANY = 150, NAPS = 5 };

static struct far_agent *agent;
static struct far_err err;
static _Atomic uint64_t notes;

/* Each message of the group has bytes of its own, made of its first word: a test counts what recurs among packets. */
static void fill(uint8_t *at, size_t len)
{
	static uint32_t messages;
	uint64_t seed = (uint64_t)check_rank() << 32 | ++messages;
	size_t first = len < sizeof seed ? len : sizeof seed;
	memcpy(at, &seed, first);
	pattern_fill(at + first, 0, len - first, seed);
}

static bool holds(const uint8_t *at, size_t len)
{
	uint64_t seed;
	if (len < sizeof seed)
		return true;
	memcpy(&seed, at, sizeof seed);
	return pattern_holds(at + sizeof seed, len - sizeof seed, seed);
}

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(far_reply(req, data, len) == FAR_OK);
}

static void note(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(holds(data, len));
	atomic_fetch_add(&notes, 1);
}

static void one_size(struct far_to to, size_t len, uint8_t *sent, uint8_t *got)
{
	size_t n = 0;
	fill(sent, len);
	memset(got, 0xee, len + 8);
	CHECK_STATUS(far_msg_call(agent, to, ECHO, sent, len, NULL, got, len + 8, &n, &err), FAR_OK, &err);
	CHECK(n == len && memcmp(got, sent, len) == 0 && got[len] == 0xee);
}

static void sizes(struct far_to to, size_t largest)
{
	static const size_t around[] = {0, 1, 31, 32, 33, 96, 1300, 1376, 1400, 1472, 1500, 4096, 9000, 65536, 200000};
	uint8_t *sent = malloc(largest + 16), *got = malloc(largest + 16);
	CHECK(sent && got);
	for (unsigned i = 0; i < sizeof around / sizeof *around && around[i] <= largest; i++)
		one_size(to, around[i], sent, got);
	for (size_t len = 300000; len <= largest; len = len * 3 + 1)
		one_size(to, len, sent, got);
	free(sent);
	free(got);
}

static void typed(struct far_to to)
{
	double x[64], y[64];
	struct far_val out = far_none();
	for (int i = 0; i < 64; i++) {
		x[i] = i;
		y[i] = 1000.0 * i;
	}
	struct far_tensor a = far_tensor_1d(FAR_F64, x, 64), b = far_tensor_1d(FAR_F64, y, 64);
	struct far_val args[2] = {far_tensor_val(&a), far_tensor_val(&b)};
	CHECK_STATUS(far_rpc_sync_to(agent, to, "far::add", args, 2, NULL, &out, &err), FAR_OK, &err);
	CHECK(out.type == FAR_TYPE_TENSOR && far_tensor_count(&out.u.t) == 64);
	for (int i = 0; i < 64; i++)
		CHECK(((const double *)out.u.t.data)[i] == 1001.0 * i);
	far_val_fini(&out);
}

static _Atomic unsigned answers;

static void answered(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	if (e)
		far_err_print(stderr, e);
	CHECK(status == FAR_OK && len == (size_t)(uintptr_t)user && holds(data, len));
	atomic_fetch_add(&answers, 1);
}

static void many(struct far_to to)
{
	static uint8_t bytes[MANY * 20 + 8];
	atomic_store(&answers, 0);
	for (unsigned i = 0; i < MANY; i++) {
		size_t len = (size_t)i * 20;
		fill(bytes, len);
		enum far_status status;
		do
			status =
				far_msg_send(agent, to, ECHO, bytes, len, NULL, answered, (void *)(uintptr_t)len, &err);
		while (status == FAR_BUSY);
		CHECK_STATUS(status, FAR_OK, &err);
		do
			status = far_msg_oneway(agent, to, NOTE, bytes, len, NULL, &err);
		while (status == FAR_BUSY);
		CHECK_STATUS(status, FAR_OK, &err);
	}
	while (atomic_load(&answers) < MANY)
		one_size(to, 8, bytes, bytes + 64);
}

/* Long enough for both to sleep. */
static void naps(struct far_to to)
{
	uint8_t sent[64], got[64];
	for (int i = 0; i < NAPS; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
		one_size(to, 16, sent, got);
	}
}

static void call_worker(int rank, unsigned shards, size_t largest)
{
	struct far_worker_info info;
	char nic[64];
	CHECK_STATUS(far_worker_by_rank(agent, rank, &info, &err), FAR_OK, &err);
	printf("worker%d by %s at %s: %s\n", rank, info.nic, info.nic_address, info.nic_why);
	snprintf(nic, sizeof nic, "%s", check_nic());
	CHECK(strcmp(info.nic, nic) == 0);
	for (unsigned s = 0; s < shards; s++) {
		struct far_to to = {rank, (int)s};
		sizes(to, s ? 20000 : largest);
		typed(to);
		many(to);
		naps(to);
	}
}

static void check_notes(unsigned shards, unsigned wait_s)
{
	unsigned others = (unsigned)far_world_size(agent) - 1;
	uint64_t want = (uint64_t)MANY * shards * others, n = 0;
	for (unsigned i = 0; i < 100 * wait_s && n < want; i++) {
		n = atomic_load(&notes);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	CHECK(n == want);
}

int main(int argc, char **argv)
{
	static const struct far_msg_handler handlers[] = {{ECHO, FAR_KIND_INLINE, echo, NULL},
							  {NOTE, FAR_KIND_INLINE, note, NULL}};
	CHECK(argc == 3 || argc == 4);
	unsigned shards = (unsigned)atoi(argv[1]);
	size_t largest = (size_t)atoll(argv[2]);
	struct far_opts opts = {.messages = handlers,
				.messages_n = sizeof handlers / sizeof *handlers,
				.security = "none",
				.shards = shards,
				.rpc_timeout_ns = 40 * FAR_SEC};
	unsigned patience_s = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
	if (patience_s) {
		opts.rpc_timeout_ns = patience_s * FAR_SEC;
		opts.peer_limit_ns = patience_s * FAR_SEC;
	}
	agent = check_join(&opts);
	if (patience_s)
		alarm(patience_s);
	int rank = check_rank();
	for (int r = 0; r < far_world_size(agent); r++)
		if (r != rank)
			call_worker(r, shards, largest);
	check_notes(shards, patience_s ? patience_s : 20);
	struct far_counters c;
	far_counters_read(agent, &c);
	CHECK(c.calls_active == 0 && c.calls_failed == 0);
	uint64_t read_bytes = 0;
	struct far_nic_stats nic;
	for (unsigned port = 0; far_nic_stats_read(agent, port, &nic, &err) == FAR_OK; port++)
		read_bytes += nic.read_bytes;
	printf("wakeups=%llu read_bytes=%llu\n", (unsigned long long)c.wakeups, (unsigned long long)read_bytes);
	check_leave(agent);
	return 0;
}
