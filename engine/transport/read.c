/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Received messages that are read from the sender's memory. Poller.
 *
 * The driver below reads what grant.c would grant. The last LINK_REST bytes arrive in a packet, and so does everything
 * that could not be read: a read that fails, or cannot be started for long, is the last of its message. WIRE_HERE is
 * sent only when no read is in flight: nothing writes to the memory then, and the message may be delivered.
 */
#include "transport/port.h"

#include <errno.h>
#include <string.h>

static struct link_reading *reading_of(struct link_queue *q, const struct link_message *m)
{
	return &q->onesided.reading[m->onesided - 1];
}

static uint64_t now_of(struct link_queue *q)
{
	if (q->now == 0)
		q->now = clock_now(q->clock);
	return q->now;
}

void link_read_begin(struct link_queue *q, struct link_message *m, const uint8_t *key)
{
	struct wire_key k;
	struct link_reading *r = q->onesided.reading;
	while (r < q->onesided.reading + FAR_LINK_ONESIDED && r->message)
		r++;
	if (r == q->onesided.reading + FAR_LINK_ONESIDED || now_of(q) < q->onesided.unread_until)
		return; /* it arrives in packets */
	memcpy(&k, key, sizeof k);
	*r = (struct link_reading){.message = m, .key = {be64_get(k.key), be64_get(k.addr)}};
	m->onesided = (uint8_t)(r - q->onesided.reading + 1);
	m->transfer = LINK_IN_READ;
}

static void end(struct link_queue *q, struct link_message *m)
{
	reading_of(q, m)->message = NULL;
	m->onesided = 0;
	link_grants_here(q, m);
}

static void fail(struct link_queue *q, struct link_message *m)
{
	struct link_reading *r = reading_of(q, m);
	r->failed = true;
	if (r->out == 0)
		end(q, m);
}

void link_read_look(struct link_queue *q, struct link_message *m)
{
	if (reading_of(q, m)->out == 0)
		end(q, m);
}

/* Its memory may be in registration. */
static bool may_wait(struct link_queue *q, struct link_reading *r)
{
	uint64_t now = now_of(q);
	if (r->until == 0)
		r->until = now + FAR_LINK_ONESIDED_NS;
	if (now < r->until)
		return true;
	q->onesided.unread_until = now + FAR_LINK_UNREAD_NS;
	return false;
}

bool link_read_more(struct link_queue *q, struct link_message *m, uint32_t from, uint32_t bytes)
{
	struct link_reading *r = reading_of(q, m);
	struct link_peer *p = m->peer;
	if (r->failed)
		return false;
	int error = -ENOTCONN;
	if (p->via == q)
		error = link_onesided_read(&q->onesided, q->lower, p->lower_peer, &r->key, from, m->buf, m->body + from,
					   bytes, m);
	if (!error) {
		r->out++;
		r->until = 0;
		return true;
	}
	/* -EAGAIN: retried after the event of a read in flight. */
	if (error != -EAGAIN && (error != -ENOMEM || !may_wait(q, r)))
		fail(q, m);
	return false;
}

void link_read_event(struct link_queue *q, struct link_message *m, const struct link_onesided_news *news)
{
	struct link_reading *r = reading_of(q, m);
	r->out--;
	if (!m->peer->active && !m->peer->dead)
		link_peer_activate(q, m->peer);
	/* A read that completes before an earlier one would leave a gap. */
	if (news->event == NIC_BULK_READ && !r->failed && news->offset == m->done) {
		counter_more(&q->read_bytes, news->len);
		link_grants_progress(q, m, m->done + news->len);
	} else {
		r->failed = true;
	}
	if (r->out == 0 && (r->failed || m->done == link_read_end(m)))
		end(q, m);
}

void link_read_drop(struct link_queue *q, struct link_message *m)
{
	reading_of(q, m)->message = NULL;
	m->onesided = 0;
	link_onesided_forget(&q->onesided, q->lower, m);
}
