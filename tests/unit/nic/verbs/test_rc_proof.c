/* SPDX-License-Identifier: BSD-3-Clause */
/** Proofs of the group's key in the connections of the verbs driver, over the fake device: packets and bulk.
 * The test's thread. */
#include "verbs_fixture.h"

#include "nic/verbs/bulk.h"

#include <stdlib.h>

enum { PORTS_MAX = 4, PATIENCE = 20000, BYTES = 65536, REQUEST_BYTES = sizeof(struct verbs_connect_request) };

static struct verbs_port *ports[PORTS_MAX];
static unsigned ports_n;
static struct group_key ours, theirs;
static uint8_t *memory; /* the engine's */

static bool piece(const void *at, size_t len, void **base, size_t *bytes)
{
	*base = memory;
	*bytes = BYTES;
	return true;
}

/* key: NULL: security=none. */
static struct verbs_port *open_with(const struct group_key *key)
{
	char args[64];
	bool iwarp = fake_verbs.transport == IBV_TRANSPORT_IWARP, bulk = fake_verbs.limits.max_mw > 0;
	snprintf(args, sizeof args, "fake0%s", iwarp ? "" : bulk ? ",gid=2,bulk=65536" : ",gid=2,rc=1");
	const struct nic_config config = {.queues = 1, .args = args, .key = key, .memory_block = piece};
	struct nic_port *port = NULL;
	cr_assert_eq(verbs_port_ops.open(&config, &port, &err), 0, "%s", err.text);
	ports[ports_n] = (struct verbs_port *)port;
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

/* Connections of packets over RoCE and iWARP, and of bulk. */
static void each_kind(void (*test)(void))
{
	struct auth_key a = {{1}}, b = {{2}};
	for (unsigned kind = 0; kind < 3; kind++) {
		fake_verbs_reset();
		memset(&fake_cm, 0, sizeof fake_cm);
		memset(&ours, 0, sizeof ours);
		memset(&theirs, 0, sizeof theirs);
		group_key_set(&ours, &a, "g");
		group_key_set(&theirs, &b, "g");
		memory = aligned_alloc(4096, BYTES);
		memset(memory, 7, BYTES);
		fake_verbs.limits.max_srq = 1000;
		fake_verbs.transport = kind == 1 ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
		fake_verbs.limits.max_mw = kind == 2 ? 100000 : 0;
		fake_verbs.limits.max_qp_rd_atom = 16;
		fake_verbs.limits.device_cap_flags = kind == 2 ? IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0;
		test();
		free(memory);
	}
}

static void turn(void)
{
	uint64_t got[16];
	for (unsigned i = 0; i < ports_n; i++) {
		struct nic_pkt pkts[8];
		struct nic_queue *q = &ports[i]->queues[0]->base;
		fixture_step(ports[i]);
		fixture_flush(ports[i]);
		if (ports[i]->mems)
			q->ops->recv(q, pkts, 8);
		else
			fixture_take(ports[i], 0, got);
	}
	usleep(200);
}

/* Makes the holder want a connection: something is to be sent, or exposed. */
static void want(struct verbs_port *p, uint32_t peer)
{
	struct nic_queue *q = &p->queues[0]->base;
	struct nic_bulk_key key;
	uint32_t handle;
	if (p->mems)
		q->ops->bulk->expose(q, peer, memory, BYTES, 1, &handle, &key);
	else
		fixture_commit(p, peer, 1, 100, 0);
}

static unsigned ups_of(const struct verbs_port *p)
{
	unsigned n = 0;
	for (unsigned i = 0; i < p->queues[0]->rc->conns_n; i++)
		n += p->queues[0]->rc->conns[i].state == CONN_UP;
	return n;
}

static uint64_t refused(const struct verbs_port *p, enum verbs_refusal why)
{
	return p->rc->refused[why];
}

static bool connects(struct verbs_port *a, uint32_t to, struct verbs_port *b)
{
	for (unsigned i = 0; i < PATIENCE && !(ups_of(a) && ups_of(b)); i++) {
		if (i % 100 == 0)
			want(a, to);
		turn();
	}
	return ups_of(a) && ups_of(b);
}

/* Connects until `p` has refused one more for this reason; nothing comes up at `a`. */
static void is_refused(struct verbs_port *a, uint32_t to, struct verbs_port *p, enum verbs_refusal why)
{
	uint64_t before = refused(p, why), all = fixture_stats(p).refused, others = 0;
	for (unsigned i = 0; i < PATIENCE && refused(p, why) == before; i++) {
		if (i % 100 == 0)
			want(a, to);
		turn();
		cr_assert_eq(ups_of(a), 0);
	}
	for (unsigned i = 0; i < VERBS_REFUSALS; i++)
		others += refused(p, i);
	cr_assert_gt(refused(p, why), before, "reason %d", (int)why);
	cr_assert_gt(fixture_stats(p).refused, all);
	cr_assert_eq(fixture_stats(p).refused, others);
	for (unsigned i = 0; i < PATIENCE && (a->rc->conns_n || p->rc->conns_n || a->queues[0]->rc->wanted_first); i++)
		turn();
	cr_assert(a->rc->conns_n == 0 && p->rc->conns_n == 0 && ups_of(a) == 0);
}

/* ---- what the hook does to what is sent ---- */

static uint8_t seen[2][64], put[2][64]; /* by is_request */
static bool is_put[2];
static uint32_t seen_len[2];

static void hook(bool is_request, uint8_t *words, uint32_t *len)
{
	memcpy(seen[is_request], words, 56);
	seen_len[is_request] = *len;
	if (is_put[is_request])
		memcpy(words, put[is_request], 56);
}

static void hook_begin(void)
{
	memset(is_put, 0, sizeof is_put);
	memset(seen, 0, sizeof seen);
	memset(put, 0, sizeof put);
	fake_cm.spoil = hook;
}

static struct verbs_connect_request seen_request(void)
{
	struct verbs_connect_request w;
	memcpy(&w, seen[1], sizeof w);
	return w;
}

static void put_request(const struct verbs_connect_request *w)
{
	memcpy(put[1], w, sizeof *w);
	is_put[1] = true;
}

/* ---- tests ---- */

static void same_key(void)
{
	static const uint8_t none[AUTH_PROOF_BYTES];
	hook_begin();
	struct verbs_port *a = open_with(&ours), *b = open_with(&ours);
	cr_assert(connects(a, fixture_dest(a, b, 0), b));
	cr_assert(seen_len[1] == REQUEST_BYTES && seen_len[0] == sizeof(struct verbs_accept));
	cr_assert(memcmp(seen_request().proof, none, sizeof none) != 0);
	cr_assert(fixture_stats(a).refused == 0 && fixture_stats(b).refused == 0);
	cr_assert_eq(fake_cm.connects, 1);
	close_all();
	/* security=none: no proofs, and none looked at. */
	a = open_with(NULL);
	b = open_with(NULL);
	memset(put, 0xff, sizeof put);
	is_put[0] = true;
	cr_assert(connects(a, fixture_dest(a, b, 0), b));
	cr_assert(memcmp(seen_request().proof, none, sizeof none) == 0);
	close_all();
}

Test(verbs_rc_proof, same_key)
{
	each_kind(same_key);
}

/* Neither another key nor none opens a connection, towards either end. */
static void without_the_key(void)
{
	struct verbs_port *b = open_with(&ours), *none = open_with(NULL), *other = open_with(&theirs);
	is_refused(none, fixture_dest(none, b, 0), b, VERBS_REFUSED_PROOF);
	is_refused(other, fixture_dest(other, b, 0), b, VERBS_REFUSED_PROOF);
	cr_assert(other->rc->logged[VERBS_REFUSED_BY_PEER] && b->rc->logged[VERBS_REFUSED_PROOF]);
	/* One without a key takes the request, and cannot answer it. */
	is_refused(b, fixture_dest(b, none, 0), b, VERBS_REFUSED_ACCEPT);
	cr_assert(b->rc->logged[VERBS_REFUSED_ACCEPT]);
	close_all();
}

Test(verbs_rc_proof, without_the_key)
{
	each_kind(without_the_key);
}

/* A key that the group makes for itself: nobody is served before it is there. */
static void key_comes_late(void)
{
	struct group_key deferred = {.key = ours.key};
	struct verbs_port *a = open_with(&ours), *b = open_with(&deferred);
	uint32_t to = fixture_dest(a, b, 0);
	is_refused(a, to, b, VERBS_REFUSED_PROOF);
	atomic_store(&deferred.known, true);
	cr_assert(connects(a, to, b));
	close_all();
}

Test(verbs_rc_proof, key_comes_late)
{
	each_kind(key_comes_late);
}

/* Every bit of a request and of an accept is covered. */
static void every_bit(void)
{
	hook_begin();
	struct verbs_port *a = open_with(&ours), *b = open_with(&ours);
	cr_assert(connects(a, fixture_dest(a, b, 0), b));
	struct verbs_connect_request w = seen_request();
	struct verbs_accept reply;
	struct verbs_conn *c = &a->queues[0]->rc->conns[0];
	memcpy(&reply, seen[0], sizeof reply);
	cr_assert(verbs_request_proven(b, &w) && verbs_accept_proven(c, &reply));
	for (unsigned i = 0; i < 8 * sizeof w; i++) {
		((uint8_t *)&w)[i / 8] ^= (uint8_t)(1u << i % 8);
		cr_assert(!verbs_request_proven(b, &w), "bit %u", i);
		((uint8_t *)&w)[i / 8] ^= (uint8_t)(1u << i % 8);
		((uint8_t *)&c->request)[i / 8] ^= (uint8_t)(1u << i % 8);
		cr_assert(!verbs_accept_proven(c, &reply), "bit %u of the request", i);
		((uint8_t *)&c->request)[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	for (unsigned i = 0; i < 8 * sizeof reply; i++) {
		((uint8_t *)&reply)[i / 8] ^= (uint8_t)(1u << i % 8);
		cr_assert(!verbs_accept_proven(c, &reply), "bit %u", i);
		((uint8_t *)&reply)[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	close_all();
}

Test(verbs_rc_proof, every_bit)
{
	each_kind(every_bit);
}

/* What was seen of a request of `a` to `b` opens nothing: not at `b` again, not at `c`, not at `a`. */
static void copies(void)
{
	hook_begin();
	struct verbs_port *a = open_with(&ours), *b = open_with(&ours), *c = open_with(&ours), *x = open_with(NULL);
	cr_assert(connects(a, fixture_dest(a, b, 0), b));
	struct verbs_connect_request w = seen_request();
	verbs_port_ops.close(&a->base); /* what is left at `b` is closed */
	memmove(ports, ports + 1, sizeof ports - sizeof *ports);
	ports_n--;
	for (unsigned i = 0; i < PATIENCE && b->rc->conns_n; i++)
		turn();
	put_request(&w);
	is_refused(x, fixture_dest(x, b, 0), b, VERBS_REFUSED_REPEATED);
	is_refused(x, fixture_dest(x, c, 0), c, VERBS_REFUSED_NAME);
	struct verbs_connect_request forged = w;
	forged.to_qpn = c->queues[0]->rc_qpn;
	forged.to_qkey = c->queues[0]->qkey;
	put_request(&forged);
	is_refused(x, fixture_dest(x, c, 0), c, VERBS_REFUSED_PROOF);
	forged = w;
	forged.number += UINT64_C(1) << 40;
	put_request(&forged);
	is_refused(x, fixture_dest(x, b, 0), b, VERBS_REFUSED_PROOF);
	close_all();
}

Test(verbs_rc_proof, copies)
{
	each_kind(copies);
}

/* A request that comes back to its author, as it was or with the names exchanged; as a request, and as an accept. */
static void reflections(void)
{
	hook_begin();
	struct verbs_port *a = open_with(&ours), *b = open_with(&ours), *x = open_with(NULL);
	/* `x` has b's address for itself: it takes the request, and its accept is the request's own proof. */
	is_put[0] = true;
	struct verbs_accept reply = {.magic = VERBS_ACCEPT_MAGIC};
	memcpy(put[0], &reply, sizeof reply);
	uint32_t to_x = fixture_dest(a, x, 0);
	is_refused(a, to_x, a, VERBS_REFUSED_ACCEPT);
	struct verbs_connect_request w = seen_request();
	memcpy(reply.proof, w.proof, sizeof reply.proof);
	cr_assert(!verbs_accept_proven(&(struct verbs_conn){.queue = a->queues[0], .request = w}, &reply));
	put_request(&w);
	uint32_t to_a = fixture_dest(x, a, 0);
	is_refused(x, to_a, a, VERBS_REFUSED_NAME);
	struct verbs_connect_request back = w;
	back.to_qpn = w.from_qpn;
	back.to_qkey = w.from_qkey;
	back.from_qpn = w.to_qpn;
	back.from_qkey = w.to_qkey;
	put_request(&back);
	is_refused(x, to_a, a, VERBS_REFUSED_PROOF);
	/* The honest two go on. */
	is_put[0] = is_put[1] = false;
	cr_assert(connects(a, fixture_dest(a, b, 0), b));
	close_all();
}

Test(verbs_rc_proof, reflections)
{
	each_kind(reflections);
}

/* An accept that is changed, absent, or of another request ends the connection; the next one is made. */
static void false_accepts(void)
{
	hook_begin();
	struct verbs_port *a = open_with(&ours), *b = open_with(&ours);
	uint32_t to = fixture_dest(a, b, 0);
	is_put[0] = true;
	is_refused(a, to, a, VERBS_REFUSED_ACCEPT);
	memcpy(put[0], seen[0], sizeof put[0]); /* what `b` said to an earlier request */
	is_refused(a, to, a, VERBS_REFUSED_ACCEPT);
	is_put[0] = false;
	cr_assert(connects(a, to, b));
	close_all();
}

Test(verbs_rc_proof, false_accepts)
{
	each_kind(false_accepts);
}

/* A request of the former layout, or for the other kind of connection, is refused with and without a key. */
static void other_words(void)
{
	hook_begin();
	struct verbs_port *a = open_with(NULL), *b = open_with(NULL);
	uint32_t to = fixture_dest(a, b, 0);
	cr_assert(connects(a, to, b));
	struct verbs_connect_request w = seen_request(), other = w;
	close_all();
	a = open_with(NULL);
	b = open_with(NULL);
	to = fixture_dest(a, b, 0);
	w.to_qpn = other.to_qpn = b->queues[0]->rc_qpn;
	w.to_qkey = other.to_qkey = b->queues[0]->qkey;
	other.kind = w.kind == VERBS_KIND_BULK ? VERBS_KIND_PACKETS : VERBS_KIND_BULK;
	put_request(&other);
	is_refused(a, to, b, VERBS_REFUSED_LAYOUT);
	other = w;
	other.magic = 0x31435246u;
	put_request(&other);
	is_refused(a, to, b, VERBS_REFUSED_LAYOUT);
	other = w;
	other.body_max = VERBS_MTU_MIN - 1;
	put_request(&other);
	is_refused(a, to, b, VERBS_REFUSED_LAYOUT);
	put_request(&w);
	cr_assert(connects(a, to, b));
	close_all();
}

Test(verbs_rc_proof, other_words)
{
	each_kind(other_words);
}

/* The last numbers of many are kept; beyond the bound that of the first is forgotten. */
static void bounded(void)
{
	struct verbs_port *a = open_with(&ours);
	const struct verbs_queue *q = a->queues[0];
	struct verbs_connect_request w = {.number = 5};
	for (uint32_t i = 0; i < VERBS_LAST_REQUESTS_MAX; i++) {
		w.from_qpn = i;
		cr_assert(verbs_request_fresh(q, &w));
	}
	for (uint32_t i = 0; i < VERBS_LAST_REQUESTS_MAX; i += 1000) {
		w.from_qpn = i;
		cr_assert(!verbs_request_fresh(q, &w));
	}
	cr_assert_eq(a->rc->last_requests_n, VERBS_LAST_REQUESTS_MAX);
	w.from_qpn = VERBS_LAST_REQUESTS_MAX;
	cr_assert(verbs_request_fresh(q, &w) && a->rc->last_requests_n == VERBS_LAST_REQUESTS_MAX);
	w.from_qpn = 1;
	cr_assert(!verbs_request_fresh(q, &w));
	w.from_qpn = 0;
	cr_assert(verbs_request_fresh(q, &w));
	w.number = 6;
	cr_assert(verbs_request_fresh(q, &w));
	w.number = 5;
	cr_assert(!verbs_request_fresh(q, &w));
	close_all();
}

Test(verbs_rc_proof, bounded)
{
	each_kind(bounded);
}
