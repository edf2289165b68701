/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Feeds the handshake of two live ports. The first byte of the input: 1 runs without a key, 2 with two queues that a
 * hash of the path chooses. Then come records of four bytes: an operation (enum op) and its operands. Operations take a
 * packet that the ports sent or make a control message, change it, put a right or a wrong tag on it (the fuzzer has the
 * key), and give it to a port; others move the clock, connect, drop, lose packets, begin another incarnation.
 * Main thread.
 *
 * Checked: the audit of the transport after each operation, the counts of half-open and unauthenticated peers; at the
 * end all peers can be freed, and a new connect request succeeds.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: see corpus_main.h.
 */
#include "base/must.h"
#include "transport/audit.h"
#include "transport/auth.h"
#include "transport/connection.h"
#include "transport/handshake.h"
#include "transport/mail.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/setup.h"
#include "transport/wire.h"
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
enum {
	QUIET = 16,
	KEPT = 16,
	CONNECTS_MAX = 24,
	RESTARTS_MAX = 6,
	OPS_MAX = 200,
	PACKET_MAX = TRANSPORT_MAIL_BYTES + 64
};

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

static struct transport_port *port_at(unsigned e)
{
	return (struct transport_port *)fixture.ends[e].port;
}

static struct transport_peer *peer_at(unsigned e, unsigned number)
{
	const struct transport_port *p = port_at(e);
	struct transport_peer *peer = p->peers_n ? p->peers[number % p->peers_n] : NULL;
	return peer && peer->state != TRANSPORT_FREE ? peer : NULL;
}

static struct nic_queue *queue_of(unsigned e, const struct transport_peer *peer)
{
	return fixture.ends[e].port->ops->queue(fixture.ends[e].port, peer->owner);
}

static bool awaits_reply(void *ctx, uint32_t peer)
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
		const struct transport_port *p = port_at(e);
		uint32_t half_open = 0, stateless = 0;
		for (uint32_t i = 0; i < p->peers_n; i++) {
			const struct transport_peer *peer = p->peers[i];
			bool used = peer->state != TRANSPORT_FREE;
			half_open += used && peer->half_open;
			stateless += used && peer->stateless;
			must(!used || !peer->listed || transport_accepted_find(p, peer->remote_id, peer->remote_token));
		}
		must(p->half_open_n == half_open && half_open <= FAR_TRANSPORT_HALF_OPEN_MAX);
		must(p->stateless_n == stateless && stateless <= FAR_TRANSPORT_STATELESS_MAX);
		transport_audit_port(fixture.ends[e].port, disagrees, NULL);
	}
}

static void turn(void)
{
	fixture_turn();
	for (unsigned e = 0; e < 2; e++)
		for (uint32_t i = 0; i < port_at(e)->peers_n; i++) {
			struct transport_peer *peer = port_at(e)->peers[i];
			if (peer->state == TRANSPORT_UP && peer->started && !peer->attached && !peer->detached)
				queue_of(e, peer)->ops->attach(queue_of(e, peer), i);
		}
}

/* ---- operations on the ports ---- */

static void drop(unsigned e, struct transport_peer *peer)
{
	struct nic_port *port = fixture.ends[e].port;
	if (!peer || (peer->state != TRANSPORT_UP && peer->state != TRANSPORT_DOWN))
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

static void send(unsigned e, struct transport_peer *peer, unsigned len, bool awaited)
{
	if (!peer || !peer->attached)
		return;
	struct nic_queue *q = queue_of(e, peer);
	struct nic_tx tx;
	q->ops->set_liveness_callback(q, awaited ? awaits_reply : NULL, NULL);
	if (q->ops->tx_reserve(q, peer->index, len, &tx))
		return;
	fixture_fill(&tx, 0, len);
	q->ops->tx_commit(q, &tx);
}

/* ---- operations on the packet ---- */

static void make_no(unsigned e, const struct transport_peer *peer, unsigned how)
{
	static const enum wire_kind kinds[] = {WIRE_REJECT, WIRE_WRONG_QUEUE, WIRE_RESET, WIRE_CLOSE};
	uint8_t nonce[AUTH_NONCE_BYTES] = {0};
	unsigned which = how / 4 % 4;
	if (!peer)
		return;
	if (which == 1 && peer->setup)
		memcpy(nonce, peer->setup->proofs.nonce, sizeof nonce);
	else if (which > 1)
		transport_ping_nonce(transport_secret_of(peer)->pings - (which - 2), nonce);
	struct transport_reject no = {.error = -EALREADY, .flow = how / 16, .path = how / 16, .nonce = nonce};
	hand.len = transport_reject_write(hand.bytes, kinds[how % 4], port_at(e)->id, peer->token, &no);
}

static void edit(unsigned at, uint8_t bits)
{
	if (hand.len)
		hand.bytes[at % hand.len] ^= bits;
}

static bool words_of(struct transport_handshake *w)
{
	return hand.len >= TRANSPORT_HEAD_BYTES &&
	       transport_handshake_read(hand.bytes + TRANSPORT_HEAD_BYTES, hand.len - TRANSPORT_HEAD_BYTES, w);
}

static void give_cookie(const struct transport_port *p, uint64_t issued)
{
	struct wire_handshake *body = (struct wire_handshake *)(void *)(hand.bytes + TRANSPORT_HEAD_BYTES);
	struct transport_handshake w;
	if (!words_of(&w))
		return;
	body->issued = le64_of(issued);
	transport_cookie(p, &w, issued, body->cookie);
}

static void tag(unsigned how, unsigned number)
{
	const struct transport_port *from = port_at(how & 1), *to = port_at((how & 1) ^ !(how & 4));
	const struct transport_peer *peer = peer_at(how & 1, number);
	struct transport_handshake w;
	if (hand.len < TRANSPORT_HEAD_BYTES)
		return;
	if (how & 2 && peer)
		transport_tag_write(transport_session_key(peer), hand.bytes, hand.len, from->id, NULL, false);
	else
		transport_tag_write(transport_key(to), hand.bytes, hand.len, words_of(&w) ? w.id : from->id,
				    to->own_proof, false);
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
		fixture.now += a * 25 * FIXTURE_MS;
		break;
	case OP_CONNECT:
		if (connects++ < CONNECTS_MAX)
			fixture_connect(e, c % queues, !e, c / 2 % queues, 1000 * FIXTURE_MS);
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
		fixture.ends[e].refuse = -(int)b;
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
			hand.len = transport_ping_write(hand.bytes, peer_at(e, b), peer_at(e, b)->queue, c % 2,
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
		give_cookie(port_at(e), fixture.now - b * 25 * FIXTURE_MS);
		break;
	case OP_TAG:
		tag(a, b);
		break;
	case OP_PUT:
		dgram_inject(&fixture.fabric, e, b % queues, hand.bytes, hand.len);
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
			freed &= port_at(e)->peers[i]->state == TRANSPORT_FREE;
		}
	return freed;
}

/* No entry of the table of accepted connect requests outlives its peer. */
static void check_accepted(void)
{
	for (unsigned e = 0; e < 2; e++)
		for (uint32_t i = 0; i < 2 * FAR_TRANSPORT_PEERS_MAX; i++)
			must(!port_at(e)->accepted[i]);
}

static void finish(void)
{
	uint32_t at_0, at_1;
	unsigned quiet = 0;
	fixture.step_ns = 20 * FIXTURE_MS;
	memset(lost, 0, sizeof lost);
	/* A connect request that arrives after the last peer was freed must not be taken for the one below. */
	for (unsigned i = 0; i < 2000 && quiet < QUIET; i++) {
		quiet = all_free() ? quiet + 1 : 0;
		fixture.ends[0].refuse = fixture.ends[1].refuse = -ECONNREFUSED;
		turn();
	}
	must(quiet == QUIET && all_free());
	check();
	check_accepted();
	fixture.ends[0].refuse = fixture.ends[1].refuse = 0;
	fixture.step_ns = FIXTURE_MS;
	fixture_pair(0, 1, &at_0, &at_1);
	check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	fixture_init();
	kept_n = connects = restarts = 0;
	drawn = 0;
	hand.len = 0;
	memset(lost, 0, sizeof lost);
	queues = data[0] & TWO_QUEUES ? 2 : 1;
	fixture.key = data[0] & NO_KEY ? NULL : &fixture_key;
	fixture.random = &random_drawn;
	fixture.limit_ns = 100 * FIXTURE_MS;
	fixture.fabric.crc = true;
	fixture.fabric.hash = data[0] & TWO_QUEUES;
	fixture.fabric.hook = hook;
	end_open(0, queues);
	end_open(1, queues);
	for (size_t at = 1, n = 0; size - at >= 4 && n < OPS_MAX; at += 4, n++) {
		operate(data + at);
		check();
	}
	finish();
	fixture_fini();
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
