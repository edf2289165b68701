/* SPDX-License-Identifier: BSD-3-Clause */
/** Entries of exposed and read messages, until the driver's last event. Poller. */
#include "transport/onesided.h"

#include <errno.h>

static uint64_t user_of(const struct transport_onesided_table *o, const struct transport_onesided *e)
{
	return (uint64_t)e->generation << 32 | (uint32_t)(e - o->entry);
}

static struct transport_onesided *entry_take(struct transport_onesided_table *o, struct far_buf *buf, void *owner,
					     unsigned state)
{
	bool reads = state == TRANSPORT_ONESIDED_READING;
	if (o->n == FAR_TRANSPORT_ONESIDED || (!reads && o->exposed_n == FAR_TRANSPORT_EXPOSED))
		return NULL;
	struct transport_onesided *e = o->entry;
	while (e->state != TRANSPORT_ONESIDED_FREE)
		e++;
	buf_ref(buf);
	e->buf = buf;
	e->owner = owner;
	e->state = (uint8_t)state;
	e->generation++;
	o->n++;
	o->exposed_n += !reads;
	return e;
}

static void entry_give(struct transport_onesided_table *o, struct transport_onesided *e)
{
	struct far_buf *buf = e->buf;
	bool reads = e->state == TRANSPORT_ONESIDED_READING;
	e->state = TRANSPORT_ONESIDED_FREE;
	e->owner = NULL;
	e->buf = NULL;
	o->n--;
	o->exposed_n -= !reads;
	buf_unref(buf);
}

int transport_onesided_expose(struct transport_onesided_table *o, const struct transport_onesided_request *r,
			      uint64_t now, uint32_t *entry)
{
	struct transport_onesided *e = entry_take(o, r->buf, r->owner, TRANSPORT_ONESIDED_EXPOSING);
	if (!e)
		return -EAGAIN;
	int error =
		r->lower->ops->bulk->expose(r->lower, r->lower_peer, r->at, r->len, user_of(o, e), &e->handle, &e->key);
	if (error) {
		entry_give(o, e);
		return error;
	}
	e->since = now;
	*entry = (uint32_t)(e - o->entry);
	return 0;
}

void transport_onesided_withdraw(struct transport_onesided_table *o, struct nic_queue *lower, uint32_t entry)
{
	struct transport_onesided *e = &o->entry[entry];
	if (e->state != TRANSPORT_ONESIDED_EXPOSING && e->state != TRANSPORT_ONESIDED_EXPOSED)
		return;
	e->owner = NULL;
	e->state = TRANSPORT_ONESIDED_WITHDRAWING;
	lower->ops->bulk->withdraw(lower, e->handle);
}

int transport_onesided_read(struct transport_onesided_table *o, const struct transport_onesided_request *r,
			    const struct nic_bulk_key *key, uint32_t offset)
{
	struct transport_onesided *e = entry_take(o, r->buf, r->owner, TRANSPORT_ONESIDED_READING);
	if (!e)
		return -EAGAIN;
	e->offset = offset;
	e->len = r->len;
	int error = r->lower->ops->bulk->read(r->lower, r->lower_peer, key, offset, r->at, r->len, user_of(o, e));
	if (error)
		entry_give(o, e);
	return error;
}

void transport_onesided_forget(struct transport_onesided_table *o, struct nic_queue *lower, const void *owner)
{
	for (uint32_t i = 0; o->n && i < FAR_TRANSPORT_ONESIDED; i++) {
		struct transport_onesided *e = &o->entry[i];
		if (e->owner != owner)
			continue;
		if (e->state == TRANSPORT_ONESIDED_READING)
			e->owner = NULL;
		else
			transport_onesided_withdraw(o, lower, i);
	}
}

/* Returns true if the event is possible in the entry's state. */
static bool fits(const struct transport_onesided *e, uint64_t event)
{
	switch (event) {
	case NIC_BULK_EXPOSED:
		return e->state == TRANSPORT_ONESIDED_EXPOSING || e->state == TRANSPORT_ONESIDED_WITHDRAWING;
	case NIC_BULK_WITHDRAWN:
		return e->state != TRANSPORT_ONESIDED_FREE && e->state != TRANSPORT_ONESIDED_READING;
	case NIC_BULK_READ:
	case NIC_BULK_READ_FAILED:
		return e->state == TRANSPORT_ONESIDED_READING;
	default:
		return false;
	}
}

void *transport_onesided_event(struct transport_onesided_table *o, const struct nic_pkt *pkt,
			       struct transport_onesided_result *news)
{
	uint32_t i = (uint32_t)pkt->cookie;
	struct transport_onesided *e = i < FAR_TRANSPORT_ONESIDED ? &o->entry[i] : NULL;
	if (!e || e->generation != (uint32_t)(pkt->cookie >> 32) || !fits(e, pkt->body_len)) {
		o->stray++;
		return NULL;
	}
	void *owner = e->owner;
	*news = (struct transport_onesided_result){(enum nic_bulk_event)pkt->body_len, e->offset, e->len};
	if (news->event != NIC_BULK_EXPOSED)
		entry_give(o, e);
	else if (e->state == TRANSPORT_ONESIDED_EXPOSING)
		e->state = TRANSPORT_ONESIDED_EXPOSED;
	return owner;
}

void transport_onesided_table_end(struct transport_onesided_table *o)
{
	for (uint32_t i = 0; i < FAR_TRANSPORT_ONESIDED; i++)
		if (o->entry[i].state != TRANSPORT_ONESIDED_FREE)
			entry_give(o, &o->entry[i]);
}
