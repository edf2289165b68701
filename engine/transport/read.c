/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Received messages that are read from the sender's memory. Poller.
 *
 * The driver below reads what grant.c would grant. The last TRANSPORT_TAIL_BYTES bytes arrive in a packet, and so does
 * everything that could not be read: a read that fails, or cannot be started for long, is the last of its message.
 * WIRE_READ_DONE is sent only when no read is in flight: nothing writes to the memory then, and the message may be
 * delivered.
 */
#include "transport/read.h"

#include <errno.h>

static struct transport_reading *reading_of(struct transport_queue *q, const struct transport_message *m)
{
	return &q->onesided.reading[m->onesided - 1];
}

void transport_read_begin(struct transport_queue *q, struct transport_message *m, const uint8_t *key)
{
	struct wire_key k;
	struct transport_reading *r = q->onesided.reading;
	while (r < q->onesided.reading + FAR_TRANSPORT_ONESIDED && r->message)
		r++;
	if (r == q->onesided.reading + FAR_TRANSPORT_ONESIDED || transport_now(q) < q->onesided.unread_until)
		return; /* it arrives in packets */
	memcpy(&k, key, sizeof k);
	*r = (struct transport_reading){.message = m, .key = {le64_get(k.key), le64_get(k.addr)}};
	m->onesided = (uint8_t)(r - q->onesided.reading + 1);
	m->transfer = TRANSPORT_RX_READING;
}

static void end(struct transport_queue *q, struct transport_message *m)
{
	reading_of(q, m)->message = NULL;
	m->onesided = 0;
	transport_grants_read_done(q, m);
}

static void fail(struct transport_queue *q, struct transport_message *m)
{
	struct transport_reading *r = reading_of(q, m);
	r->failed = true;
	if (r->out == 0)
		end(q, m);
}

void transport_read_check(struct transport_queue *q, struct transport_message *m)
{
	if (reading_of(q, m)->out == 0)
		end(q, m);
}

/* Its memory may be in registration. */
static bool may_wait(struct transport_queue *q, struct transport_reading *r)
{
	uint64_t now = transport_now(q);
	if (r->until == 0)
		r->until = now + FAR_TRANSPORT_ONESIDED_NS;
	if (now < r->until)
		return true;
	q->onesided.unread_until = now + FAR_TRANSPORT_UNREAD_NS;
	return false;
}

bool transport_read_more(struct transport_queue *q, struct transport_message *m, uint32_t from, uint32_t bytes)
{
	struct transport_reading *r = reading_of(q, m);
	struct transport_peer *p = m->peer;
	if (r->failed)
		return false;
	int error = -ENOTCONN;
	struct transport_onesided_request request = {q->lower, p->lower_peer, bytes, m->buf, m->body + from, m};
	if (p->via == q)
		error = transport_onesided_read(&q->onesided, &request, &r->key, from);
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

void transport_read_event(struct transport_queue *q, struct transport_message *m,
			  const struct transport_onesided_result *news)
{
	struct transport_reading *r = reading_of(q, m);
	r->out--;
	if (!m->peer->active && !m->peer->dead)
		transport_peer_activate(q, m->peer);
	/* A read that completes before an earlier one would leave a gap. */
	if (news->event == NIC_BULK_READ && !r->failed && news->offset == m->done) {
		counter_more(&q->read_bytes, news->len);
		transport_grants_progress(q, m, m->done + news->len);
	} else {
		r->failed = true;
	}
	if (r->out == 0 && (r->failed || m->done == transport_read_end(m)))
		end(q, m);
}

void transport_read_drop(struct transport_queue *q, struct transport_message *m)
{
	reading_of(q, m)->message = NULL;
	m->onesided = 0;
	transport_onesided_forget(&q->onesided, q->lower, m);
}
