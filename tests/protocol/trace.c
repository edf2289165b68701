/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Writes a capture of what two shards say to each other over a link, and then of what is seldom said: the same bytes
 * in every run. Ethernet, IPv4 and UDP around the packets are made up. usage: protocol_trace FILE.pcap [damaged]
 *
 * Main thread.
 */
#include "trace.h"
#include "base/must.h"
#include "base/random.h"
#include "capture.h"
#include "control/info.h"
#include "core/call.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/shard.h"
#include "fake_bulk.h"
#include "fake_dgram.h"
#include "features/features.h"
#include "features/intercept/intercept.h"
#include "features/references/wire.h"
#include "features/rendezvous/rendezvous.h"
#include "sync/future.h"
#include "transport/auth.h"
#include "transport/handshake.h"
#include "transport/mail.h"
#include "transport/port.h"
#include "transport/transport.h"
#include "transport/wire.h"
#include "value/registry.h"

#include <errno.h>
#include <farcall/message.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 0 and 1 have shards, 2 is refused, 3 and 4 say by hand what shards seldom say. */
enum { ENDS = 5, SHARDS = 2, QUEUES = 1 };
enum { MSG_ECHO = 1, MSG_KEEP, MSG_FAIL, MSG_NOTE };
#define TICK_NS UINT64_C(20000)
#define MSEC    UINT64_C(1000000)

struct end {
	unsigned index;
	struct nic_port *port;
	struct nic_queue *q;
	struct registry registry;
	struct shard *shard;
	uint32_t peer;
	bool up, deaf; /* deaf: what is sent to it is lost */
};

static struct dgram_fabric fabric;
static struct end ends[ENDS];
static uint64_t now_ns = UINT64_C(1700000000000000000);
static unsigned ended, lose; /* calls that ended; packets of end 0 that are to be lost next */
static struct far_deferred *kept[4];
static unsigned kept_n;

static uint64_t random_read(void *ctx)
{
	static uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

static const struct random_source fake_random = {random_read, NULL};

static uint64_t clock_read(void *ctx)
{
	return now_ns;
}

static const struct clock_source fake_clock = {clock_read, NULL};

/* ---- the capture ---- */

void trace_capture(unsigned from, unsigned to, const uint8_t *bytes, uint32_t len)
{
	capture_packet(from, to, now_ns, bytes, len);
	now_ns += 1000;
}

/* Every packet that is sent; false: it is lost. */
static bool on_packet(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	trace_capture(from, to, bytes, *len);
	trace_sample(bytes, *len);
	if (ends[to].deaf)
		return false;
	if (lose && from == 0) {
		lose--;
		return false;
	}
	return true;
}

/* ---- ends ---- */

static void on_message(struct far_req *req, const void *data, size_t len, void *user)
{
	switch ((uintptr_t)user) {
	case MSG_ECHO:
		far_reply(req, data, len);
		break;
	case MSG_KEEP:
		must(far_defer(req, &kept[kept_n++]) == FAR_OK);
		break;
	case MSG_FAIL:
		far_fail(req, FAR_REMOTE, -42, "%s", "no \"such\" \\ row: \xc3\xa4");
		break;
	default:
		break;
	}
}

static enum far_status add(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val sum = far_int(args[0].u.i + args[1].u.i);
	return far_return(req, &sum);
}

static void ctl_wake(void *ctx)
{
}

static void handshake_of(const struct end *e, unsigned to, uint8_t out[HANDSHAKE_BYTES])
{
	struct handshake handshake = {.group = UINT64_C(0x1122334455667788),
				      .world = SHARDS,
				      .rank = e->index,
				      .from = 0xa0 + e->index,
				      .to = 0xa0 + to,
				      .name = UINT64_C(0xabad1dea00) + e->index,
				      .from_shard = 1,
				      .to_shard = 2};
	handshake_encode(&handshake, out);
}

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct end *e = ctx;
	if (ev->type == NIC_EVENT_CONNECT) {
		handshake_of(e, 0, ev->reply);
		*ev->reply_len = HANDSHAKE_BYTES;
		return e->index == 0 ? -EBUSY : 0;
	}
	if (ev->type == NIC_EVENT_UP) {
		e->peer = ev->peer;
		e->up = true;
	}
	return 0;
}

static const struct group_key key = {true, {{"a key of a group that is none"}}};

static void end_open(unsigned i)
{
	struct end *e = &ends[i];
	struct nic_err err = {""};
	struct transport_config config = {.queues = QUEUES,
					  .head_bytes = sizeof(union packet_head),
					  .clock = &fake_clock,
					  .random = &fake_random,
					  .key = &key,
					  .first_packet = 100 * i};
	e->index = i;
	must(transport_open(dgram_open(&fabric, QUEUES), &config, &e->port, &err) == 0);
	e->q = e->port->ops->queue(e->port, 0);
}

static void shard_open(struct end *e)
{
	struct nic_caps caps;
	e->port->ops->caps(e->port, &caps);
	registry_init(&e->registry);
	for (uint16_t m = MSG_ECHO; m <= MSG_NOTE; m++) {
		struct far_msg_handler h = {m, FAR_KIND_INLINE, on_message, (void *)(uintptr_t)m};
		must(registry_add_message(&e->registry, &h, NULL) == FAR_OK);
	}
	struct far_function f = {"t::add(int a, int b) -> int", FAR_KIND_INLINE, add, NULL};
	must(registry_add(&e->registry, &f, NULL) == FAR_OK);
	struct shard_config config = {.ports = {{e->q, caps.slots, caps.peers_max, caps.poll_costs}},
				      .ports_n = 1,
				      .world = SHARDS,
				      .name = e->index ? "callee" : "caller",
				      .clock = &fake_clock,
				      .registry = &e->registry,
				      .features = engine_features,
				      .complete = future_complete,
				      .ctl_wake = ctl_wake};
	e->shard = shard_create(&config);
	must(e->shard);
	must(shard_enter(e->shard));
	struct mail m = {.type = MAIL_PEER_UP, .worker = !e->index, .peer = e->peer, .incarnation = 1};
	must(mailbox_put(&e->shard->mail_in, &m));
	shard_take_mail(e->shard);
	shard_leave(e->shard);
}

static void turn(void)
{
	for (unsigned i = 0; i < ENDS; i++) {
		struct end *e = &ends[i];
		struct nic_pkt pkts[16];
		if (!e->port)
			continue;
		e->port->ops->step(e->port, now_ns, on_event, e);
		if (e->shard) {
			must(shard_enter(e->shard));
			shard_pass(e->shard);
			shard_leave(e->shard);
			continue;
		}
		unsigned n = e->q->ops->recv(e->q, pkts, 16);
		for (unsigned k = 0; k < n; k++)
			if (pkts[k].cookie)
				e->q->ops->release(e->q, pkts[k].peer, pkts[k].cookie);
		e->q->ops->flush(e->q);
	}
	now_ns += TICK_NS;
}

static void turns(unsigned n)
{
	while (n--)
		turn();
}

static void ends_connect(unsigned from, unsigned to)
{
	uint8_t words[HANDSHAKE_BYTES];
	struct nic_addr addr;
	struct nic_err err = {""};
	ends[to].port->ops->address(ends[to].port, &addr);
	handshake_of(&ends[from], to, words);
	must(ends[from].port->ops->connect(ends[from].port,
					   &(struct nic_connect){0, &addr, 0, words, sizeof words,
								 now_ns + UINT64_C(1000000000), &ends[from]},
					   &err) == 0);
	turns(20);
}

/* ---- what shards say ---- */

static void on_done(void *user, const struct completion *o)
{
	ended++;
}

static struct call_start call_of(uint16_t fn, const void *data, size_t len, uint64_t timeout)
{
	return (struct call_start){.worker = 1,
				   .fn = fn,
				   .deadline = timeout == FAR_FOREVER ? TIME_NEVER : now_ns + timeout,
				   .left = timeout,
				   .done = on_done,
				   .data = data,
				   .len = len};
}

static void start(const struct call_start *s)
{
	must(shard_enter(ends[0].shard));
	must(shard_call(ends[0].shard, s) == 0);
	shard_leave(ends[0].shard);
}

/* And waits for its end. */
static void call(const struct call_start *s)
{
	unsigned before = ended;
	start(s);
	for (unsigned i = 0; i < 100000 && ended == before; i++)
		turn();
	must(ended == before + 1);
}

static void call_typed(int64_t a, int64_t b)
{
	alignas(64) uint8_t body[64];
	struct far_val v[] = {far_int(a), far_int(b)};
	struct values_plan plan;
	size_t len = values_size(v, 2, &plan, NULL);
	values_write(v, 2, &plan, body);
	struct call_start s = call_of(0, body, len, FAR_SEC);
	s.typed = true;
	call(&s);
}

static void call_large(uint16_t fn, size_t len, uint64_t timeout)
{
	static uint8_t bytes[4096];
	struct rendezvous_out *o = rendezvous_out_new();
	must(o && len <= sizeof bytes);
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	o->parts[0] = (struct far_part){bytes, len};
	o->parts_n = 1;
	o->total = len;
	struct call_start s = call_of(fn, NULL, len, timeout);
	s.ready = o->self;
	call(&s);
	rendezvous_out_unref(o);
}

/* A value is made, fetched twice and released, with the engine's answers. */
static void call_engine(void)
{
	uint64_t incarnation = rref_incarnation(0, 0);
	struct rref_remote make = {.owner = incarnation, .id = {incarnation, 1}, .fork = {incarnation, 2}};
	struct rref_fetch fetch = {incarnation, make.id};
	struct rref_op words[2] = {{RREF_DELETE, 0, incarnation, make.id, make.fork},
				   {RREF_FORK, 0, ~incarnation, make.id, make.fork}};
	const struct function *f = registry_at(&ends[1].registry, 0);
	make.function = (struct rref_function){f->signature.name_hash, f->signature.canonical_hash};
	alignas(64) uint8_t body[128];
	struct far_val v[] = {far_int(4), far_int(5)};
	struct values_plan plan;
	size_t len = values_size(v, 2, &plan, NULL);
	values_write(v, 2, &plan, body);
	memcpy(body + len, &make, sizeof make);
	struct call_start calls[] = {call_of(RREF_REMOTE, body, len + sizeof make, FAR_SEC),
				     call_of(RREF_FETCH, &fetch, sizeof fetch, FAR_SEC),
				     call_of(RREF_TYPE, &fetch, sizeof fetch, FAR_SEC),
				     call_of(RREF_CONTROL, words, sizeof words, FAR_SEC)};
	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
		call(&calls[i]);
}

enum { FIELD = FAR_TLV_TYPE_APP };

static enum far_status put_fields(const struct far_call_info *info, struct far_tlv_out *out, void **cookie,
				  struct far_err *err, void *user)
{
	far_tlv_put(out, FIELD, "asked", 5);
	return far_tlv_put(out, FIELD + 1, NULL, 0);
}

static void answer_fields(const struct far_call_info *info, const struct far_val *value, const struct far_err *err,
			  struct far_tlv_out *out, void *cookie, void *user)
{
	far_tlv_put(out, FIELD | FAR_TLV_MANDATORY, err ? "failed" : "done", err ? 6 : 4);
}

/* A call that interceptors see: `c` has its number, payload and end; NULL `done`: one-way. */
static void call_seen(struct call_start c)
{
	struct call_extra seen = {.mode = c.done ? FAR_CALL_MESSAGE : FAR_CALL_ONEWAY};
	struct far_err err;
	c.extra = &seen;
	must(shard_enter(ends[0].shard));
	must(intercept_call(ends[0].shard, &c, &err) == FAR_OK);
	shard_leave(ends[0].shard);
	if (c.done) {
		call(&c);
		return;
	}
	must(shard_enter(ends[0].shard));
	oneway_enqueue(ends[0].shard, 1, 0, oneway_new(&c, NULL));
	shard_leave(ends[0].shard);
	intercept_unsent(&c, FAR_OK, "");
	turns(20);
}

/* Requests, answers and a one-way message with fields; a repeated request, whose answer is repeated. */
static void conversation_with_fields(void)
{
	static const struct far_interceptor i = {.name = "trace",
						 .tlv_first = FIELD,
						 .tlv_last = FIELD + 1,
						 .call_out = put_fields,
						 .reply_out = answer_fields};
	unsigned id;
	struct far_err err;
	must(intercept_add(&i, &id, &err) == FAR_OK);
	struct call_start echo = call_of(MSG_ECHO, "payload", 7, FAR_SEC), fail = call_of(MSG_FAIL, NULL, 0, FAR_SEC),
			  note = call_of(MSG_NOTE, "note", 4, FAR_FOREVER);
	call_seen(echo);
	call_seen(fail);
	echo.retry_ns = 2 * MSEC;
	call_seen(echo);
	note.done = NULL;
	call_seen(note);
	must(intercept_remove(id, &err) == FAR_OK);
}

static void conversation(void)
{
	static uint8_t bytes[5000];
	struct shard *s = ends[0].shard;
	struct call_start note = call_of(MSG_NOTE, "note", 4, FAR_FOREVER);
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 13);
	call_typed(2, 3);
	call_typed(-2, INT64_MAX);
	call_engine();
	struct call_start echo = call_of(MSG_ECHO, bytes, 100, FAR_FOREVER);
	call(&echo);
	echo.len = sizeof bytes; /* in fragments of the link */
	call(&echo);
	lose = 2;
	call(&echo);
	struct call_start few = call_of(MSG_ECHO, bytes, 20, FAR_SEC);
	for (unsigned i = 0; i < 5; i++) /* in one packet */
		start(&few);
	few.len = 50;
	start(&few);
	turns(200);
	struct call_start fail = call_of(MSG_FAIL, NULL, 0, FAR_SEC);
	call(&fail);
	struct call_start none = call_of(99, NULL, 0, FAR_SEC);
	call(&none);
	/* A deadline; CANCEL crosses CANCELLED. */
	struct call_start keep = call_of(MSG_KEEP, NULL, 0, MSEC);
	call(&keep);
	turns(200);
	/* Repeated, and repeated calls cancelled. */
	few.retry_ns = 2 * MSEC;
	call(&few);
	keep.retry_ns = MSEC;
	keep.left = 4 * MSEC;
	keep.deadline = now_ns + keep.left;
	call(&keep);
	turns(1000);
	/* One-way messages, and what acknowledges them. */
	note.done = NULL;
	must(shard_enter(s));
	for (unsigned i = 0; i < 30; i++)
		oneway_enqueue(s, 1, 0, oneway_new(&note, NULL));
	shard_leave(s);
	turns(200);
	must(shard_enter(s));
	oneway_request_credit_all(s);
	shard_leave(s);
	turns(200);
	conversation_with_fields();
	/* Beyond a packet: announced, granted, refused. */
	s->sessions[1].eager_max = 2000;
	call_large(MSG_ECHO, 4000, FAR_SEC);
	ends[1].shard->config.message_bytes_max = 2500;
	call_large(MSG_ECHO, 3000, FAR_SEC);
	turns(200);
	/* The path becomes narrower than a packet that was lost. */
	echo.len = 1200;
	lose = 1;
	start(&echo);
	fabric.packet_max = 700;
	turns(2000);
	/* The caller sleeps, where nobody can wake it but by a packet. */
	ends[0].q->ops->arm(ends[0].q);
	turns(200);
	/* Nobody is there for a while: it is pinged. */
	ends[1].deaf = true;
	few.retry_ns = 0;
	start(&few);
	turns(30000);
	ends[1].deaf = false;
	turns(200);
}

/* ---- what is said seldom, by hand ---- */

static void put_from(const struct end *e, union packet_head h, const void *body, size_t len, enum nic_order order)
{
	struct nic_queue *q = e->q;
	struct nic_tx tx;
	must(q->ops->tx_reserve(q, e->peer, len, &tx) == 0);
	memcpy(tx.head, &h, sizeof h);
	if (len)
		memcpy(tx.body, body, len);
	tx.order = (uint8_t)order;
	must(q->ops->tx_commit(q, &tx) == 0);
}

static void put(union packet_head h, const void *body, size_t len, enum nic_order order)
{
	put_from(&ends[3], h, body, len, order);
}

void trace_send(union packet_head h, const void *body, size_t len)
{
	put(h, body, len, NIC_ORDER_ALL);
	ends[3].q->ops->flush(ends[3].q);
	turn();
}

void trace_answer(union packet_head h, const void *body, size_t len)
{
	put_from(&ends[4], h, body, len, NIC_ORDER_ALL);
	ends[4].q->ops->flush(ends[4].q);
	turn();
}

void trace_turn(void)
{
	turn();
}

/* Some that come in fragments at once, and so need grants; and small ones that may pass their packets. */
static void long_ones(void)
{
	static uint8_t body[12000];
	union packet_head h = {.request = {.type = PACKET_REQUEST, .slot = 3, .generation = 4}};
	for (size_t i = 0; i < sizeof body; i++)
		body[i] = (uint8_t)i;
	for (unsigned i = 0; i < 3; i++)
		put(h, body, sizeof body - i * 1000, NIC_ORDER_NONE);
	ends[3].q->ops->flush(ends[3].q);
	put(h, body, 20, NIC_ORDER_NONE);
	ends[3].q->ops->flush(ends[3].q);
	for (unsigned i = 0; i < 3; i++)
		put(h, body, 30 + i * 20, NIC_ORDER_NONE);
	ends[3].q->ops->flush(ends[3].q);
	for (unsigned i = 0; i < 200; i++)
		turn();
}

/* The engine's own words for a set-up, to nobody in particular. */
static void every_no(void)
{
	uint8_t out[TRANSPORT_MAIL_BYTES], nonce[AUTH_NONCE_BYTES];
	for (enum wire_kind kind = WIRE_REJECT; kind <= WIRE_CLOSE; kind++) {
		memset(nonce, kind, sizeof nonce);
		struct transport_reject no = {
			.error = -ECHRNG - (int)kind, .flow = kind, .path = kind + 1u, .nonce = nonce};
		uint32_t len = transport_reject_write(out, kind, UINT64_C(0x1234567890), UINT64_C(0xabcdef0123), &no);
		transport_tag_write(&key.key, out, len, UINT64_C(0x9876543210), nonce, true);
		trace_capture(3, 4, out, len);
	}
}

static void ends_close(void)
{
	for (unsigned i = 0; i < SHARDS; i++) {
		struct end *e = &ends[i];
		must(shard_enter(e->shard));
		session_close_all(e->shard);
		shard_pass(e->shard);
		shard_leave(e->shard);
		e->port->ops->drop(e->port, e->peer);
		for (unsigned k = 0; k < 5; k++) {
			e->port->ops->step(e->port, now_ns, on_event, e);
			must(shard_enter(e->shard));
			shard_pass(e->shard);
			shard_leave(e->shard);
		}
		shard_destroy(e->shard);
		e->shard = NULL;
		registry_fini(&e->registry);
	}
	for (unsigned i = 0; i < ENDS; i++)
		ends[i].port->ops->close(ends[i].port);
}

int main(int argc, char **argv)
{
	bool damaged = argc == 3 && strcmp(argv[2], "damaged") == 0;
	if (argc != 2 && !damaged) {
		fprintf(stderr, "usage: %s FILE.pcap [damaged]\n", argv[0]);
		return 2;
	}
	capture_begin(argv[1]);
	dgram_fabric_init(&fabric);
	fabric.hook = on_packet;
	fabric.wake = false;
	fabric.dress = fake_bulk_dress;
	fake_bulk.without = 7; /* all but 3 and 4 */
	fake_bulk.expose_error = -ENOMEM;
	for (unsigned i = 0; i < ENDS; i++)
		end_open(i);
	ends_connect(0, 1);
	must(ends[0].up && ends[1].up);
	ends_connect(2, 0); /* which refuses */
	must(!ends[2].up);
	for (unsigned i = 0; i < SHARDS; i++)
		shard_open(&ends[i]);
	conversation();
	ends_connect(3, 4);
	must(ends[3].up && ends[4].up);
	must(ends[3].q->ops->attach(ends[3].q, ends[3].peer) == 0 &&
	     ends[4].q->ops->attach(ends[4].q, ends[4].peer) == 0);
	trace_every_value();
	trace_every_message();
	trace_every_engine_call();
	long_ones();
	trace_exposed();
	every_no();
	if (damaged)
		trace_damage();
	ends_close();
	capture_end();
	return 0;
}
