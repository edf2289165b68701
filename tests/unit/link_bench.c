/* SPDX-License-Identifier: BSD-3-Clause */
#include "link_bench.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/must.h"

struct link_bench bench;
const struct group_key bench_key = {true, {{"a key of a group that is none"}}};

static uint64_t bench_now(void *ctx)
{
	(void)ctx;
	return bench.now;
}

static const struct clock_source bench_clock = {bench_now, NULL};

void bench_init(void)
{
	memset(&bench, 0, sizeof bench);
	dgram_fabric_init(&bench.fabric);
	bench.now = UINT64_C(1000000000000);
	bench.step_ns = 100000;
	bench.key = &bench_key;
}

void bench_fini(void)
{
	for (unsigned i = 0; i < LINK_ENDS; i++)
		if (bench.ends[i].port)
			end_close(i);
}

void end_open(unsigned e, unsigned queues)
{
	struct nic_err err = {""};
	struct link_config config = {.queues = queues,
				     .head_bytes = LINK_BENCH_HEAD,
				     .limit_ns = bench.limit_ns,
				     .unchecked = bench.unchecked[e],
				     .clock = &bench_clock,
				     .key = bench.key,
				     .random = bench.random,
				     .first_packet = bench.first_packet};
	struct nic_port *lower = dgram_open(&bench.fabric, queues);
	struct link_end *end = &bench.ends[e];
	memset(end, 0, sizeof *end);
	must(link_open(lower, &config, &end->port, &err) == 0);
	end->queues = queues;
	end->q = end->port->ops->queue(end->port, 0);
}

void end_close(unsigned e)
{
	struct nic_port *port = bench.ends[e].port;
	bench.ends[e].port = NULL;
	port->ops->close(port);
}

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct link_end *e = ctx;
	switch (ev->type) {
	case NIC_EVENT_HELLO:
		e->hellos++;
		e->hello_queue = ev->queue;
		memcpy(ev->reply, "reply", 5);
		*ev->reply_len = 5;
		return e->refuse;
	case NIC_EVENT_UP:
		e->ups++;
		e->up = ev->peer;
		e->up_queue = ev->queue;
		if (!ev->user)
			e->accepted = ev->peer;
		snprintf(e->words, sizeof e->words, "%.*s", (int)ev->hello_len, (const char *)ev->hello);
		break;
	case NIC_EVENT_DOWN:
		e->downs++;
		e->down = ev->peer;
		e->error = ev->error;
		snprintf(e->text, sizeof e->text, "%s", ev->text);
		break;
	case NIC_EVENT_REFUSED:
		e->refusals++;
		e->refused = ev->peer;
		break;
	case NIC_EVENT_FAILED:
		e->fails++;
		e->error = ev->error;
		snprintf(e->text, sizeof e->text, "%s", ev->text);
		break;
	}
	return 0;
}

/* ---- messages that can be checked ---- */

static uint8_t byte_of(uint64_t seq, uint64_t i)
{
	return (uint8_t)((seq * 31 + i * 7 + (i >> 8) * 3 + (i >> 16)) ^ 0x5a);
}

void bench_fill(struct nic_tx *tx, uint64_t seq, uint64_t len)
{
	memset(tx->head, 0xc3, LINK_BENCH_HEAD);
	memcpy(tx->head, &seq, sizeof seq);
	memcpy(tx->head + 8, &len, sizeof len);
	for (uint64_t i = 0; i < len; i++)
		tx->body[i] = byte_of(seq, i);
}

int bench_send(unsigned e, uint32_t peer, uint64_t seq, uint64_t len)
{
	struct nic_queue *q = bench.ends[e].q;
	struct nic_tx tx;
	int error = q->ops->tx_reserve(q, peer, len, &tx);
	if (error)
		return error;
	must((uintptr_t)tx.head % 4 == 0 && (uintptr_t)tx.body % 64 == 0);
	bench_fill(&tx, seq, len);
	return q->ops->tx_commit(q, &tx);
}

bool bench_is(const struct nic_pkt *pkt, uint64_t seq)
{
	uint64_t got_seq, len;
	if (!pkt->head)
		return false;
	memcpy(&got_seq, pkt->head, sizeof got_seq);
	memcpy(&len, pkt->head + 8, sizeof len);
	bool ok = got_seq == seq && len == pkt->body_len && (len > 0) == (pkt->body != NULL) &&
		  pkt->head[LINK_BENCH_HEAD - 1] == 0xc3 && (uintptr_t)pkt->head % 4 == 0 &&
		  (uintptr_t)pkt->body % (len > 32 ? 64 : 32) == 0;
	for (uint64_t i = 0; ok && i < len; i++)
		ok = pkt->body[i] == byte_of(seq, i);
	return ok;
}

unsigned bench_take(unsigned e, unsigned queue)
{
	struct link_end *end = &bench.ends[e];
	struct nic_queue *q = end->port->ops->queue(end->port, queue);
	struct nic_pkt pkts[16];
	unsigned n = q->ops->recv(q, pkts, 16);
	for (unsigned i = 0; i < n; i++) {
		if (!bench_is(&pkts[i], end->got))
			end->bad = true;
		end->got++;
		end->got_bytes += pkts[i].body_len;
		if (pkts[i].cookie)
			q->ops->release(q, pkts[i].peer, pkts[i].cookie);
	}
	q->ops->flush(q);
	return n;
}

/* ---- turns ---- */

void bench_turn(void)
{
	if (bench.before)
		bench.before();
	bool step = bench.turns++ % (bench.steps_every ? bench.steps_every : 1) == 0;
	for (unsigned e = 0; e < LINK_ENDS; e++) {
		struct link_end *end = &bench.ends[e];
		if (!end->port)
			continue;
		if (step)
			end->next = end->port->ops->step(end->port, bench.now, on_event, end);
		for (unsigned i = 0; end->port && i < end->queues; i++)
			bench_take(e, i);
	}
	bench.now += bench.step_ns;
}

bool bench_until(const unsigned *count, unsigned at_least, unsigned turns)
{
	while (*count < at_least && turns-- > 0)
		bench_turn();
	return *count >= at_least;
}

int bench_connect(unsigned from, unsigned qf, unsigned to, unsigned qt, uint64_t within_ns)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	struct nic_port *port = bench.ends[from].port;
	bench.ends[to].port->ops->address(bench.ends[to].port, &addr);
	return port->ops->connect(port, qf, &addr, qt, "hello", 5, bench.now + within_ns, &bench, &err);
}

void bench_pair(unsigned from, unsigned to, uint32_t *at_from, uint32_t *at_to)
{
	unsigned ups_from = bench.ends[from].ups, ups_to = bench.ends[to].ups;
	must(bench_connect(from, 0, to, 0, 10000 * BENCH_MS) == 0);
	must(bench_until(&bench.ends[from].ups, ups_from + 1, 100000));
	must(bench_until(&bench.ends[to].ups, ups_to + 1, 100000));
	*at_from = bench.ends[from].up;
	*at_to = bench.ends[to].up;
	must(bench.ends[from].q->ops->attach(bench.ends[from].q, *at_from) == 0);
	must(from == to || bench.ends[to].q->ops->attach(bench.ends[to].q, *at_to) == 0);
}

void bench_two(uint32_t *at_0, uint32_t *at_1)
{
	end_open(0, 1);
	end_open(1, 1);
	bench_pair(0, 1, at_0, at_1);
}

bool bench_stream(unsigned e, uint32_t peer, unsigned to, uint64_t n, uint64_t (*len_of)(uint64_t seq), unsigned turns)
{
	uint64_t sent = bench.ends[to].got, until = sent + n;
	while (turns-- > 0 && bench.ends[to].got < until && !bench.ends[to].bad) {
		while (sent < until && bench_send(e, peer, sent, len_of(sent)) == 0)
			sent++;
		bench_turn();
	}
	return bench.ends[to].got == until && !bench.ends[to].bad;
}
