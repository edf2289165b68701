/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Calls over a network that loses, delays, repeats, reorders and damages 1 % of its packets each: whatever is called,
 * all bytes of its arguments and of its result are the right ones, no function runs twice, one-way messages arrive
 * once, and every call ends by its deadline. Two workers call each other from several threads, with handlers of all
 * kinds, payloads of 0 bytes to 8 MiB, lists, tensors, cancels, tiny deadlines and repeats, until so many bytes were
 * carried.
 *
 *   api_lossy [--over DRIVER] [--args ARGS] [--bytes N[m|g]] [--seed N] [--chance P] [--packet BYTES] [--nic NIC]
 *             [--member LISTEN]
 *
 * By default 64m over udp at 1%, seed 1, in packets as large as they may be; --args are the driver's own; --nic is nic=
 * as it is, instead of --over, --args, --chance and --packet. With --member it starts nobody: it is the worker that the
 * environment names, and is reached at LISTEN (far_opts.listen; "-": anywhere).
 */
#include "api_lossy.h"

#include <time.h>

enum { THREADS = 3, LARGEST = 8 << 20, GROUP = 6, TENSOR = 5000 };

/* A call without another one ends well, so this is only reached by what does not; the hang guard is longer. */
#define DEADLINE_NS (40 * FAR_SEC)
#define GRACE_NS    (15 * FAR_SEC)

static const char *over = "udp", *lower_args, *chance = "1%", *packet = "65535", *nic, *member;
static uint64_t seed = 1, bytes_wanted = UINT64_C(64) << 20;
static struct far_agent *agent;
static int other;
static _Atomic int64_t bytes_left;
static _Atomic uint32_t next_id, next_note;
static _Atomic uint64_t calls_n, otherwise_n, bytes_n;

struct client {
	pthread_t thread;
	uint64_t random;
	uint8_t *bytes; /* LARGEST for each of GROUP calls */
};

struct op {
	const char *function;
	int64_t id;
	struct far_call_opts opts;
	struct far_val args[2], items[3];
	size_t args_n, len;
	uint8_t *bytes;
	double total;
	bool tiny, cancelled, list, tensor, hang;
};

static uint32_t draw(uint64_t *state, uint32_t n)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33) % n;
}

/* Most are small, most bytes are in large ones; around the sizes at which packets and messages are cut. */
static size_t draw_len(uint64_t *r)
{
	static const size_t around[] = {0, 32, 64, 1400, 4096, 8192, 65536};
	uint32_t kind = draw(r, 256);
	size_t base = around[draw(r, 7)];
	if (kind == 0)
		return LARGEST - draw(r, 2) * draw(r, 3 << 20);
	if (kind < 6)
		return draw(r, 1 << 20);
	if (kind < 40)
		return draw(r, 70000);
	if (kind < 100)
		return draw(r, 3000);
	return base / (1 + draw(r, 2)) + draw(r, 3);
}

/* ---- calls ---- */

static void make_tensor(struct op *op, uint64_t *r)
{
	double *x = (double *)(void *)op->bytes;
	uint64_t count = draw(r, TENSOR) + 1;
	op->tensor = true;
	op->function = "l::total";
	op->len = count * sizeof *x;
	for (uint64_t i = 0; i < count; i++) {
		x[i] = (double)draw(r, 1000);
		op->total += x[i];
	}
	struct far_tensor t = far_tensor_1d(FAR_F64, x, count);
	op->args[1] = far_tensor_val(&t);
}

static void make_list(struct op *op)
{
	op->list = true;
	op->function = "l::list";
	op->items[0] = far_int(op->id);
	op->items[1] = far_str("a text that does not fit a line of its own");
	op->items[2] = op->args[1];
	op->args[1] = far_list(op->items, 3);
}

static void op_make(struct client *c, struct op *op, unsigned place)
{
	static const char *const kinds[] = {"l::inline", "l::fiber", "l::blocking", "l::later"};
	uint64_t *r = &c->random;
	*op = (struct op){.args_n = 2, .id = atomic_fetch_add(&next_id, 1), .len = draw_len(r)};
	CHECK(op->id < IDS);
	op->bytes = c->bytes + (size_t)place * LARGEST;
	op->tiny = draw(r, 12) == 0;
	op->opts.timeout_ns = op->tiny ? 1 + draw(r, 3000000) : DEADLINE_NS;
	op->opts.retry = op->len < 100000 && draw(r, 4) == 0;
	op->opts.retry_after_ns = 1 + draw(r, 2000000);
	pattern_fill(op->bytes, 0, op->len, (uint64_t)op->id);
	op->function = kinds[draw(r, 4)];
	op->args[0] = far_int(op->id);
	op->args[1] = far_bytes(op->bytes, op->len);
	switch (draw(r, 16)) {
	case 0:
		make_list(op);
		break;
	case 1:
		make_tensor(op, r);
		break;
	case 2:
		op->hang = true;
		op->function = "l::hang";
		op->args_n = 1;
		op->len = 0;
		break;
	}
}

static void check_result(const struct op *op, const struct far_val *v)
{
	CHECK(!op->hang);
	if (op->tensor) {
		CHECK(v->type == FAR_TYPE_FLOAT && v->u.f == op->total);
		return;
	}
	if (op->list) {
		CHECK(v->type == FAR_TYPE_LIST && far_len(v) == 3 && far_list_get(v, 0)->u.i == op->id);
		v = far_list_get(v, 2);
	}
	CHECK(v->type == FAR_TYPE_BYTES && v->u.s.len == op->len);
	CHECK(pattern_holds(v->u.s.data, v->u.s.len, (uint64_t)op->id));
}

static void check_end(const struct op *op, enum far_status status, const struct far_val *v, const struct far_err *e)
{
	alarm(HANG_GUARD_S); /* of one call, not of all */
	if (!status) {
		uint64_t carried = op->tensor ? op->len : 2 * op->len;
		check_result(op, v);
		atomic_fetch_add(&calls_n, 1);
		atomic_fetch_add(&bytes_n, carried);
		atomic_fetch_sub(&bytes_left, (int64_t)carried);
		return;
	}
	bool ok = status == FAR_BUSY || (op->tiny && (status == FAR_TIMEOUT || status == FAR_CANCELLED)) ||
		  (op->cancelled && status == FAR_CANCELLED);
	if (!ok) {
		fprintf(stderr, "%s, %zu bytes: ", op->function, op->len);
		far_err_print(stderr, e);
		_exit(1);
	}
	atomic_fetch_add(&otherwise_n, 1);
}

static struct far_future *start(struct client *c, struct op *op, unsigned place)
{
	struct far_future *f = NULL;
	struct far_err e;
	op_make(c, op, place);
	enum far_status status = far_rpc_async_to(agent, (struct far_to){other, -1}, op->function, op->args, op->args_n,
						  &op->opts, &f, &e);
	if (status)
		check_end(op, status, NULL, &e);
	return f;
}

/* It ends by its deadline, without a wait for the future. */
static void finish(const struct op *op, struct far_future *f)
{
	struct far_val out = {0};
	struct far_err e;
	enum far_status status = far_future_wait(f, op->opts.timeout_ns + GRACE_NS, &out, &e);
	if (status == FAR_PENDING) {
		fprintf(stderr, "%s, %zu bytes: still pending %d s after its deadline\n", op->function, op->len,
			(int)(GRACE_NS / FAR_SEC));
		_exit(1);
	}
	check_end(op, status, &out, &e);
	far_val_fini(&out);
	far_future_free(f);
}

static void one_sync(struct client *c)
{
	struct op op;
	struct far_val out = {0};
	struct far_err e;
	op_make(c, &op, 0);
	if (op.hang && !op.tiny) {
		op.tiny = true;
		op.opts.timeout_ns = 1 + draw(&c->random, 3000000);
	}
	enum far_status status =
		far_rpc_sync_to(agent, (struct far_to){other, -1}, op.function, op.args, op.args_n, &op.opts, &out, &e);
	check_end(&op, status, &out, &e);
	far_val_fini(&out);
}

/* Several at once; some are cancelled. */
static void group(struct client *c)
{
	struct op ops[GROUP];
	struct far_future *f[GROUP];
	struct far_err e;
	unsigned n = 0;
	for (unsigned i = 0; i < GROUP; i++)
		if ((f[n] = start(c, &ops[n], n)))
			n++;
	if (draw(&c->random, 2))
		usleep(draw(&c->random, 2000));
	for (unsigned i = 0; i < n; i++)
		if (ops[i].hang || draw(&c->random, 8) == 0) {
			ops[i].cancelled = true;
			CHECK_STATUS(far_future_cancel(f[i], &e), FAR_OK, &e);
		}
	for (unsigned i = 0; i < n; i++)
		finish(&ops[i], f[i]);
}

/* A one-way message; back-pressure is waited out, for the hang guard at most. */
static void post(struct client *c)
{
	uint64_t id = atomic_fetch_add(&next_note, 1);
	size_t len = 8 + draw_len(&c->random) % 20000;
	enum far_status status;
	struct far_err e;
	CHECK(id < IDS);
	memcpy(c->bytes, &id, sizeof id);
	pattern_fill(c->bytes + 8, 0, len - 8, id);
	while ((status = far_msg_oneway(agent, (struct far_to){other, -1}, NOTE, c->bytes, len, NULL, &e)) == FAR_BUSY)
		usleep(100);
	CHECK_STATUS(status, FAR_OK, &e);
	atomic_fetch_add(&bytes_n, len);
	atomic_fetch_sub(&bytes_left, (int64_t)len);
}

static void *client_main(void *arg)
{
	struct client *c = arg;
	while (atomic_load(&bytes_left) > 0) {
		switch (draw(&c->random, 8)) {
		case 0:
		case 1:
			group(c);
			break;
		case 2:
		case 3:
			post(c);
			break;
		default:
			one_sync(c);
		}
	}
	return NULL;
}

/* ---- a worker ---- */

static const char *nic_text(int rank)
{
	static char text[512];
	if (nic)
		return nic;
	int n = snprintf(text, sizeof text,
			 "lossy:over=%s,drop=%s,duplicate=%s,delay=%s:2ms,reorder=%s,corrupt=%s,bytes=%s,seed=%" PRIu64
			 "%s%s",
			 over, chance, chance, chance, chance, chance, packet, seed + (uint64_t)rank,
			 lower_args ? ",args=" : "", lower_args ? lower_args : "");
	CHECK(n > 0 && (size_t)n < sizeof text);
	return text;
}

/* All one-way messages have come; the hang guard bounds it. */
static void all_noted(void)
{
	struct far_val out = {0};
	struct far_err e;
	do {
		CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){other, -1}, "l::noted", NULL, 0, NULL, &out, &e),
			     FAR_OK, &e);
		if (out.u.i < atomic_load(&next_note))
			usleep(1000);
	} while (out.u.i < atomic_load(&next_note));
	CHECK(out.u.i == atomic_load(&next_note));
}

/* The time that it took; without a driver that disturbs, nothing is checked. */
static void report(int rank)
{
	struct far_nic_stats sum = {0};
	struct far_err e;
	for (unsigned i = 0; i < far_nic_ports(agent); i++) {
		struct far_nic_stats s;
		CHECK_STATUS(far_nic_stats_read(agent, i, &s, &e), FAR_OK, &e);
		if (s.only_self)
			continue;
		sum.tx_packets += s.tx_packets;
		sum.tx_dropped += s.tx_dropped;
		sum.resent += s.resent;
		sum.duplicates += s.duplicates;
		sum.crc_errors += s.crc_errors;
		sum.rx_malformed += s.rx_malformed;
	}
	printf("worker %d: %" PRIu64 " calls with %.1f MiB intact, %" PRIu64 " cancelled, late or busy, %u one-ways; "
	       "%" PRIu64 " packets sent, %" PRIu64 " dropped, %" PRIu64 " resent, %" PRIu64 " duplicates, %" PRIu64
	       " damaged\n",
	       rank, atomic_load(&calls_n), (double)atomic_load(&bytes_n) / (1 << 20), atomic_load(&otherwise_n),
	       atomic_load(&next_note), sum.tx_packets, sum.tx_dropped, sum.resent, sum.duplicates,
	       sum.crc_errors + sum.rx_malformed);
	if (!nic && chance[0] != '0') {
		CHECK(sum.tx_dropped > 0 && sum.resent > 0);
		CHECK(sum.duplicates > 0 && sum.crc_errors + sum.rx_malformed > 0);
	}
}

static void run_clients(int rank)
{
	struct client clients[THREADS];
	for (int i = 0; i < THREADS; i++) {
		clients[i].random = seed * 1000003 + (uint64_t)(rank * THREADS + i) * 104729;
		clients[i].bytes = malloc((size_t)GROUP * LARGEST);
		CHECK(clients[i].bytes);
		CHECK(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]) == 0);
	}
	for (int i = 0; i < THREADS; i++) {
		CHECK(pthread_join(clients[i].thread, NULL) == 0);
		free(clients[i].bytes);
	}
}

static int worker(int rank)
{
	struct far_opts opts = {.functions = functions,
				.functions_n = sizeof functions / sizeof *functions,
				.messages = messages,
				.messages_n = 1,
				.nic = nic_text(rank),
				.fibers = 256,
				.security = member ? "none" : NULL,
				.listen = member && strcmp(member, "-") ? member : NULL,
				/* A process that gets no time for long is not lost. */
				.peer_limit_ns = 20 * FAR_SEC};
	pthread_t answerer;
	other = !rank;
	atomic_store(&bytes_left, (int64_t)(bytes_wanted / WORLD));
	CHECK(pthread_create(&answerer, NULL, answer_later, NULL) == 0);
	agent = check_join(&opts);
	run_clients(rank);
	all_noted();
	report(rank);
	check_leave(agent);
	pthread_mutex_lock(&later.lock);
	later.end = true;
	pthread_mutex_unlock(&later.lock);
	CHECK(pthread_join(answerer, NULL) == 0);
	fflush(stdout);
	return 0;
}

static bool read_bytes(const char *text, uint64_t *out)
{
	char *end;
	*out = strtoull(text, &end, 10);
	*out <<= *end == 'm' ? 20 : *end == 'g' ? 30 : 0;
	return end != text && (*end == 0 || end[1] == 0) && *out > 0;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;
		if (value && strcmp(argv[i], "--over") == 0)
			over = value;
		else if (value && strcmp(argv[i], "--chance") == 0)
			chance = value;
		else if (value && strcmp(argv[i], "--packet") == 0)
			packet = value;
		else if (value && strcmp(argv[i], "--nic") == 0)
			nic = value;
		else if (value && strcmp(argv[i], "--args") == 0)
			lower_args = value;
		else if (value && strcmp(argv[i], "--member") == 0)
			member = value;
		else if (value && strcmp(argv[i], "--seed") == 0)
			seed = strtoull(value, NULL, 10);
		else if (!value || strcmp(argv[i], "--bytes") != 0 || !read_bytes(value, &bytes_wanted)) {
			fprintf(stderr,
				"usage: %s [--over DRIVER] [--args ARGS] [--bytes N[m|g]] [--seed N] [--chance P] "
				"[--packet BYTES] [--nic NIC] [--member LISTEN]\n",
				argv[0]);
			return 2;
		}
	}
	if (member)
		return worker(check_rank());
	struct spawned s = spawn(WORLD, worker);
	int bad = spawn_wait(&s, -1);
	if (nic)
		printf("again: api_lossy --nic '%s'", nic);
	else
		printf("again: api_lossy --over %s%s%s --chance %s --packet %s", over, lower_args ? " --args " : "",
		       lower_args ? lower_args : "", chance, packet);
	printf(" --bytes %" PRIu64 " --seed %" PRIu64 "\n", bytes_wanted, seed);
	return bad;
}
