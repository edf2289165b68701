/* SPDX-License-Identifier: BSD-3-Clause */
/** Threads that connect: how many, and how one that the kernel holds is given up. The test's thread. */
#include "verbs_conns.h"

/* 32 wanted at once: never more threads than are allowed, and all are made. */
Test(verbs_rc_pool, many_at_once)
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

Test(verbs_rc_pool, held_up)
{
	each_kind(held_up);
}
