/* SPDX-License-Identifier: BSD-3-Clause */
#include "link_states.h"

#include "core/head.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

const char *const state_names[] = {"none", "connecting", "accepting", "refusing", "up, unconfirmed",
				   "up",   "down",       "closing"};
const char *const data_names[] = {"a whole message", "its first fragment", "a middle one", "the last one", "a piece"};
const char *const kind_names[] = {"",        "MESSAGE",     "ACK",   "PING", "HELLO",    "WELCOME",
				  "REFUSED", "WRONG_QUEUE", "RESET", "BYE",  "CHALLENGE"};
const char *const auth_names[] = {"", " with another token", " of another life"};

const struct group_key *states_key;
struct link_port *port;
struct link_queue *queue;
struct link_peer *peer; /* NULL: there is none */
unsigned sent;          /* bits of kinds that end 1 sent */
static bool watching;
uint8_t hello[1024]; /* of end 0, as it was sent */
uint32_t hello_len;

/* While packets are looked at, end 1 is alone: what it sends is noted and goes nowhere. */
static bool on_packet(void *ctx, unsigned from, unsigned to, unsigned at, uint8_t *bytes, uint32_t *len)
{
	(void)ctx;
	(void)to;
	(void)at;
	if (from == 0 && bytes[1] == WIRE_HELLO) {
		memcpy(hello, bytes, *len);
		hello_len = *len;
	}
	if (from == 1 && watching)
		sent |= 1u << bytes[1];
	return !watching;
}

static bool only_hello(void *ctx, unsigned from, unsigned to, unsigned at, uint8_t *bytes, uint32_t *len)
{
	on_packet(ctx, from, to, at, bytes, len);
	return (from == 0 && bytes[1] == WIRE_HELLO) || (from == 1 && bytes[1] == WIRE_CHALLENGE);
}

static void turns(unsigned n)
{
	while (n-- > 0)
		bench_turn();
}

struct transport_stats states_stats(void)
{
	struct transport_stats st;
	transport_stats_read(bench.ends[1].port, &st);
	return st;
}

static uint64_t stranger_id(void)
{
	return ((struct link_port *)bench.ends[0].port)->id;
}

/* ---- states ---- */

static struct link_peer *the_peer(void)
{
	for (uint32_t i = 0; i < port->peers_n; i++)
		if (port->peers[i]->state != LINK_FREE)
			return port->peers[i];
	return NULL;
}

static void connect_both(void)
{
	uint32_t at_0, at_1;
	bench_pair(0, 1, &at_0, &at_1);
	turns(50);
}

/* As if end 1 had challenged this HELLO just now. */
void give_cookie(uint8_t *packet)
{
	struct wire_words words;
	struct link_words w;
	memcpy(&words, packet + LINK_HEAD, sizeof words);
	words.issued = be64_of(bench.now);
	memcpy(packet + LINK_HEAD, &words, sizeof words);
	cr_assert(link_words_read(packet + LINK_HEAD, LINK_MAIL_BYTES - LINK_HEAD, &w));
	link_cookie(port, &w, bench.now, words.proof);
	memcpy(packet + LINK_HEAD, &words, sizeof words);
}

static bool has_cookie(void)
{
	struct wire_words words;
	memcpy(&words, hello + LINK_HEAD, sizeof words);
	return hello_len && be64_get(words.issued);
}

/* HELLO of end 0 arrives, and nothing else; there is no way back yet with `unready`. */
static void say_hello(bool unready, uint16_t want)
{
	bench.fabric.hook = only_hello;
	cr_assert_eq(bench_connect(0, 0, 1, 0, 1000 * BENCH_MS), 0);
	while (!has_cookie())
		bench_turn();
	if (!unready)
		return;
	/* That one came; of this one end 1 is not ready. */
	struct wire_words words;
	memcpy(&words, hello + LINK_HEAD, sizeof words);
	words.token = be64_of(77);
	words.want = be16_of(want);
	memcpy(hello + LINK_HEAD, &words, sizeof words);
	end_close(1);
	end_open(1, 1);
	port = (struct link_port *)bench.ends[1].port;
	queue = port->queues[0];
	((struct wire_head *)(void *)hello)->incarnation = be64_of(port->id);
	give_cookie(hello);
	link_seal(link_key(port), hello, hello_len, stranger_id(), port->own_proof, false);
	bench.fabric.unready = true;
	dgram_inject(&bench.fabric, 1, 0, hello, hello_len);
	turns(4);
}

void enter(enum state state)
{
	static const enum link_state inner[] = {LINK_FREE, LINK_CONNECTING, LINK_ACCEPTING, LINK_REFUSING,
						LINK_UP,   LINK_UP,         LINK_DOWN,      LINK_CLOSING};
	bench_init();
	bench.key = states_key;
	bench.fabric.crc = true;
	bench.fabric.hook = on_packet;
	bench.first_packet = FIRST;
	watching = false;
	hello_len = 0;
	end_open(0, 1);
	end_open(1, 1);
	port = (struct link_port *)bench.ends[1].port;
	queue = port->queues[0];
	if (state == CONNECTING) {
		bench.fabric.hook = only_hello;
		cr_assert_eq(bench_connect(1, 0, 0, 0, 10000 * BENCH_MS), 0);
		turns(3);
	} else if (state == ACCEPTING || state == REFUSING) {
		say_hello(true, state == ACCEPTING ? 0 : 9);
	} else if (state == UNCONFIRMED) {
		say_hello(false, 0);
		cr_assert(bench_until(&bench.ends[1].ups, 1, 100));
		cr_assert_eq(bench.ends[1].q->ops->attach(bench.ends[1].q, bench.ends[1].up), 0);
	} else if (state == UP || state == DOWN) {
		connect_both();
	} else if (state == CLOSING) {
		bench.fabric.unready = true;
		cr_assert_eq(bench_connect(1, 0, 0, 0, BENCH_MS), 0);
		turns(20);
		cr_assert_eq(bench.ends[1].fails, 1);
	}
	peer = the_peer();
	if (state == DOWN) {
		link_peer_dead(queue, peer, -EPROTO);
		turns(3);
		cr_assert_eq(bench.ends[1].downs, 1);
	}
	cr_assert_eq(peer ? peer->state : LINK_FREE, inner[state], "%s", state_names[state]);
	/* From here on no time passes. */
	bench.fabric.hook = on_packet;
	bench.step_ns = 0;
	watching = true;
	sent = 0;
}

void leave(const char *what)
{
	watching = false;
	bench.fabric.unready = false;
	bench.fabric.hook = NULL;
	bench.step_ns = 10 * BENCH_MS;
	end_close(0);
	turns(10); /* a way back that was missing is there now */
	for (uint32_t i = 0; i < port->peers_n; i++) {
		struct link_peer *p = port->peers[i];
		if (p->state != LINK_UP && p->state != LINK_DOWN)
			continue;
		queue->base.ops->detach(&queue->base, p->index);
		port->base.ops->drop(&port->base, p->index);
	}
	turns(1500);
	for (uint32_t i = 0; i < port->peers_n; i++)
		cr_assert_eq(port->peers[i]->state, LINK_FREE, "%s: peer %u", what, i);
	cr_assert_eq(port->half_open_n + port->strangers_n, 0, "%s", what);
	cr_assert_eq(queue->in_bytes, 0, "%s", what);
	cr_assert_eq(queue->actives_n + queue->acks_n, 0, "%s", what);
	bench_fini();
}

/* ---- packets ---- */

void put_head(struct packet *k, enum wire_kind kind, enum auth auth)
{
	memset(k, 0, sizeof *k);
	k->len = LINK_HEAD;
	k->head.version = WIRE_VERSION;
	k->head.kind = (uint8_t)kind;
	k->head.incarnation = be64_of(port->id ^ (auth == WRONG_LIFE ? 0x100 : 0));
	k->head.token = be64_of((peer ? peer->token : 4096 * 9) ^ (auth == WRONG_TOKEN ? 1u << 20 : 0));
	k->head.packet = be32_of(FIRST);
	if (peer && peer->started)
		k->head.ack = be32_of(peer->una);
}

/* `token`: what its sender asks to be called by. */
static void put_words(struct packet *k, uint64_t id, uint64_t token)
{
	static uint32_t ping;
	struct nic_addr addr;
	dgram_address_of(0, &addr);
	struct wire_words w = {.incarnation = be64_of(id),
			       .token = be64_of(token),
			       .packet_max = be32_of(1400),
			       .words = be16_of(2),
			       .addr = be16_of(addr.len)};
	if (k->head.kind == WIRE_PING)
		link_ping_nonce(++ping, w.nonce);
	else if (k->head.kind == WIRE_HELLO || !peer || !peer->setup)
		memset(w.nonce, 0x5a, sizeof w.nonce);
	else
		memcpy(w.nonce, peer->setup->proofs.nonce, sizeof w.nonce);
	memcpy(k->rest, &w, sizeof w);
	memcpy(k->rest + sizeof w, "hi", 2);
	memcpy(k->rest + sizeof w + 2, addr.blob, addr.len);
	k->len += (uint32_t)sizeof w + 2 + addr.len;
	if (k->head.kind == WIRE_HELLO)
		k->len = LINK_MAIL_BYTES;
}

static void put_no(struct packet *k, int error)
{
	struct wire_no no = {.error = be32_of((uint32_t)-error),
			     .path = be32_of(peer && peer->setup ? peer->setup->flow : 0)};
	if (peer && k->head.kind == WIRE_RESET) { /* in answer to a PING */
		atomic_store(&link_secret_of(peer)->pings, 3);
		link_ping_nonce(2, no.nonce);
	} else if (peer && peer->setup) {
		memcpy(no.nonce, peer->setup->proofs.nonce, sizeof no.nonce);
	}
	memcpy(k->rest, &no, sizeof no);
	k->len += (uint32_t)sizeof no;
}

void put_data(struct packet *k, enum data data, uint32_t number)
{
	uint32_t before = data == MIDDLE ? 1 : data == END ? 2 : 0;
	k->head.type = HEAD_ONEWAY;
	k->head.packet = be32_of(number);
	k->head.first = be32_of(number - before);
	k->head.offset = be32_of(before * 10);
	k->head.length = be32_of(data == WHOLE || data == PIECE ? 10 : 30);
	k->head.marks = data == PIECE ? WIRE_PIECE : 0;
	k->len += 10;
}

void receive(struct packet *k)
{
	dgram_inject(&bench.fabric, 1, 0, k, k->len);
	turns(8);
}

void build(struct packet *k, enum wire_kind kind, enum auth auth)
{
	put_head(k, kind, auth);
	switch (kind) {
	case WIRE_MESSAGE:
		put_data(k, WHOLE, FIRST);
		break;
	case WIRE_ACK:
		break;
	case WIRE_PING:
	case WIRE_WELCOME:
	case WIRE_CHALLENGE:
		put_words(k, peer && auth == RIGHT ? peer->id_there : stranger_id(), 4096 * 3 + 5);
		break;
	case WIRE_HELLO: /* has no token: a new set-up */
		put_words(k, stranger_id(), 4096 * 3 + 6);
		if (auth == RIGHT)
			give_cookie((uint8_t *)k);
		break;
	default:
		put_no(k, kind == WIRE_WRONG_QUEUE ? -EXDEV : -EACCES);
	}
}

static void check(const struct expect *want, const struct transport_stats *before, const struct link_end *was,
		  const char *what)
{
	struct transport_stats now = states_stats();
	const struct link_end *is = &bench.ends[1];
	cr_expect_eq(sent, want->sent, "%s: sent %#x, not %#x", what, sent, want->sent);
#define COUNTED(field, counter_)                                                                                       \
	cr_expect_eq(now.field - before->field, want->counter == (counter_), "%s: " #field " counts %u more", what,    \
		     (unsigned)(now.field - before->field))
	COUNTED(unknown, UNKNOWN);
	COUNTED(refused, REFUSED);
	COUNTED(ended, ENDED);
	COUNTED(duplicates, DUPLICATE);
	COUNTED(no_memory, NO_MEMORY);
	COUNTED(malformed, MALFORMED);
#undef COUNTED
	cr_expect_eq(is->ups - was->ups, want->ups, "%s: %u up", what, is->ups - was->ups);
	cr_expect_eq(is->downs - was->downs, want->downs, "%s: %u down", what, is->downs - was->downs);
	cr_expect_eq(is->fails - was->fails, want->fails, "%s: %u failed", what, is->fails - was->fails);
	cr_expect_eq(is->got - was->got, want->got, "%s: %u delivered", what, (unsigned)(is->got - was->got));
}

void run(struct packet *k, const struct expect *want, const char *what)
{
	struct transport_stats before = states_stats();
	struct link_end was = bench.ends[1];
	enum link_state inner = peer ? peer->state : LINK_FREE;
	receive(k);
	check(want, &before, &was, what);
	if (peer && !want->ups && !want->downs && !want->fails)
		cr_expect_eq(peer->state, inner, "%s: is in state %d", what, peer->state);
	if (want->downs)
		cr_expect_eq(peer->state, LINK_DOWN, "%s", what);
}
