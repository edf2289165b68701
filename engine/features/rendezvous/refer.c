/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages in shared memory of the sender: the references to them, what the sender holds for its receiver, what the
 * receiver reads in place. Shard thread; a view ends on the thread of its last reader.
 */
#include "features/rendezvous/rendezvous.h"

#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "value/encoding_layout.h"
#include "value/registry.h"

#include <string.h>

/* ---- the sender ---- */

bool rendezvous_refer(const struct rendezvous_peer *p, const struct rendezvous_out *o, struct packet_announced *a)
{
	const struct session *se = p->session;
	unsigned n = 0;
	/* Memory that goes back to the application at a deadline cannot wait for a reader. */
	if (!o->released || !se->q->ops->refer || p->referred_n >= FAR_REFERRED_MAX)
		return false;
	for (unsigned i = 0; i < o->parts_n; i++) {
		const struct far_part *part = &o->parts[i];
		if (!part->len)
			continue;
		if (n == FAR_PULL_PARTS_MAX ||
		    se->q->ops->refer(se->q, se->peer, part->data, part->len, &a->parts[n].at))
			return false;
		a->parts[n++].len = part->len;
	}
	a->parts_n = n;
	a->offer = 0;
	return n > 0;
}

void rendezvous_lend(struct rendezvous_peer *p, struct rendezvous_out *o)
{
	o->next = p->referred;
	p->referred = o;
	p->referred_n++;
}

void rendezvous_referred_end(struct shard *s, struct rendezvous_peer *p, unsigned lane, uint32_t epoch)
{
	for (struct rendezvous_out **at = &p->referred; *at; at = &(*at)->next) {
		struct rendezvous_out *o = *at;
		if (o->lane != lane || o->epoch != epoch)
			continue;
		*at = o->next;
		p->referred_n--;
		rendezvous_out_drop(s, o);
		return;
	}
}

void rendezvous_lent_close(struct shard *s, struct rendezvous_peer *p)
{
	while (p->referred)
		rendezvous_referred_end(s, p, p->referred->lane, p->referred->epoch);
}

/* ---- the receiver ---- */

static void view_end(void *data)
{
	const struct rendezvous_view *v = data;
	for (unsigned i = 0; i < v->holds_n; i++)
		v->unmap(v->hold[i]);
}

/* How the handler of a message would read it. */
enum view_form {
	VIEW_NONE,     /* copied */
	VIEW_BYTES,    /* a raw message, in one part */
	VIEW_SCATTERED /* typed arguments: a private copy of the first part, and the others where they lie */
};

/* The sender may write to what handlers read, so nothing but elements of arguments is left there. Others than handlers
 * of plain functions expect a body in one piece, as do sessions that hold requests back, or show them. */
static enum view_form form_of(const struct shard *s, const struct session *se, const struct rendezvous_lane *l)
{
	const union packet_head *h = &l->head;
	const struct function *fn;
	if (!l->referred || h->type == PACKET_REPLY || h->call.tlv_bytes)
		return VIEW_NONE;
	if (!(h->flags & PACKET_TYPED))
		return l->parts_n == 1 && registry_message(s->registry, h->request.handler) ? VIEW_BYTES : VIEW_NONE;
	if (se->backpressured || h->flags & (PACKET_HASHED | PACKET_METHOD | PACKET_NAMED) || l->parts_n < 2 ||
	    l->parts_n > VALUES_PARTS_MAX || l->parts[0].iov_len > VALUES_HEAD_BYTES)
		return VIEW_NONE;
	fn = registry_at(s->registry, h->request.handler);
	return fn && (fn->kind == FAR_KIND_INLINE || fn->kind == FAR_KIND_FIBER || fn->kind == FAR_KIND_BLOCKING)
		       ? VIEW_SCATTERED
		       : VIEW_NONE;
}

/* Maps all parts; the view ends what it holds so far. false: also if a part behind the first one is not aligned as the
 * message is, since handlers expect that of elements. */
static bool map_parts(const struct rendezvous_peer *p, const struct rendezvous_lane *l, struct rendezvous_view *v)
{
	struct nic_queue *q = p->session->q;
	uint64_t offset = 0;
	while (v->holds_n < l->parts_n) {
		unsigned i = v->holds_n;
		const struct iovec *part = &l->parts[i];
		const uint8_t *at;
		if (q->ops->map(q, p->session->peer, (uintptr_t)part->iov_base, part->iov_len, &at, &v->hold[i]))
			return false;
		v->holds_n++;
		if (i && ((uintptr_t)at - offset) % WIRE_WIDE_ALIGN)
			return false;
		v->pieces.part[i].at = at;
		v->pieces.part[i].len = part->iov_len;
		offset += part->iov_len;
	}
	v->pieces.n = v->holds_n;
	return true;
}

bool rendezvous_view(struct shard *s, struct rendezvous_peer *p, unsigned lane, struct rendezvous_in *in)
{
	const struct rendezvous_lane *l = &p->in[lane];
	enum view_form form = form_of(s, p->session, l);
	struct far_buf *self;
	if (form == VIEW_NONE || p->views_n == FAR_REFERRED_MAX ||
	    !(self = buf_alloc(sizeof(struct rendezvous_view) + (form == VIEW_SCATTERED ? l->parts[0].iov_len : 0))))
		return false;
	struct rendezvous_view *v = buf_data(self);
	*v = (struct rendezvous_view){.end = view_end,
				      .unmap = p->session->q->ops->unmap,
				      .self = self,
				      .lane = lane,
				      .epoch = l->epoch,
				      .total = l->total};
	self->kind |= BUF_ENDS;
	if (!map_parts(p, l, v)) {
		buf_unref(self);
		return false;
	}
	in->scattered = form == VIEW_SCATTERED;
	in->view = v->pieces.part[0].at;
	if (in->scattered) {
		memcpy(v->first, in->view, v->pieces.part[0].len);
		in->view = v->pieces.part[0].at = v->first;
	}
	buf_ref(self);
	in->buf = self;
	p->views[p->views_n++] = v;
	return true;
}

bool rendezvous_copy_referred(const struct rendezvous_peer *p, const struct rendezvous_lane *l, uint64_t at,
			      uint64_t len, uint8_t *to)
{
	struct nic_queue *q = p->session->q;
	struct iovec from[FAR_PULL_PARTS_MAX];
	unsigned n = rendezvous_parts_of(l, at, len, from);
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *bytes;
		void *hold;
		if (q->ops->map(q, p->session->peer, (uintptr_t)from[i].iov_base, from[i].iov_len, &bytes, &hold))
			return false;
		memcpy(to, bytes, from[i].iov_len);
		q->ops->unmap(hold);
		to += from[i].iov_len;
	}
	return true;
}

/* Without room for the packet the view is reported in a later pass. */
static bool report(struct shard *s, struct rendezvous_peer *p, const struct rendezvous_view *v)
{
	struct packet_acked acked = {p->packets_received};
	union packet_head h = {.grant = {.type = PACKET_GRANT,
					 .flags = PACKET_PULLED,
					 .lane = v->lane,
					 .epoch = v->epoch,
					 .granted = v->total}};
	if (answer_packet(s, p->session, &h, &acked, sizeof acked))
		return false;
	p->packets_reported = p->packets_received;
	return true;
}

void rendezvous_views_reap(struct shard *s, struct rendezvous_peer *p)
{
	for (unsigned i = 0; i < p->views_n;) {
		struct rendezvous_view *v = p->views[i];
		/* The last reader gives its reference back after it has read. */
		if (atomic_load_explicit(&v->self->refs, memory_order_acquire) > 1) {
			i++;
			continue;
		}
		if (!report(s, p, v))
			return;
		p->views[i] = p->views[--p->views_n];
		buf_unref(v->self);
	}
}

/* The session has ended: readers keep what they read, and its sender is not notified. */
void rendezvous_views_close(struct rendezvous_peer *p)
{
	while (p->views_n)
		buf_unref(p->views[--p->views_n]->self);
}
