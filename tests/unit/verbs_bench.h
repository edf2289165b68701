/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports of the verbs driver over the fake device, for its unit tests. Included after Criterion. */
#ifndef VERBS_BENCH_H
#define VERBS_BENCH_H

#include "../nic/fake_verbs.h"
#include "nic/verbs/verbs.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct nic_err err;
static unsigned ups, fails;
static uint32_t last_up;
static char failed_text[NIC_TEXT_BYTES_MAX];

static inline int on_event(void *ctx, const struct nic_event *ev)
{
	(void)ctx;
	if (ev->type == NIC_EVENT_UP) {
		ups++;
		last_up = ev->peer;
	} else {
		fails++;
		snprintf(failed_text, sizeof failed_text, "%s", ev->text);
	}
	return 0;
}

static inline struct verbs_port *bench_open(const char *args, unsigned queues)
{
	const struct nic_config config = {.queues = queues, .args = args};
	struct nic_port *port = NULL;
	int error = verbs_port_ops.open(&config, &port, &err);
	cr_assert_eq(error, 0, "%s", err.text);
	return (struct verbs_port *)port;
}

/* Everything was given back to the device. */
static inline void bench_close(struct verbs_port *p)
{
	verbs_port_ops.close(&p->base);
	cr_assert(fake_verbs.contexts == 0 && fake_verbs.pds == 0 && fake_verbs.cqs == 0 && fake_verbs.qps == 0);
	cr_assert(fake_verbs.mrs == 0 && fake_verbs.channels == 0 && fake_verbs.ahs == 0);
}

static inline void bench_step(struct verbs_port *p)
{
	verbs_port_ops.step(&p->base, verbs_now(), on_event, NULL);
}

/* Steps until the counter has come so far, 30 s at most. */
static inline bool bench_until(struct verbs_port *p, const unsigned *count, unsigned least)
{
	for (unsigned i = 0; i < 30000 && *count < least; i++) {
		bench_step(p);
		usleep(1000);
	}
	return *count >= least;
}

/* From queue 0 of a port to a queue of another, attached. */
static inline uint32_t bench_place(struct verbs_port *from, const struct verbs_port *to, unsigned queue)
{
	struct nic_addr addr;
	verbs_port_ops.address(&to->base, &addr);
	cr_assert_eq(verbs_port_ops.connect(&from->base, 0, &addr, queue, NULL, 0, 0, NULL, &err), 0, "%s", err.text);
	cr_assert(bench_until(from, &ups, ups + 1));
	cr_assert_eq(from->queues[0]->base.ops->attach(&from->queues[0]->base, last_up), 0);
	return last_up;
}

static inline int bench_commit(struct verbs_port *p, uint32_t peer, uint64_t number, uint64_t len, uint8_t priority)
{
	struct nic_queue *q = &p->queues[0]->base;
	struct nic_tx tx;
	int error = q->ops->tx_reserve(q, peer, len, &tx);
	if (error)
		return error;
	memset(tx.body, (int)number, len);
	memcpy(tx.body, &number, len < sizeof number ? len : sizeof number);
	tx.priority = priority;
	return q->ops->tx_commit(q, &tx);
}

static inline void bench_flush(struct verbs_port *p)
{
	p->queues[0]->base.ops->flush(&p->queues[0]->base);
}

/* The numbers of what a queue receives, 16 at most. */
static inline unsigned bench_take(struct verbs_port *p, unsigned queue, uint64_t numbers[16])
{
	struct nic_pkt pkts[16];
	struct nic_queue *q = &p->queues[queue]->base;
	unsigned n = q->ops->recv(q, pkts, 16);
	for (unsigned i = 0; i < n; i++) {
		cr_assert(pkts[i].body && (uintptr_t)pkts[i].body % VERBS_BODY_ALIGN == 0);
		memcpy(&numbers[i], pkts[i].body, sizeof numbers[i]);
	}
	return n;
}

/* What a queue receives until so many have come, which takes a while where the machine is busy; 30 s at most. */
static inline unsigned bench_take_all(struct verbs_port *p, unsigned queue, unsigned want, uint64_t numbers[32])
{
	unsigned n = 0;
	for (unsigned i = 0; i < 30000 && n < want && n <= 16; i++) {
		unsigned some = bench_take(p, queue, numbers + n);
		n += some;
		if (!some)
			usleep(1000);
	}
	return n;
}

static inline struct nic_stats bench_stats(struct verbs_port *p)
{
	struct nic_stats s;
	verbs_port_ops.stats(&p->base, &s);
	return s;
}

static inline enum verbs_state bench_state(const struct verbs_port *p, unsigned queue)
{
	return (enum verbs_state)atomic_load(&p->queues[queue]->state);
}

#endif
