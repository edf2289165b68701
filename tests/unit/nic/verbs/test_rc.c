/* SPDX-License-Identifier: BSD-3-Clause */
/** The verbs driver's connections over the fake device: making, ending, the cache, and what must not get lost of it.
 * The test's thread. */
#include "verbs_fixture.h"

#include "nic/verbs/rc.h"

#include <signal.h>

#define RC "fake0,gid=2,rc=1"

enum { PORTS_MAX = 6, PATIENCE = 20000 };

static struct verbs_port *ports[PORTS_MAX];
static unsigned ports_n;

static void turn_of(struct verbs_port *p)
{
	fixture_step(p);
	fixture_flush(p);
}

/* The control threads and the holders, in turn. */
static void turn(void)
{
	for (unsigned i = 0; i < ports_n; i++)
		turn_of(ports[i]);
	usleep(200);
}

static struct verbs_port *open_one(const char *args)
{
	ports[ports_n] = fixture_open(args, 1);
	return ports[ports_n++];
}

static void close_all(void)
{
	for (unsigned i = 0; i + 1 < ports_n; i++)
		verbs_port_ops.close(&ports[i]->base);
	fixture_close(ports[ports_n - 1]);
	ports_n = 0;
	cr_assert(fake_verbs.srqs == 0 && fake_cm.ids == 0 && fake_cm.channels == 0);
}

static unsigned live(const struct verbs_port *p)
{
	return p->queues[0]->rc->live;
}

/* Packet `number` is sent until it arrives, as a link would. */
static bool gets_there(struct verbs_port *from, uint32_t peer, struct verbs_port *to, uint64_t number)
{
	uint64_t got[16];
	for (unsigned i = 0; i < PATIENCE; i++) {
		if (i % 100 == 0)
			fixture_commit(from, peer, number, 100, 0);
		turn();
		for (unsigned k = 0, n = fixture_take(to, 0, got); k < n; k++)
			if (got[k] == number)
				return true;
		fixture_take(from, 0, got);
	}
	return false;
}

/* All kinds of device: who connects the pairs, whose the buffers are. */
static void each_kind(void (*test)(void))
{
	for (unsigned kind = 0; kind < 4; kind++) {
		fake_verbs_reset();
		memset(&fake_cm, 0, sizeof fake_cm);
		fake_verbs.transport = kind & 1 ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
		fake_verbs.limits.max_srq = kind & 2 ? 0 : 1000;
		test();
	}
}

static const char *args_of(const char *rest)
{
	static char text[64];
	snprintf(text, sizeof text, "fake0%s%s", fake_verbs.transport == IBV_TRANSPORT_IB ? ",gid=2,rc=1" : "", rest);
	return text;
}

/* ---- one connection ---- */

static void both_ways(void)
{
	struct nic_caps caps;
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	verbs_port_ops.caps(&a->base, &caps);
	cr_assert(!caps.reliable && !caps.connected && !caps.ordered && caps.wake);
	uint32_t to_b = fixture_dest(a, b, 0), to_a = fixture_dest(b, a, 0);
	cr_assert(gets_there(a, to_b, b, 1));
	cr_assert(gets_there(b, to_a, a, 2));
	cr_assert_eq(fake_cm.connects, 1, "the answer takes the same connection");
	cr_assert(live(a) == 1 && live(b) == 1);
	/* Full ones and empty ones; of bursts all are let go of. */
	uint64_t got[16];
	for (uint64_t round = 0; round < 100; round++) {
		cr_assert_eq(fixture_commit(a, to_b, round, a->mtu, 0), 0);
		for (unsigned i = 0; i < 15; i++)
			cr_assert_eq(fixture_commit(a, to_b, round, 30, 0), 0);
		fixture_flush(a);
		cr_assert_eq(fixture_take(b, 0, got), 16);
		cr_assert_eq(got[0], round);
	}
	turn();
	cr_assert_eq(a->queues[0]->tx_free_n, VERBS_TX_RING);
	cr_assert_eq(fixture_commit(a, to_b, 0, a->mtu + 1u, 0), -EMSGSIZE);
	/* The empty packet that begins a connection is nobody's; others are. */
	struct nic_tx tx;
	struct nic_pkt pkt;
	cr_assert_eq(verbs_rc_queue_ops.tx_reserve(&a->queues[0]->base, to_b, 0, &tx), 0);
	cr_assert_eq(verbs_rc_queue_ops.tx_commit(&a->queues[0]->base, &tx), 0);
	fixture_flush(a);
	cr_assert_eq(verbs_rc_queue_ops.recv(&b->queues[0]->base, &pkt, 1), 1);
	cr_assert(pkt.body_len == 0 && !pkt.body);
	close_all();
}

Test(verbs_rc, both_ways)
{
	each_kind(both_ways);
}

static int pipe_breaks(struct ibv_send_wr *wr)
{
	raise(SIGPIPE);
	return 0;
}

/* siw sends in the call, and its socket may be closed: who calls is not killed, and has no signal left over. */
Test(verbs_rc, broken_pipe)
{
	sigset_t set;
	fake_verbs.transport = IBV_TRANSPORT_IWARP;
	fake_verbs.limits.vendor_id = VERBS_VENDOR_SIW;
	struct verbs_port *a = open_one("fake0"), *b = open_one("fake0");
	uint32_t to = fixture_dest(a, b, 0);
	fake_verbs.post_send = pipe_breaks;
	cr_assert(gets_there(a, to, b, 1));
	fake_verbs.post_send = NULL;
	sigpending(&set);
	cr_assert(!sigismember(&set, SIGPIPE));
	pthread_sigmask(SIG_BLOCK, NULL, &set);
	cr_assert(!sigismember(&set, SIGPIPE));
	close_all();
}

static void self(void)
{
	struct verbs_port *a = open_one(args_of(",connections=2"));
	uint32_t to = fixture_dest(a, a, 0);
	for (uint64_t i = 0; i < 10; i++)
		cr_assert(gets_there(a, to, a, i));
	close_all();
}

Test(verbs_rc, to_oneself)
{
	each_kind(self);
}

/* Both ends begin at once: all arrives, by one connection, or by two where both were ready before that was seen. */
static void crossed(void)
{
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to_b = fixture_dest(a, b, 0), to_a = fixture_dest(b, a, 0);
	uint64_t got[16];
	unsigned at_a = 0, at_b = 0;
	fixture_commit(a, to_b, 1, 100, 0);
	fixture_commit(b, to_a, 2, 100, 0);
	for (unsigned i = 0; i < PATIENCE && !(at_a && at_b); i++) {
		turn();
		at_b += fixture_take(b, 0, got);
		at_a += fixture_take(a, 0, got);
	}
	cr_assert(at_a == 1 && at_b == 1);
	cr_assert(live(a) >= 1 && live(a) <= 2 && live(b) >= 1 && live(b) <= 2);
	close_all();
}

Test(verbs_rc, crossed)
{
	each_kind(crossed);
}

/* ---- the cache ---- */

static void five_peers(void)
{
	uint32_t to[PORTS_MAX][PORTS_MAX];
	for (unsigned i = 0; i < PORTS_MAX; i++)
		open_one(args_of(",connections=2"));
	for (unsigned i = 0; i < PORTS_MAX; i++)
		for (unsigned k = 0; k < PORTS_MAX; k++)
			to[i][k] = i == k ? 0 : fixture_dest(ports[i], ports[k], 0);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned k = 1; k < PORTS_MAX; k++) {
			/* Packets are under way to all others while this one is reached. */
			for (unsigned other = 1; other < PORTS_MAX; other++)
				fixture_commit(ports[0], to[0][other], 1000, 100, 0);
			cr_assert(gets_there(ports[0], to[0][k], ports[k], 10 * round + k), "to %u", k);
			cr_assert(gets_there(ports[k], to[k][0], ports[0], 100 + k), "back from %u", k);
			for (unsigned i = 0; i < PORTS_MAX; i++)
				cr_assert_leq(live(ports[i]), 2);
		}
	cr_assert_gt(fake_cm.connects, 5, "some were closed and made again");
	/* What waits no more, and is closed, gives all packets back. */
	for (unsigned i = 0; i < PATIENCE && ports[0]->queues[0]->tx_free_n < VERBS_TX_RING; i++)
		turn();
	cr_assert_eq(ports[0]->queues[0]->tx_free_n, VERBS_TX_RING);
	close_all();
}

Test(verbs_rc, five_peers_two_connections)
{
	each_kind(five_peers);
}

/* 32 wanted at once: never more threads than are allowed, and all are made. */
Test(verbs_rc, many_at_once)
{
	enum { N = 32 };
	uint32_t to[N];
	bool there[N] = {0};
	uint64_t got[16];
	const struct nic_config config = {.queues = N / 2, .args = RC};
	fake_verbs.limits.max_qp = fake_verbs.limits.max_cq = 10000;
	struct verbs_port *a = fixture_open(RC, 2);
	struct nic_port *port;
	cr_assert_eq(verbs_port_ops.open(&config, &port, &err), 0, "%s", err.text);
	struct verbs_port *b = (struct verbs_port *)port;
	struct nic_addr addr;
	verbs_port_ops.address(&b->base, &addr);
	for (unsigned i = 0; i < N; i++) {
		cr_assert_eq(verbs_port_ops.connect(&a->base,
						    &(struct nic_connect){i % 2, &addr, i / 2, NULL, 0, 0, NULL}, &err),
			     0);
		cr_assert(fixture_until(a, &ups, ups + 1));
		cr_assert_eq(verbs_rc_queue_ops.attach(&a->queues[i % 2]->base, last_up), 0);
		to[i] = last_up;
	}
	fake_cm.connect_delay_ms = 30;
	for (unsigned i = 0; i < N; i++) {
		struct nic_tx tx;
		uint64_t number = i;
		cr_assert_eq(verbs_rc_queue_ops.tx_reserve(&a->queues[i % 2]->base, to[i], sizeof number, &tx), 0);
		memcpy(tx.body, &number, sizeof number);
		verbs_rc_queue_ops.tx_commit(&a->queues[i % 2]->base, &tx);
	}
	unsigned n = 0;
	for (unsigned i = 0; i < PATIENCE && n < N; i++) {
		fixture_step(a);
		fixture_step(b);
		verbs_rc_queue_ops.flush(&a->queues[0]->base);
		verbs_rc_queue_ops.flush(&a->queues[1]->base);
		for (unsigned q = 0; q < N / 2; q++)
			for (unsigned k = 0, m = fixture_take(b, q, got); k < m; k++) {
				cr_assert(got[k] < N && !there[got[k]]);
				there[got[k]] = true;
				n++;
			}
		usleep(200);
	}
	cr_assert_eq(n, N);
	cr_assert(fake_cm.connects == N && fake_cm.connecting_most <= VERBS_CONNECTORS_MAX);
	cr_assert_gt(fake_cm.connecting_most, 1);
	verbs_port_ops.close(&a->base);
	fixture_close(b);
}

/* ---- what fails ---- */

/* All threads are held by the kernel, and more wait for one: given up, they are let go of, and others connect. */
static void held_up(void)
{
	enum { N = VERBS_CONNECTORS_MAX + 2 };
	struct verbs_port *a = open_one(args_of("")), *b = fixture_open(args_of(""), N);
	ports[ports_n++] = b;
	struct verbs_conn *conns = a->queues[0]->rc->conns;
	uint32_t to[N];
	uint64_t got[16];
	for (unsigned i = 0; i < N; i++)
		to[i] = fixture_dest(a, b, i);
	fake_cm.connect_delay_ms = 600000;
	for (unsigned i = 0; i < N; i++)
		fixture_commit(a, to[i], i, 100, 0);
	for (unsigned i = 0; i < PATIENCE && (fake_cm.connecting < VERBS_CONNECTORS_MAX || live(a) < N); i++)
		turn();
	cr_assert(fake_cm.connecting == VERBS_CONNECTORS_MAX && live(a) == N);
	for (unsigned i = 0; i < N; i++)
		conns[i].deadline = 1; /* their time is over at once */
	for (unsigned i = 0; i < PATIENCE && a->rc->conns_n; i++) {
		turn();
		fixture_take(a, 0, got);
	}
	cr_assert(a->rc->conns_n == 0 && fake_cm.connecting == 0);
	cr_assert_eq(fixture_stats(a).tx_dropped, N);
	fake_cm.connect_delay_ms = 0;
	for (unsigned i = 0, n = 0; i < N; i++, n = 0) {
		for (unsigned k = 0; k < PATIENCE && !n; k++) {
			if (k % 100 == 0)
				fixture_commit(a, to[i], 10 + i, 100, 0);
			turn();
			fixture_take(a, 0, got);
			n = fixture_take(b, i, got);
		}
		cr_assert(n && got[0] == 10 + i, "%u", i);
	}
	/* The port is closed while one is held. */
	fake_cm.connect_delay_ms = 600000;
	fake_verbs_break_all(IBV_QPT_RC);
	for (unsigned i = 0; i < PATIENCE && !fake_cm.connecting; i++) {
		fixture_commit(a, to[0], 1, 100, 0);
		turn();
		fixture_take(a, 0, got);
	}
	cr_assert_eq(fake_cm.connecting, 1);
	close_all();
	cr_assert_eq(fake_cm.connecting, 0);
}

Test(verbs_rc, held_up)
{
	each_kind(held_up);
}

/* A queue that does nothing but send still takes the packets of its broken connections back. */
static void only_flushes(void)
{
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to = fixture_dest(a, b, 0);
	cr_assert(gets_there(a, to, b, 1));
	fake_verbs_break_all(IBV_QPT_RC);
	for (unsigned i = 0; i < VERBS_TX_RING; i++)
		cr_assert_eq(fixture_commit(a, to, i, 100, 0), 0);
	for (unsigned i = 0; i < 500; i++)
		turn(); /* nobody receives at `a` */
	cr_assert_eq(a->queues[0]->tx_free_n, VERBS_TX_RING);
	cr_assert(gets_there(a, to, b, 2));
	for (unsigned i = 0; i < PATIENCE && a->queues[0]->tx_free_n < VERBS_TX_RING; i++)
		turn();
	cr_assert_eq(a->queues[0]->tx_free_n, VERBS_TX_RING);
	close_all();
}

Test(verbs_rc, only_flushes)
{
	each_kind(only_flushes);
}

/* A failure drops what waits; later packets start another attempt. */
static void fails_then_works(void)
{
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to = fixture_dest(a, b, 0);
	for (unsigned how = 0; how < 4; how++) {
		uint64_t dropped = fixture_stats(a).tx_dropped;
		fake_cm.addr_error = how == 0;
		fake_cm.connect_error = how == 1 ? ECONNREFUSED : 0;
		fake_verbs.qp_error = how == 2 ? ENOMEM : 0;
		fake_cm.silent = how == 3;
		fixture_commit(a, to, 1, 100, 0);
		if (how == 3) { /* its time is over at once */
			for (unsigned i = 0; i < PATIENCE && !fake_cm.connects; i++)
				turn();
			for (unsigned i = 0; i < a->queues[0]->rc->conns_n; i++)
				if (a->queues[0]->rc->conns[i].deadline)
					a->queues[0]->rc->conns[i].deadline = 1;
		}
		for (unsigned i = 0; i < PATIENCE && fixture_stats(a).tx_dropped == dropped; i++)
			turn();
		cr_assert_eq(fixture_stats(a).tx_dropped, dropped + 1, "%u", how);
		fake_cm.addr_error = fake_cm.silent = false;
		fake_cm.connect_error = fake_verbs.qp_error = 0;
		cr_assert(gets_there(a, to, b, 2), "%u", how);
		/* Both ends are broken; the next round begins anew. */
		fake_verbs_break_all(IBV_QPT_RC);
		uint64_t got[16];
		for (unsigned i = 0; i < PATIENCE && (a->rc->conns_n || b->rc->conns_n); i++) {
			if (i == 0) {
				fixture_commit(a, to, 3, 100, 0);
				a->queues[0]->rc->bound = 0; /* not to be made again meanwhile */
			}
			turn();
			fixture_take(a, 0, got);
			fixture_take(b, 0, got);
		}
		a->queues[0]->rc->bound = VERBS_CONNS;
		cr_assert(a->rc->conns_n == 0 && b->rc->conns_n == 0);
		cr_assert(gets_there(a, to, b, 4), "%u", how);
		fake_verbs_break_all(IBV_QPT_RC);
		fixture_commit(a, to, 3, 100, 0);
		a->queues[0]->rc->bound = 0;
		for (unsigned i = 0; i < PATIENCE && (a->rc->conns_n || a->queues[0]->rc->wanted_first); i++) {
			turn();
			fixture_take(a, 0, got);
			fixture_take(b, 0, got);
		}
		a->queues[0]->rc->bound = VERBS_CONNS;
		fake_cm.connects = 0;
	}
	close_all();
}

Test(verbs_rc, asked_for_again)
{
	each_kind(fails_then_works);
}

/* A connection ends as soon as it is made. Packets that wait for it start another attempt, without a further commit.
 */
static void evicted_before_use(void)
{
	uint64_t got[16] = {0};
	unsigned n = 0;
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to = fixture_dest(a, b, 0);
	struct verbs_queue *q = a->queues[0];
	fixture_commit(a, to, 7, 100, 0);
	/* The holder of `a` looks at nothing while it is made, and ended. */
	for (unsigned i = 0; i < PATIENCE && q->rc->conns[0].state != CONN_UP; i++, usleep(200)) {
		fixture_step(a);
		turn_of(b);
	}
	cr_assert_eq(q->rc->conns[0].state, CONN_UP);
	verbs_conn_end(&q->rc->conns[0], 0, verbs_now());
	for (unsigned i = 0; i < PATIENCE && !n; i++) {
		turn();
		fixture_take(a, 0, got);
		n = fixture_take(b, 0, got);
	}
	cr_assert(n == 1 && got[0] == 7);
	cr_assert_eq(fake_cm.connects, 2);
	close_all();
}

Test(verbs_rc, evicted_before_use)
{
	each_kind(evicted_before_use);
}

/* Of two to the same queue the newer is used; when that goes, so is the other, and none is made. */
static void the_other_takes_over(void)
{
	uint64_t next = UINT64_MAX;
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to_b = fixture_dest(a, b, 0), to_a = fixture_dest(b, a, 0);
	cr_assert(gets_there(a, to_b, b, 1));
	struct verbs_remote *r = a->dests[to_b]->remote;
	struct verbs_conn *second = verbs_conn_new(a->queues[0], r, verbs_now(), &next);
	r->connecting = second;
	cr_assert_eq(verbs_conn_connect(second, verbs_now()), 0);
	for (unsigned i = 0; i < PATIENCE && (r->ups < 2 || r->conn != second); i++)
		turn();
	cr_assert(r->ups == 2 && r->conn == second);
	cr_assert(gets_there(a, to_b, b, 2) && gets_there(b, to_a, a, 3));
	verbs_conn_end(second, 0, verbs_now());
	cr_assert(gets_there(a, to_b, b, 4) && gets_there(b, to_a, a, 5));
	cr_assert(r->ups == 1 && r->conn && r->conn != second && fake_cm.connects == 2);
	close_all();
}

Test(verbs_rc, the_other_takes_over)
{
	each_kind(the_other_takes_over);
}

/* A holder that has no more to send only receives: what waits leaves all the same. */
static void only_receives(void)
{
	uint64_t got[16] = {0};
	unsigned n = 0;
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to = fixture_dest(a, b, 0);
	fixture_commit(a, to, 8, 100, 0);
	fixture_flush(a);
	for (unsigned i = 0; i < PATIENCE && !n; i++, usleep(200)) {
		fixture_step(a);
		fixture_take(a, 0, got);
		fixture_step(b);
		n = fixture_take(b, 0, got);
	}
	cr_assert(n == 1 && got[0] == 8);
	close_all();
}

Test(verbs_rc, only_receives)
{
	each_kind(only_receives);
}

/* Names are keys: who does not know them is refused, and words that cannot be are. */
Test(verbs_rc, unexpected_peers)
{
	struct verbs_port *a = open_one(RC), *b = open_one(RC);
	struct verbs_blob blob;
	struct nic_addr addr;
	uint64_t got[16];
	verbs_port_ops.address(&b->base, &addr);
	memcpy(&blob, addr.blob, sizeof blob);
	blob.queue[0].qkey ^= 1;
	memcpy(addr.blob, &blob, sizeof blob);
	cr_assert_eq(verbs_port_ops.connect(&a->base, &(struct nic_connect){0, &addr, 0, NULL, 0, 0, NULL}, &err), 0,
		     "%s", err.text);
	cr_assert(fixture_until(a, &ups, ups + 1));
	verbs_rc_queue_ops.attach(&a->queues[0]->base, last_up);
	fixture_commit(a, last_up, 1, 100, 0);
	for (unsigned i = 0; i < PATIENCE && !fixture_stats(a).tx_dropped; i++)
		turn();
	cr_assert(fixture_stats(a).tx_dropped == 1 && fake_cm.rejects == 1 && fake_cm.accepts == 0);
	cr_assert_eq(fixture_take(b, 0, got), 0);
	cr_assert(live(a) == 0 && live(b) == 0);
	/* Places that are gone leave nothing behind. */
	verbs_rc_queue_ops.detach(&a->queues[0]->base, last_up);
	verbs_port_ops.drop(&a->base, last_up);
	for (unsigned i = 0; i < PATIENCE && a->rc->unreferenced; i++)
		turn();
	cr_assert_eq(a->rc->unreferenced, 0);
	close_all();
}

/* The device goes while connections are used and made. */
static void removed(void)
{
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to = fixture_dest(a, b, 0);
	cr_assert(gets_there(a, to, b, 1));
	fixture_commit(a, to, 2, 100, 0);
	verbs_release_device(a);
	for (unsigned i = 0; i < PATIENCE && a->on.context; i++)
		turn();
	cr_assert(!a->on.context, "it was let go of");
	cr_assert_eq(a->queues[0]->tx_free_n, VERBS_TX_RING);
	cr_assert_eq(fixture_commit(a, to, 3, 100, 0), 0);
	struct nic_addr addr;
	verbs_port_ops.address(&b->base, &addr);
	cr_assert_eq(verbs_port_ops.reach(&a->base, &addr, &err), -ENODEV);
	close_all();
}

Test(verbs_rc, removed)
{
	each_kind(removed);
}

/* ---- what is refused ---- */

static void refused(const char *text, int error, const char *why, const char *remedy)
{
	const struct nic_config config = {.queues = 1, .args = text};
	struct nic_port *port;
	cr_assert_eq(verbs_port_ops.open(&config, &port, &err), error, "%s: %s", text, err.text);
	cr_assert(strstr(err.text, why) && strstr(err.text, remedy), "%s: %s", text, err.text);
	cr_assert(fake_verbs.contexts == 0 && fake_cm.ids == 0 && fake_cm.channels == 0);
}

Test(verbs_rc, refused)
{
	refused("fake0,connections=8", -EINVAL, "sends datagrams", "give rc=1");
	refused("fake0,rc=0,connections=8", -EINVAL, "sends datagrams", "give rc=1");
	refused("fake0,rc=2", -EINVAL, "rc=2", "1 for connections");
	refused("fake0,rc=1,connections=1", -EINVAL, "connections=1", "2 to 1024");
	fake_cm.channel_error = ENOENT;
	refused(RC, -ENOENT, "rdma_cm", "modprobe rdma_ucm");
	fake_cm.channel_error = 0;
	fake_cm.absent = true;
	refused(RC, -ENOENT, "no librdmacm", "");
	fake_cm.absent = false;
	fake_verbs.srq_error = ENOMEM;
	refused(RC, -ENOMEM, "shared receive queue", "rx_slots=");
	fake_verbs.srq_error = 0;
	fake_verbs.limits.max_qp = 10;
	refused("fake0,gid=2,rc=1,connections=11", -ENOSPC, "10 queue pairs", "smaller connections=");
	fake_verbs.limits.max_qp = 1000;
	fake_verbs.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	refused("fake0,rc=1", -EPROTONOSUPPORT, "is InfiniBand", "leave rc=1 out");
	fake_verbs.port.link_layer = IBV_LINK_LAYER_ETHERNET;
	fake_verbs.transport = IBV_TRANSPORT_IWARP;
	refused("fake0,rc=0", -EINVAL, "iWARP, which has no datagrams", "leave rc=0 out");
	refused("fake0,gid=1", -EINVAL, "whose addresses are not GIDs", "listen=");
}

/* Datagrams here and connections there do not go together. */
Test(verbs_rc, reach)
{
	struct nic_addr addr;
	char text[64], service[16];
	struct verbs_port *a = open_one(RC), *b = open_one("fake0,gid=2");
	verbs_port_ops.address(&b->base, &addr);
	cr_assert_eq(verbs_port_ops.reach(&a->base, &addr, &err), -EHOSTUNREACH);
	cr_assert(strstr(err.text, "give rc=1 on both"), "%s", err.text);
	verbs_port_ops.address(&a->base, &addr);
	cr_assert_eq(verbs_port_ops.reach(&b->base, &addr, &err), -EHOSTUNREACH);
	cr_assert_eq(verbs_port_ops.reach(&a->base, &addr, &err), 0);
	verbs_port_ops.address_text(&addr, text, sizeof text);
	snprintf(service, sizeof service, ":%u", a->rc->service);
	cr_assert(strstr(text, service), "%s", text);
	close_all();
}
