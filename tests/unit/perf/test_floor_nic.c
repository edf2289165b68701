/* SPDX-License-Identifier: BSD-3-Clause */
/** The floors over a NIC, over wires that lose, repeat, reorder and refuse: figures that are right, and an end.
 * The test's thread, and threads that it starts. */
#include "perf/floor_nic.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#define WIRE_SLOTS 1024u
#define NS         UINT64_C(400000000) /* several times FLOOR_NIC_LOST_NS, for a third of it too */
#define ROUNDS_MAX 50u

/* One way: packets are numbers. One writer, one reader. */
struct wire {
	_Atomic uint64_t written, read;
	uint64_t number[WIRE_SLOTS];
};

struct end {
	struct nic_queue queue;
	struct wire *out, *in;
	unsigned lose, swap, refuse, twice; /* one packet, or burst, in so many; 0: none */
	unsigned calls, sent;
	bool dead;
};

static struct wire wires[2];
static struct end client_end, server_end;
static struct floor_nic client, server;
static struct floor_shared *shared;
static pthread_t thread;

static bool every(unsigned one_in, unsigned i)
{
	return one_in && i % one_in == one_in - 1;
}

static bool full(const struct end *e)
{
	return atomic_load(&e->out->written) - atomic_load(&e->out->read) > WIRE_SLOTS - 2;
}

static void put(struct end *e, uint64_t number)
{
	uint64_t at = atomic_load(&e->out->written);
	e->out->number[at % WIRE_SLOTS] = number;
	atomic_store(&e->out->written, at + 1);
}

static unsigned tx(struct nic_queue *q, uint32_t peer, uint64_t first, unsigned n, unsigned bytes)
{
	struct end *e = (struct end *)q;
	cr_assert_eq(peer, 7);
	cr_assert_geq(bytes, 16);
	if (e->dead)
		return n;
	if (every(e->refuse, e->calls++))
		n /= 2;
	for (unsigned i = 0; i < n; i++) {
		if (full(e))
			return i;
		/* The second half overtakes the first. */
		uint64_t number = first + (every(e->swap, e->calls) ? (i + n / 2) % n : i);
		if (!every(e->lose, e->sent++))
			put(e, number);
		if (every(e->twice, e->sent))
			put(e, number);
	}
	return n;
}

static unsigned rx(struct nic_queue *q, unsigned max, uint64_t *last)
{
	struct end *e = (struct end *)q;
	uint64_t at = atomic_load(&e->in->read), there = atomic_load(&e->in->written);
	unsigned n = 0;
	for (; n < max && at < there; n++)
		*last = e->in->number[at++ % WIRE_SLOTS];
	atomic_store(&e->in->read, at);
	return n;
}

static const struct nic_raw_ops ops = {tx, rx};

static int idle(void *ctx)
{
	return 0;
}

static int serve(void *ctx, uint64_t mode)
{
	return floor_nic_serve(shared, &server, mode);
}

static void *server_main(void *arg)
{
	const struct floor_host host = {idle, serve, NULL};
	cr_expect_eq(floor_serve(shared, &host), 0);
	return NULL;
}

static void begin(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	cr_assert_neq(shared, MAP_FAILED);
	client_end = (struct end){.out = &wires[0], .in = &wires[1]};
	server_end = (struct end){.out = &wires[1], .in = &wires[0]};
	client = (struct floor_nic){
		.ops = &ops, .queue = &client_end.queue, .peer = 7, .bytes_max = 1000, .window = 100, .fd = -1};
	server = client;
	server.queue = &server_end.queue;
	cr_assert_eq(pthread_create(&thread, NULL, server_main, NULL), 0);
}

static void end(void)
{
	cr_expect_eq(floor_switch(shared, FLOOR_STOP), 0);
	pthread_join(thread, NULL);
}

TestSuite(floor_nic, .init = begin, .fini = end, .timeout = 60);

static struct hist h;

/* A thread that does not run for a while loses nothing. */
static void patient(void)
{
	client.lost_ns = UINT64_C(20000000000);
}

/* A rate, of packets or bytes. In the third of NS that one size of a burst has, a thread may not have run at all: then
 * there is another round. */
static void a_rate(const char *what, int (*measure)(uint64_t of, double *rate), uint64_t of)
{
	double rate = 0;
	for (unsigned rounds = 0; rounds < ROUNDS_MAX && rate == 0; rounds++)
		cr_assert_eq(measure(of, &rate), 0);
	cr_assert_gt(rate, 0, "%s %lu", what, (unsigned long)of);
}

static int bursts(uint64_t inflight, double *rate)
{
	return floor_nic_bursts(shared, &client, NS, (unsigned)inflight, rate);
}

static int stream(uint64_t size, double *bytes)
{
	return floor_nic_stream(shared, &client, NS, size, bytes);
}

static void all_of_them(void)
{
	hist_reset(&h);
	cr_assert_eq(floor_nic_ping(shared, &client, 10 * NS), 0);
	cr_assert_eq(floor_nic_rtt(shared, &client, NS, &h), 0);
	cr_assert_gt(h.count, 0);
	cr_assert_gt(hist_quantile(&h, 0.5), 0);
	for (unsigned inflight = 1; inflight <= 256; inflight *= 16) {
		a_rate("packets in flight:", bursts, inflight);
		cr_assert(client.burst > 0 && client.burst <= inflight && client.burst <= FLOOR_NIC_BURST);
	}
	for (uint64_t size = 1; size <= 1 << 20; size *= 1024)
		a_rate("bytes:", stream, size);
	cr_assert_eq(atomic_load(&shared->state.v) & 0xff, FLOOR_IDLE);
}

Test(floor_nic, over_a_good_wire_nothing_is_lost)
{
	patient();
	all_of_them();
	cr_assert_eq(client.lost, 0, "%lu", (unsigned long)client.lost);
}

Test(floor_nic, a_device_that_takes_half_loses_nothing)
{
	patient();
	client_end.refuse = 3;
	server_end.refuse = 2;
	all_of_them();
	cr_assert_eq(client.lost, 0, "%lu", (unsigned long)client.lost);
}

Test(floor_nic, what_is_reordered_is_not_lost)
{
	patient();
	server_end.swap = client_end.swap = 2;
	a_rate("packets in flight:", bursts, 64);
	cr_assert_eq(client.lost, 0, "%lu", (unsigned long)client.lost);
}

Test(floor_nic, losses_are_reported_and_end_nothing)
{
	client_end.lose = 97;
	server_end.lose = 131;
	all_of_them();
	cr_assert_gt(client.lost, 0);
}

/* Seldom: a network that gives back more than it is given has no rate. */
Test(floor_nic, what_comes_twice_is_no_harm)
{
	patient();
	client_end.twice = 10007;
	server_end.twice = 10009;
	all_of_them();
}

Test(floor_nic, a_floors_first_packet_may_come_twice)
{
	patient();
	client_end.twice = 1;
	for (unsigned i = 0; i < 200; i++)
		cr_assert_eq(floor_nic_ping(shared, &client, 10 * NS), 0, "ping %u", i);
}

Test(floor_nic, a_link_that_is_not_up_is_reported)
{
	client_end.dead = true;
	cr_assert_eq(floor_nic_ping(shared, &client, 10 * NS), -ETIMEDOUT);
	client_end.dead = false;
	cr_assert_eq(floor_nic_ping(shared, &client, 10 * NS), 0);
	cr_assert_eq(client.lost, 0, "%lu", (unsigned long)client.lost);
}

Test(floor_nic, a_server_without_an_answer_is_taken_for_dead)
{
	hist_reset(&h);
	server_end.dead = true;
	cr_assert_eq(floor_nic_rtt(shared, &client, NS, &h), -ETIMEDOUT);
	cr_assert_eq(h.count, 0);
	/* The floor was given up before its end: the server gets its stop message all the same. */
}
