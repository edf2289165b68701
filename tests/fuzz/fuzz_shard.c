/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Feeds packets of two workers to a live shard, between calls, time and the control thread's messages. The input is a
 * row of operations: a byte, whose low 5 bits choose from the table below, and the operands, a byte each; an input that
 * ends early reads as zeros. Bit 7 of the first byte: of the second worker. Bit 6: no pass of the shard follows, so the
 * next operation is in the same burst. Bit 5, for packets: a byte of faults follows the operands: bits 0-1 choose what
 * is wrong with the packet (body cut, a byte of it, a field of its head, longer), the rest how.
 *
 * A packet is right unless its operands say otherwise: numbers are those that the worker would use, by what it has sent
 * and received (shard_peer.c). After the input everything ends, and nothing may be left.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: see corpus_main.h.
 */
#include "base/must.h"
#include "core/call.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/receive.h"
#include "core/session.h"
#include "core/shard.h"
#include "features/references/wire.h"
#include "features/rendezvous/rendezvous.h"
#include "shard_packet.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OPS_MAX = 400, NO_PASS = 64, FAULT = 32, OTHER = 128 };

/* ---- requests ---- */

static void op_message(void)
{
	uint8_t fn = u8(), left = u8();
	union packet_head h = {.request = {.handler = fn % 16 == 15 ? fn : fn % 16}};
	set_time(&h, duration(left));
	add_bytes(u8());
	send_request(h);
}

static void op_typed(void)
{
	uint8_t fn = u8(), flags = u8(), how = u8();
	union packet_head h = {.request = {.handler = number_of(fn),
					   .flags = PACKET_TYPED | (flags & (PACKET_HASHED | PACKET_RETRY))}};
	set_time(&h, duration(flags / 16));
	add_arguments(how);
	if (flags & PACKET_HASHED) {
		struct rref_function f = hashes_of(fn);
		add(&f, sizeof f);
	}
	if (flags & PACKET_RETRY) {
		struct packet_retry r = {.seq = ++peer->retry_seq,
					 .floor = peer->retry_seq > 4 ? peer->retry_seq - 4 : 1};
		add(&r, sizeof r);
	}
	send_request(h);
}

/* A message that may be repeated, and its repeat. */
static void op_retry(void)
{
	uint8_t fn = u8(), delta = u8();
	union packet_head h = {.request = {.handler = fn % 16, .flags = PACKET_RETRY}};
	set_time(&h, UINT64_MAX);
	add_bytes(fn / 16);
	uint64_t seq = delta ? peer->retry_seq + 1 - delta / 2u : ++peer->retry_seq;
	struct packet_retry r = {.seq = seq, .floor = delta & 1 ? seq : seq > 6 ? seq - 6 : 1};
	add(&r, sizeof r);
	if (!delta || !peer->sent_n) {
		send_request(h);
		return;
	}
	union packet_head first = was_sent(delta / 2u - 1u);
	first.flags |= PACKET_RETRY;
	first.type = PACKET_REQUEST;
	send_packet(first);
}

static void op_cancel(void)
{
	uint8_t which = u8();
	union packet_head h = was_sent(which), cancel = {.call = {.type = PACKET_CANCEL,
								  .slot = h.call.slot,
								  .generation = h.call.generation}};
	cancel.flags = h.flags & PACKET_RETRY;
	cancel.call.generation += which / 64 == 1;
	send_packet(cancel);
}

static void op_again(void)
{
	union packet_head h = peer->last;
	body_len = peer->last_len;
	memcpy(body, peer_last(peer), body_len);
	send_packet(h);
}

static void op_raw(void)
{
	union packet_head h;
	for (unsigned i = 0; i < sizeof h; i++)
		((uint8_t *)&h)[i] = u8();
	add_bytes(u8());
	send_packet(h);
}

/* ---- requests about references ---- */

static void op_remote(void)
{
	uint8_t fn = u8(), id = u8(), fork = u8(), how = u8(), object = fn & 64 ? u8() : 0;
	struct rref_remote m = {.owner = owner_of(fn & 128), .id = own_id(id), .fork = own_id(fork)};
	union packet_head h = {.request = {.handler = fn & 64 ? RREF_METHOD_REMOTE : RREF_REMOTE}};
	m.function = hashes_of(fn & 63);
	set_time(&h, duration(how / 64));
	add_arguments(how);
	if (fn & 64) {
		struct rref_id named = own_id(object);
		add(&named, sizeof named);
	}
	add(&m, sizeof m);
	send_request(h);
}

static void op_fetch(void)
{
	uint8_t id = u8(), how = u8();
	struct rref_fetch f = {owner_of(how & 131), own_id(id)};
	union packet_head h = {.request = {.handler = how & 4 ? RREF_TYPE : RREF_FETCH}};
	set_time(&h, how & 8 ? FAR_MS : UINT64_MAX);
	add(&f, sizeof f);
	send_request(h);
}

static void op_control(void)
{
	union packet_head h = {.request = {.handler = RREF_CONTROL}};
	unsigned n = 1;
	for (unsigned i = 0; i < n; i++) {
		uint8_t kind = u8(), id = u8(), fork = u8();
		struct rref_op op = {.kind = kind % 8,
				     .status = kind % 8 == RREF_FAILED ? kind / 8 % 4 * 5 : kind / 128,
				     .owner = kind & 64 ? 0 : owner_of(0),
				     .id = own_id(id),
				     .fork = own_id(fork)};
		n += kind & 32 && n <= RREF_OPS_MAX;                    /* one too many, too */
		if (kind % 8 == RREF_ACCEPT || kind % 8 == RREF_RECALL) /* names that the shard gave */
			op.fork = rref_name(peer_incarnation(APP_SELF), 0, 0, fork);
		add(&op, sizeof op);
	}
	set_time(&h, UINT64_MAX);
	send_request(h);
}

static void op_call(void)
{
	uint8_t fn = u8(), n = u8();
	union packet_head h = {.request = {.handler = RREF_CALL}};
	struct rref_function f = hashes_of(fn);
	add_rrefs(n % 8 ? n % 8 : n / 8u % 2);
	add(&f, sizeof f);
	set_time(&h, n & 128 ? FAR_MS : UINT64_MAX);
	send_request(h);
}

static void op_method(void)
{
	uint8_t fn = u8(), id = u8(), how = u8();
	union packet_head h = {0};
	add_arguments(how);
	if (fn & 64) {
		struct rref_method m = {owner_of(fn & 128), own_id(id), hashes_of(fn & 63)};
		h.request.handler = RREF_METHOD;
		add(&m, sizeof m);
	} else {
		struct rref_id named = own_id(id);
		h.flags = PACKET_TYPED | PACKET_METHOD;
		h.request.handler = number_of(fn);
		add(&named, sizeof named);
	}
	set_time(&h, UINT64_MAX);
	send_request(h);
}

static void op_named(void)
{
	uint8_t fn = u8(), count = u8(), how = u8();
	union packet_head h = {.request = {.handler = number_of(fn & 63),
					   .flags = PACKET_TYPED | PACKET_NAMED | (fn & 64 ? PACKET_METHOD : 0)}};
	struct rref_named named = {count % 16};
	add_arguments(how);
	add(&named, sizeof named);
	set_time(&h, count & 128 ? FAR_MS : UINT64_MAX);
	send_request(h);
}

/* ---- answers ---- */

/* One that is of no call of the shard's ends none. Other packets must not be on their way. */
static void answer_nobody(const union packet_head *h)
{
	const struct shard *s = app.shard;
	const struct call *c = h->call.slot < s->calls_used ? &s->calls[h->call.slot] : NULL;
	uint64_t done = app.calls_done;
	if (faulty || app.queue->in_read != app.queue->in_n ||
	    (c && c->state != CALL_FREE && c->gen == h->call.generation &&
	     c->session == session_index(s, peer->worker, 0)))
		return;
	peer_put(peer, h, body, body_len);
	receive_queue(app.shard, &app.shard->queues[0]);
	must(app.calls_done == done);
}

static void op_answer(void)
{
	uint8_t which = u8(), how = u8();
	unsigned at = (peer->got_n - 1 - which % PEER_SENT) % PEER_SENT;
	union packet_head got = peer->got[at],
			  h = {.call = {
				       .type = PACKET_REPLY, .slot = got.call.slot, .generation = got.call.generation}};
	h.call.generation += which / 64 == 1;
	h.call.slot += which / 64 == 2;
	switch (how % 8) {
	case 0: /* the right one */
		for (unsigned i = 0; i < peer->got_ops[at]; i++)
			add(&(uint8_t){how & 64 ? u8() : FAR_OK}, 1);
		if (!peer->got_ops[at])
			add_arguments(how / 8);
		break;
	case 1:
		h.type = PACKET_ERROR;
		h.error.status = how / 8;
		h.error.executed = how / 64;
		add_bytes(how / 16);
		break;
	case 2:
		h.type = PACKET_CANCELLED;
		break;
	case 3:
		h.flags = PACKET_RREFS;
		add_rrefs(how / 8 % 4);
		break;
	case 4:
		h.flags = PACKET_HASHED;
		h.reply.function = how / 8;
		add_arguments(1);
		break;
	case 5:
		h.flags = PACKET_RETRY;
		add_arguments(how / 8);
		break;
	default:
		add_bytes(u8());
		break;
	}
	answer_nobody(&h);
	send_packet(h);
}

/* ---- one-way messages and fragments ---- */

static void op_oneway(void)
{
	uint8_t fn = u8(), left = u8();
	union packet_head h = {.oneway = {.type = PACKET_ONEWAY, .handler = fn % 16}};
	set_time(&h, duration(left));
	add_bytes(u8());
	send_packet(h);
}

static void add_units(uint8_t delta)
{
	struct packet_acked units = {peer->units + (uint64_t)(int64_t)(int8_t)delta};
	add(&units, sizeof units);
}

static void op_credit(void)
{
	uint8_t how = u8();
	int8_t delta = how & 1 ? (int8_t)u8() : 0;
	union packet_head h = {.type = how & 2 ? PACKET_CREDIT_REQUEST : PACKET_CREDIT,
			       .flags = how & 4 ? PACKET_REQUESTED : 0};
	h.credit.oneways = peer->oneways + (uint64_t)(int64_t)delta;
	if (!(how & 2))
		add_units(how & 8 ? u8() : 0);
	send_packet(h);
}

static void op_announce(void)
{
	static const uint64_t totals[] = {1, 65, 5000, 262144, 262145, 600000, 600001, UINT64_MAX};
	static const enum packet_type types[] = {0, PACKET_REQUEST, PACKET_ONEWAY, PACKET_REPLY};
	uint8_t how = u8(), fn = u8(), epoch = how & 128 ? u8() : 1;
	unsigned lane = how / 4 % 4;
	union packet_head m = {.request = {.type = (uint8_t)types[how % 4], .handler = fn % 16}};
	union packet_head h = {.rendezvous = {.type = PACKET_RENDEZVOUS,
					      .lane = lane,
					      .epoch = peer->out[lane].epoch + epoch,
					      .total = totals[fn / 16 % 8]}};
	set_time(&m, how & 16 ? FAR_MS : UINT64_MAX);
	if (m.type == PACKET_REPLY) {
		const union packet_head *got = &peer->got[(peer->got_n - 1 - how / 32u) % PEER_SENT];
		m.reply.slot = got->call.slot;
		m.reply.generation = got->call.generation;
		m.reply.function = 0;
	} else if (m.type == PACKET_REQUEST) {
		m.request.slot = peer->sent_n % 1024;
		m.request.generation = peer->sent_n + 100;
		peer->sent[peer->sent_n++ % PEER_SENT] = m;
	}
	if (!peer->out[lane].open) {
		peer->out[lane].epoch = h.rendezvous.epoch;
		peer->out[lane].open = true;
		peer->out[lane].total = h.rendezvous.total;
		peer->out[lane].at = peer->out[lane].granted = 0;
	}
	add(&m, sizeof m);
	send_packet(h);
}

/* One that is not the next of its message breaks the protocol. */
static void data_astray(const union packet_head *h)
{
	const struct session *se = &app.shard->sessions[peer->worker];
	if (faulty || app.queue->in_read != app.queue->in_n || se->state != SESSION_UP ||
	    (se->rendezvous && se->rendezvous->in[h->data.lane].accepted == h->data.offset))
		return;
	peer_put(peer, h, body, body_len);
	receive_queue(app.shard, &app.shard->queues[0]);
	must(se->protocol_error);
}

/* The next fragment: all that is left, if it is granted, or less. */
static void op_data(void)
{
	uint8_t how = u8();
	unsigned lane = how % 4;
	uint64_t offset = peer->out[lane].at, granted = peer->out[lane].granted;
	uint64_t len = granted > offset ? granted - offset : 0;
	union packet_head h = {.data = {.type = PACKET_DATA, .lane = lane, .epoch = peer->out[lane].epoch}};
	if (len > FAR_CHUNK_BYTES)
		len = FAR_CHUNK_BYTES;
	if (how & 4)
		len = len > 100 ? 100 : len / 2;
	if (how & 8) /* wrong */
		offset += (uint64_t)(int64_t)(int8_t)u8();
	if (how & 16)
		len += u8();
	h.data.epoch += how / 64;
	h.data.offset = offset;
	memset(body, 'd', len);
	body_len = len;
	peer->out[lane].at += len;
	if (peer->out[lane].at >= peer->out[lane].total)
		peer->out[lane].open = false;
	if (how & 8)
		data_astray(&h);
	if (how & 32 && !faulty && len > FAKE_INLINE && app.queue->placed_n < FAKE_ZERO_COPIES && app.queue->place &&
	    app.shard->sessions[peer->worker].state == SESSION_UP) {
		if (!fake_queue_place(app.queue, PEER_NIC + peer->worker, &h, body, len))
			send_packet(h);
		return;
	}
	send_packet(h);
}

static void op_abort(void)
{
	uint8_t how = u8();
	union packet_head h = {
		.lane = {.type = PACKET_ABORT, .lane = how % 4, .epoch = peer->out[how % 4].epoch + how / 64}};
	peer->out[how % 4].open = false;
	send_packet(h);
}

/* About a message of the shard's. */
static void op_grant(void)
{
	uint8_t how = u8();
	unsigned lane = how % 4;
	union packet_head h = {
		.grant = {.type = how & 4 ? PACKET_REFUSE : PACKET_GRANT, .lane = lane, .epoch = peer->in[lane].epoch}};
	uint64_t upto = peer->in[lane].total;
	if (how & 16)
		upto += (uint64_t)(int64_t)(int8_t)u8();
	h.grant.epoch += how / 64;
	h.grant.granted = upto;
	add_units(how & 32 ? u8() : 0);
	send_packet(h);
}

/* ---- everything else ---- */

static void op_passes(void)
{
	for (unsigned n = u8() % 64; n; n--)
		shard_pass(app.shard);
}

static void op_time(void)
{
	app.now += UINT64_C(1) << u8() % 36;
	shard_run_timers(app.shard, app.now);
}

static void op_local_call(void)
{
	uint8_t how = u8(), value = u8();
	uint32_t worker = value & 128 ? APP_PEERS + 1 : peer->worker;
	app_call(worker, how, duration(how / 32 * 5), value % 8);
}

static void op_local_oneway(void)
{
	static const size_t lens[] = {0, 30, APP_WHOLE, 65, 5000, 300000, 10, 11};
	uint8_t how = u8();
	unsigned n = how & 64 ? 20 : 1;
	while (n--)
		app_oneway(peer->worker, how & 32 ? FAR_MS : FAR_FOREVER, lens[how % 8]);
}

static void op_local(void)
{
	uint8_t how = u8(), which = how / 4;
	switch (how % 4) {
	case 0:
		app_cancel(which);
		break;
	case 1:
		app_give_back(which);
		break;
	case 2:
		app_answer(which / 8, which % 8);
		break;
	default:
		app_wake_fibers();
		break;
	}
}

/* The worker is lost, or silent, or there again, the same or another incarnation of it. */
static void op_session(void)
{
	uint8_t how = u8();
	switch (how % 8) {
	case 0:
		peer_mail(peer, MAIL_PEER_DOWN, FAR_PEER_LOST);
		break;
	case 1:
		peer_mail(peer, MAIL_PEER_DOWN, FAR_UNREACHABLE);
		break;
	case 2:
		peer_mail(peer, MAIL_PEER_UNREACHABLE, FAR_PEER_LOST);
		break;
	case 3:
		peer_mail(peer, MAIL_PEER_UNREACHABLE, FAR_UNREACHABLE);
		break;
	case 4:
		peer_mail(peer, MAIL_PROBE, FAR_OK);
		break;
	case 5: /* another incarnation */
		if (app.shard->sessions[peer->worker].state != SESSION_DEAD)
			break;
		peer->incarnation++;
		peer_mail(peer, MAIL_PEER_RESTARTED, FAR_OK);
		break;
	default:
		if (app.shard->sessions[peer->worker].state == SESSION_UP)
			break;
		peers_read(); /* what the session before sent */
		memset(peer->out, 0, sizeof peer->out);
		memset(peer->in, 0, sizeof peer->in);
		peer->oneways = peer->units = peer->retry_seq = 0;
		peer->protocol_error = peer->detached = false;
		peer_mail(peer, MAIL_PEER_UP, FAR_OK);
		app.shard->sessions[peer->worker].eager_max = APP_WHOLE;
		break;
	}
}

static void op_queue(void)
{
	uint8_t how = u8();
	app.queue->no_bulk = how & 1;
	app.queue->commit_error = how & 4 ? -11 : 0;
}

static void (*const ops[])(void) = {op_passes,  op_time,  op_message, op_typed,      op_retry,        op_cancel,
				    op_again,   op_raw,   op_remote,  op_fetch,      op_control,      op_call,
				    op_method,  op_named, op_answer,  op_oneway,     op_credit,       op_announce,
				    op_data,    op_abort, op_grant,   op_local_call, op_local_oneway, op_local,
				    op_session, op_queue};

/* The control thread ends the session of a peer that broke the protocol. */
static void take_down(void)
{
	for (unsigned i = 0; i < APP_PEERS; i++)
		if (peers[i].protocol_error) {
			peers[i].protocol_error = false;
			peer_mail(&peers[i], MAIL_PEER_DOWN, FAR_PEER_LOST);
		}
}

static bool operation(void)
{
	uint8_t op = u8();
	peer = &peers[op & OTHER ? 1 : 0];
	faulty = op & FAULT;
	body_len = 0;
	ops[op % 32 % (sizeof ops / sizeof *ops)]();
	if (op & NO_PASS)
		return true;
	shard_pass(app.shard);
	shard_pass(app.shard);
	bool goes_on = peers_read();
	take_down();
	app_audit();
	return goes_on;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	input_at = data;
	input_end = data + size;
	app_start();
	peers_start();
	for (unsigned n = 0; n < OPS_MAX && input_at < input_end; n++)
		if (!operation())
			break;
	app_end();
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
