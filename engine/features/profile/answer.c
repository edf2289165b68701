/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes and reads the field with the spans of a served request, as engine/PROTOCOL.md has it. Any thread. */
#include "features/profile/profile.h"

#include <string.h>

/* ---- numbers of [1, 10] bytes, seven bits each, the lowest first ---- */

static uint8_t *put(uint8_t *out, uint64_t x)
{
	for (; x > 127; x >>= 7)
		*out++ = (uint8_t)(x | 128);
	*out++ = (uint8_t)x;
	return out;
}

struct reader {
	const uint8_t *at, *end;
	bool bad;
};

static uint64_t get(struct reader *in)
{
	uint64_t x = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (in->at == in->end)
			break;
		uint8_t byte = *in->at++;
		x |= (uint64_t)(byte & 127) << shift;
		if (byte < 128)
			return x;
	}
	in->bad = true;
	return 0;
}

/* Less than `limit`. */
static uint64_t get_below(struct reader *in, uint64_t limit)
{
	uint64_t x = get(in);
	in->bad |= x >= limit;
	return x < limit ? x : 0;
}

static const void *get_bytes(struct reader *in, size_t n)
{
	const uint8_t *at = in->at;
	if ((size_t)(in->end - at) < n) {
		in->bad = true;
		return NULL;
	}
	in->at += n;
	return at;
}

/* ---- the callee ---- */

enum { NUMBER_MAX = 10, SPAN_MAX = 16 * NUMBER_MAX + 8 + FAR_PROFILE_NAME, HEAD_MAX = 6 * NUMBER_MAX };

static uint8_t *put_to(uint8_t *out, struct far_to to)
{
	return put(put(out, (uint64_t)(to.worker + 1)), (uint64_t)(to.shard + 1));
}

static size_t span_write(const struct span *s, uint64_t base, uint64_t now, uint8_t out[SPAN_MAX])
{
	size_t name = strlen(s->name);
	uint8_t *at = put(out, s->parent);
	at = put(at, s->kind);
	at = put(at, s->mode);
	at = put(at, s->end ? s->status : FAR_OK);
	at = put(at, s->named);
	at = put(at, (uint64_t)(s->at + 1));
	at = put_to(put_to(at, s->from), s->to);
	at = put(at, s->begin > base ? s->begin - base : 0);
	at = put(at, (s->end ? s->end : now) - s->begin);
	at = put(at, s->queued);
	at = put(at, s->wire);
	at = put(at, s->running);
	at = put(at, s->completing);
	memcpy(at, &s->id, sizeof s->id);
	at = put(at + sizeof s->id, name);
	memcpy(at, s->name, name);
	return (size_t)(at - out) + name;
}

size_t answer_write(struct recording *r, uint8_t *out)
{
	uint8_t span[SPAN_MAX], head[HEAD_MAX], body[FAR_PROFILE_REPLY_BYTES];
	size_t len = 0;
	uint32_t n = 0;
	pthread_mutex_lock(&r->lock);
	uint64_t now = profile_now();
	for (; n < r->n; n++) {
		size_t bytes = span_write(&r->spans[n], r->spans[0].begin, now, span);
		if (len + bytes > sizeof body - HEAD_MAX)
			break;
		memcpy(body + len, span, bytes);
		len += bytes;
	}
	const struct span first = r->n ? r->spans[0] : (struct span){.begin = now};
	uint64_t dropped = r->dropped + (r->n - n);
	pthread_mutex_unlock(&r->lock);
	uint8_t *at = put(head, now - first.begin);
	at = put(at, first.queued);
	at = put(at, first.running ? first.running : now - first.begin - first.queued);
	at = put(at, first.running ? now - first.begin - first.queued - first.running : 0);
	at = put(at, dropped);
	at = put(at, n);
	size_t head_len = (size_t)(at - head);
	memcpy(out, head, head_len);
	memcpy(out + head_len, body, len);
	return head_len + len;
}

/* ---- the caller ---- */

static struct far_to get_to(struct reader *in)
{
	struct far_to to;
	to.worker = (int32_t)get_below(in, INT32_MAX) - 1;
	to.shard = (int32_t)get_below(in, INT32_MAX) - 1;
	return to;
}

static void span_read(struct reader *in, uint32_t number, uint64_t total, struct span *s)
{
	memset(s, 0, sizeof *s);
	s->parent = (uint32_t)get_below(in, number); /* those around it come first */
	s->kind = (uint8_t)get_below(in, FAR_SPAN_RANGE + 1);
	s->mode = (uint8_t)get_below(in, FAR_CALL_MODE_COUNT);
	s->status = (uint8_t)get_below(in, FAR_STATUS_COUNT);
	s->named = get_below(in, 2);
	s->remote = true;
	s->at = (int32_t)get_below(in, INT32_MAX) - 1;
	s->from = get_to(in);
	s->to = get_to(in);
	s->begin = get_below(in, total + 1);
	s->end = s->begin + get_below(in, total - s->begin + 1);
	s->queued = get(in);
	s->wire = get(in);
	s->running = get(in);
	s->completing = get(in);
	const void *id = get_bytes(in, sizeof s->id);
	if (id)
		memcpy(&s->id, id, sizeof s->id);
	size_t len = (size_t)get_below(in, sizeof s->name);
	const void *name = get_bytes(in, len);
	if (name)
		memcpy(s->name, name, len);
}

/* Adds the spans below a call, which ends now. */
static void spans_add(struct recording *r, uint32_t call, uint64_t total, struct reader in, uint32_t n)
{
	struct recording *from = recording_new(n);
	struct span s;
	if (!from)
		return;
	pthread_mutex_lock(&r->lock);
	const struct span around = r->spans[call - 1];
	pthread_mutex_unlock(&r->lock);
	uint64_t all = profile_now() - around.begin, received = around.begin + (all > total ? (all - total) / 2 : 0);
	for (uint32_t i = 1; i <= n; i++) {
		span_read(&in, i, total, &s);
		if (in.bad)
			break;
		memcpy(s.trace, around.trace, sizeof s.trace);
		s.parent_id = s.parent ? from->spans[s.parent - 1].id : around.id;
		s.begin += received;
		s.end += received;
		if (!recording_add(from, &s, false))
			break;
	}
	if (!in.bad)
		recording_append(r, from, call);
	recording_unref(from);
}

void answer_read(struct recording *r, uint32_t call, const uint8_t *data, size_t len)
{
	struct reader in = {data, data + len, false};
	if (!call)
		return;
	uint64_t total = get_below(&in, UINT64_MAX / 4), queued = get(&in), running = get(&in), completing = get(&in);
	uint64_t dropped = get(&in);
	uint32_t n = (uint32_t)get_below(&in, FAR_PROFILE_REPLY_BYTES);
	if (in.bad || total < queued || total - queued < running || total - queued - running < completing)
		return;
	pthread_mutex_lock(&r->lock);
	struct span *s = &r->spans[call - 1];
	uint64_t all = profile_now() - s->begin;
	s->queued = queued;
	s->running = running;
	s->completing = completing;
	s->wire = all > total ? all - total : 0;
	r->dropped += dropped;
	pthread_mutex_unlock(&r->lock);
	spans_add(r, call, total, in, n);
}
