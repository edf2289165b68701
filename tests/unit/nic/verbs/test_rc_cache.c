/* SPDX-License-Identifier: BSD-3-Clause */
/** The cache of connections: which is closed for another one, and what becomes of its packets. The test's thread. */
#include "verbs_conns.h"

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

Test(verbs_rc_cache, five_peers_two_connections)
{
	each_kind(five_peers);
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

Test(verbs_rc_cache, evicted_before_use)
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

Test(verbs_rc_cache, the_other_takes_over)
{
	each_kind(the_other_takes_over);
}

/* ---- the cache alone: of a port whose threads do nothing, by a clock of the test's own ---- */

static struct verbs_port *p;
static struct verbs_queue *q;

static void open_cache(const char *args)
{
	p = open_one(args);
	q = p->queues[0];
}

Test(verbs_rc_cache, remote_queues)
{
	open_cache(RC);
	struct verbs_remote *r = verbs_remote_find(q, 5, 7), *other = verbs_remote_find(q, 7, 5);
	cr_assert(r && other && r != other, "of one bucket, and of another name");
	cr_assert_eq(verbs_remote_find(q, 5, 7), r);
	cr_assert_eq(p->rc->unreferenced, 2u);
	cr_assert_eq(verbs_remote_get(q, 5, 7), r);
	cr_assert_eq(verbs_remote_get(q, 5, 7), r);
	cr_assert(r->refs == 2 && p->rc->unreferenced == 1);
	verbs_remotes_sweep(p);
	cr_assert(p->rc->unreferenced == 0 && verbs_remote_find(q, 5, 7) == r);
	verbs_remote_put(q, r);
	verbs_remotes_sweep(p);
	cr_assert_eq(verbs_remote_find(q, 5, 7), r, "it has a user");
	verbs_remote_put(q, r);
	cr_assert_eq(p->rc->unreferenced, 1u);
	/* Mail that is on its way keeps it. */
	verbs_mail_push(&q->rc->to_poller, &r->to_poller);
	verbs_remotes_sweep(p);
	cr_assert_eq(p->rc->unreferenced, 1u);
	verbs_mail_take(&q->rc->to_poller);
	verbs_mail_clear(&r->to_poller);
	verbs_remotes_sweep(p);
	cr_assert_eq(p->rc->unreferenced, 0u);
	close_all();
}

/* Failures are waited after, twice as long each time, up to a bound. */
Test(verbs_rc_cache, gives_up)
{
	open_cache(RC);
	struct verbs_remote *r = verbs_remote_get(q, 5, 7);
	uint64_t expected = VERBS_RECONNECT_NS;
	for (unsigned i = 0; i < 12; i++) {
		verbs_remote_give_up(r, 1000);
		cr_assert(r->gave_up && r->to_poller.queued, "the poller drops what waits");
		cr_assert_eq(r->retry_at, 1000 + expected);
		expected = 2 * expected < VERBS_RECONNECT_NS_MAX ? 2 * expected : VERBS_RECONNECT_NS_MAX;
	}
	cr_assert_eq(expected, VERBS_RECONNECT_NS_MAX);
	verbs_mail_take(&q->rc->to_poller);
	verbs_mail_clear(&r->to_poller);
	/* A peer that was busy is tried again soon, at a time that differs each time; asked for once. */
	uint64_t before = 0;
	unsigned same = 0;
	for (unsigned i = 0; i < 20; i++) {
		verbs_remote_retry(r, 1000);
		cr_assert(r->retry_at >= 1000 + VERBS_RECONNECT_NS / 2 && r->retry_at < 1000 + 2 * VERBS_RECONNECT_NS);
		same += r->retry_at == before;
		before = r->retry_at;
	}
	cr_assert_lt(same, 5u);
	cr_assert(q->rc->wanted_first == r && !r->next_wanted && r->wanted);
	q->rc->wanted_first = NULL;
	q->rc->wanted_last = &q->rc->wanted_first;
	r->wanted = false;
	verbs_remote_put(q, r);
	close_all();
}

/* As if it were set up at this time and last used then. */
static struct verbs_conn *conn_up(uint64_t up_at, uint32_t used)
{
	uint64_t next = UINT64_MAX;
	struct verbs_conn *c = verbs_conn_new(q, verbs_remote_find(q, 100 + (uint32_t)up_at, used), 0, &next);
	if (!c)
		return NULL;
	cr_assert(c->live && !c->active && !c->ending && c->deadline == VERBS_CONNECT_NS);
	c->state = CONN_UP;
	c->deadline = 0;
	c->remote->ups++;
	c->up_at = up_at;
	atomic_store(&c->used, used);
	return c;
}

/* The least recently used one is closed, counts of flushes wrap around, and each is kept for a while. */
Test(verbs_rc_cache, least_recently_used)
{
	open_cache(RC ",connections=3");
	atomic_store(&q->rc->tick, 10);
	struct verbs_conn *a = conn_up(0, UINT32_MAX - 5), *b = conn_up(1, UINT32_MAX - 9), *c = conn_up(2, 9);
	uint64_t next = UINT64_MAX;
	struct verbs_remote *r = verbs_remote_find(q, 1, 1);
	cr_assert(a && b && c && q->rc->live == 3);
	cr_assert_null(verbs_conn_new(q, r, 10, &next));
	cr_assert_eq(next, VERBS_KEEP_NS, "none may be closed yet");
	struct verbs_conn *d = verbs_conn_new(q, r, VERBS_KEEP_NS + 2, &next);
	cr_assert(d && q->rc->live == 3);
	cr_assert(b->ending && !a->ending && !c->ending);
	cr_assert_eq(p->rc->conns_n, 4u, "one that is being closed is beyond the limit");
	d->remote->conns--; /* it was not begun */
	d->state = CONN_FREE;
	d->live = false;
	q->rc->live--;
	p->rc->conns_n--;
	verbs_conn_end(a, 0, 1);
	verbs_conn_end(c, 0, 1);
	cr_assert_eq(q->rc->live, 0u);
	for (unsigned i = 0; i < PATIENCE && p->rc->conns_n; i++)
		turn();
	cr_assert_eq(p->rc->conns_n, 0u);
	close_all();
}
