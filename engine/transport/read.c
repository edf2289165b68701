/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages that are read where their senders have them: what grant.c would grant, the driver below reads. The last
 * LINK_REST bytes come in a packet, as does all that could not be read: a read that failed, or could not be begun for
 * long, is the last of its message. Its sender is told only when none is under way: then nothing writes to the memory
 * any more, and the message may be handed up.
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
		return; /* it is granted packets */
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

/* Its memory may be on its way to be known to the device. */
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
	/* Those that are under way end, each with an event, after which it is tried again. */
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
	/* One that is ahead of others would leave a gap. */
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
