/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Feeds the handshake of two live ports. The first byte of the input: 1 runs without a key, 2 with two queues that a
 * hash of the path chooses. Then come records of four bytes: an operation (enum op) and its operands. Operations take a
 * packet that the ports sent or make a control message, change it, put a right or a wrong tag on it (the fuzzer has the
 * key), and give it to a port; others move the clock, connect, drop, lose packets, begin another incarnation.
 *
 * Checked: the audit of the transport after each operation, the counts of half-open and unauthenticated peers; at the
 * end all peers can be freed, and a new connect request succeeds.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: see corpus_main.h.
 */
#include "base/must.h"
#include "transport/audit.h"
#include "transport_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NO_KEY = 1, TWO_QUEUES = 2 };

/* Operands a, b, c. The low bit of `a` is an end wherever one is meant; `peer` is an index, modulo their number. */
enum op {
	OP_TURNS,   /* a % 16 + 1 */
	OP_LATER,   /* a * 25 ms */
	OP_CONNECT, /* from end a; c: queues, from its bit 0 to its bit 1 */
	OP_RESTART, /* end a */
	OP_DROP,    /* end a, peer b */
	OP_LOSE,    /* what end a sends of the kinds in the bits of b, and of c << 8 */
	OP_REFUSE,  /* end a; b: -errno of what it answers, 0: it accepts */
	OP_SEND,    /* end a, peer b: a message of c bytes; a & 2: an answer is awaited from then on */
	OP_TAKE,    /* packet b of the last ones */
	OP_PING,    /* end a, peer b: path c */
	OP_NO,      /* to end a, peer b: c % 4 kind, c / 4 % 4 nonce, c / 16 path */
	OP_EDIT,    /* byte a << 8 | b, modulo its length: ^= c */
	OP_LENGTH,  /* a << 8 | b */
	OP_COOKIE,  /* of end a, issued b * 25 ms ago */
	OP_TAG,     /* by end a; a & 2: by the session's key, peer b; a & 4: to that end itself */
	OP_PUT,     /* to end a, queue b % 2 */
	OPS
};

/* QUIET: turns without a peer after which no packet of a set-up is on its way any more. */
enum { QUIET = 16, KEPT = 16, CONNECTS_MAX = 24, RESTARTS_MAX = 6, OPS_MAX = 200, PACKET_MAX = LINK_MAIL_BYTES + 64 };

struct packet {
	uint32_t len;
	uint8_t bytes[PACKET_MAX];
};

static struct packet kept[KEPT], hand;
static unsigned kept_n, connects, restarts, queues;
static uint32_t lost[2]; /* bits of kinds that an end sends in vain */
static uint64_t drawn;

static uint64_t draw(void *ctx)
{
	uint64_t x = ++drawn * UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	return x ^ x >> 27;
}

static const struct random_source random_drawn = {draw, NULL};

static bool hook(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	uint8_t kind = bytes[offsetof(struct wire_head, kind)];
	if (kind > WIRE_ACK && *len <= PACKET_MAX) {
		struct packet *k = &kept[kept_n++ % KEPT];
		k->len = *len;
		memcpy(k->bytes, bytes, *len);
	}
	return !(lost[from] >> kind & 1);
}

static struct link_port *port_at(unsigned e)
{
	return (struct link_port *)bench.ends[e].port;
}

static struct link_peer *peer_at(unsigned e, unsigned number)
{
	const struct link_port *p = port_at(e);
	struct link_peer *peer = p->peers_n ? p->peers[number % p->peers_n] : NULL;
	return peer && peer->state != LINK_FREE ? peer : NULL;
}

static struct nic_queue *queue_of(unsigned e, const struct link_peer *peer)
{
	return bench.ends[e].port->ops->queue(bench.ends[e].port, peer->owner);
}

static bool owes(void *ctx, uint32_t peer)
{
	return true;
}

/* ---- checks ---- */

static void disagrees(void *ctx, const char *text)
{
	fprintf(stderr, "audit: %s\n", text);
	abort();
}

static void check(void)
{
	for (unsigned e = 0; e < 2; e++) {
		const struct link_port *p = port_at(e);
		uint32_t half_open = 0, strangers = 0;
		for (uint32_t i = 0; i < p->peers_n; i++) {
			const struct link_peer *peer = p->peers[i];
			bool used = peer->state != LINK_FREE;
			half_open += used && peer->half_open;
			strangers += used && peer->stranger;
			must(!used || !peer->listed || link_accepted_find(p, peer->id_there, peer->token_there));
		}
		must(p->half_open_n == half_open && half_open <= FAR_LINK_HALF_OPEN_MAX);
		must(p->strangers_n == strangers && strangers <= FAR_LINK_STRANGERS_MAX);
		link_audit_port(bench.ends[e].port, disagrees, NULL);
	}
}

static void turn(void)
{
	bench_turn();
	for (unsigned e = 0; e < 2; e++)
		for (uint32_t i = 0; i < port_at(e)->peers_n; i++) {
			struct link_peer *peer = port_at(e)->peers[i];
			if (peer->state == LINK_UP && peer->started && !peer->attached && !peer->detached)
				queue_of(e, peer)->ops->attach(queue_of(e, peer), i);
		}
}

/* ---- operations on the ports ---- */

static void drop(unsigned e, struct link_peer *peer)
{
	struct nic_port *port = bench.ends[e].port;
	if (!peer || (peer->state != LINK_UP && peer->state != LINK_DOWN))
		return;
	if (peer->attached)
		queue_of(e, peer)->ops->detach(queue_of(e, peer), peer->index);
	port->ops->drop(port, peer->index);
}

static void restart(unsigned e)
{
	if (restarts++ >= RESTARTS_MAX)
		return;
	end_close(e);
	end_open(e, queues);
}

static void send(unsigned e, struct link_peer *peer, unsigned len, bool awaited)
{
	if (!peer || !peer->attached)
		return;
	struct nic_queue *q = queue_of(e, peer);
	struct nic_tx tx;
	q->ops->watch(q, awaited ? owes : NULL, NULL);
	if (q->ops->tx_reserve(q, peer->index, len, &tx))
		return;
	bench_fill(&tx, 0, len);
	q->ops->tx_commit(q, &tx);
}

/* ---- operations on the packet ---- */

static void make_no(unsigned e, const struct link_peer *peer, unsigned how)
{
	static const enum wire_kind kinds[] = {WIRE_REFUSED, WIRE_WRONG_QUEUE, WIRE_RESET, WIRE_BYE};
	uint8_t nonce[AUTH_NONCE_BYTES] = {0};
	unsigned which = how / 4 % 4;
	if (!peer)
		return;
	if (which == 1 && peer->setup)
		memcpy(nonce, peer->setup->proofs.nonce, sizeof nonce);
	else if (which > 1)
		link_ping_nonce(link_secret_of(peer)->pings - (which - 2), nonce);
	hand.len = link_no_write(hand.bytes, kinds[how % 4], port_at(e)->id, peer->token, -EALREADY, how / 16, nonce);
}

static void edit(unsigned at, uint8_t bits)
{
	if (hand.len)
		hand.bytes[at % hand.len] ^= bits;
}

static bool words_of(struct link_words *w)
{
	return hand.len >= LINK_HEAD && link_words_read(hand.bytes + LINK_HEAD, hand.len - LINK_HEAD, w);
}

static void give_cookie(const struct link_port *p, uint64_t issued)
{
	struct wire_words *body = (struct wire_words *)(void *)(hand.bytes + LINK_HEAD);
	struct link_words w;
	if (!words_of(&w))
		return;
	body->issued = be64_of(issued);
	link_cookie(p, &w, issued, body->proof);
}

static void tag(unsigned how, unsigned number)
{
	const struct link_port *from = port_at(how & 1), *to = port_at((how & 1) ^ !(how & 4));
	const struct link_peer *peer = peer_at(how & 1, number);
	struct link_words w;
	if (hand.len < LINK_HEAD)
		return;
	if (how & 2 && peer)
		link_seal(link_session_key(peer), hand.bytes, hand.len, from->id, NULL, false);
	else
		link_seal(link_key(to), hand.bytes, hand.len, words_of(&w) ? w.id : from->id, to->own_proof, false);
}

static void operate(const uint8_t *op)
{
	unsigned a = op[1], b = op[2], c = op[3], e = a & 1;
	switch ((enum op)(op[0] % OPS)) {
	case OP_TURNS:
		for (unsigned i = 0; i <= a % 16; i++)
			turn();
		break;
	case OP_LATER:
		bench.now += a * 25 * BENCH_MS;
		break;
	case OP_CONNECT:
		if (connects++ < CONNECTS_MAX)
			bench_connect(e, c % queues, !e, c / 2 % queues, 1000 * BENCH_MS);
		break;
	case OP_RESTART:
		restart(e);
		break;
	case OP_DROP:
		drop(e, peer_at(e, b));
		break;
	case OP_LOSE:
		lost[e] = b | c << 8;
		break;
	case OP_REFUSE:
		bench.ends[e].refuse = -(int)b;
		break;
	case OP_SEND:
		send(e, peer_at(e, b), c, a & 2);
		break;
	case OP_TAKE:
		if (kept_n)
			hand = kept[b % (kept_n < KEPT ? kept_n : KEPT)];
		break;
	case OP_PING:
		if (peer_at(e, b))
			hand.len = link_ping_write(hand.bytes, peer_at(e, b), peer_at(e, b)->queue, c % 2,
						   port_at(!e)->own_proof);
		break;
	case OP_NO:
		make_no(e, peer_at(e, b), c);
		break;
	case OP_EDIT:
		edit(a << 8 | b, (uint8_t)c);
		break;
	case OP_LENGTH:
		hand.len = (a << 8 | b) % (PACKET_MAX + 1);
		break;
	case OP_COOKIE:
		give_cookie(port_at(e), bench.now - b * 25 * BENCH_MS);
		break;
	case OP_TAG:
		tag(a, b);
		break;
	case OP_PUT:
		dgram_inject(&bench.fabric, e, b % queues, hand.bytes, hand.len);
		break;
	case OPS:
		break;
	}
}

/* ---- one input ---- */

static bool all_free(void)
{
	bool freed = true;
	for (unsigned e = 0; e < 2; e++)
		for (uint32_t i = 0; i < port_at(e)->peers_n; i++) {
			drop(e, port_at(e)->peers[i]);
			freed &= port_at(e)->peers[i]->state == LINK_FREE;
		}
	return freed;
}

/* No entry of the table of accepted connect requests outlives its peer. */
static void check_accepted(void)
{
	for (unsigned e = 0; e < 2; e++)
		for (uint32_t i = 0; i < 2 * FAR_LINK_PEERS_MAX; i++)
			must(!port_at(e)->accepted[i]);
}

static void finish(void)
{
	uint32_t at_0, at_1;
	unsigned quiet = 0;
	bench.step_ns = 20 * BENCH_MS;
	memset(lost, 0, sizeof lost);
	/* A connect request that arrives after the last peer was freed must not be taken for the one below. */
	for (unsigned i = 0; i < 2000 && quiet < QUIET; i++) {
		quiet = all_free() ? quiet + 1 : 0;
		bench.ends[0].refuse = bench.ends[1].refuse = -ECONNREFUSED;
		turn();
	}
	must(quiet == QUIET && all_free());
	check();
	check_accepted();
	bench.ends[0].refuse = bench.ends[1].refuse = 0;
	bench.step_ns = BENCH_MS;
	bench_pair(0, 1, &at_0, &at_1);
	check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	bench_init();
	kept_n = connects = restarts = 0;
	drawn = 0;
	hand.len = 0;
	memset(lost, 0, sizeof lost);
	queues = data[0] & TWO_QUEUES ? 2 : 1;
	bench.key = data[0] & NO_KEY ? NULL : &bench_key;
	bench.random = &random_drawn;
	bench.limit_ns = 100 * BENCH_MS;
	bench.fabric.crc = true;
	bench.fabric.hash = data[0] & TWO_QUEUES;
	bench.fabric.hook = hook;
	end_open(0, queues);
	end_open(1, queues);
	for (size_t at = 1, n = 0; size - at >= 4 && n < OPS_MAX; at += 4, n++) {
		operate(data + at);
		check();
	}
	finish();
	bench_fini();
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
