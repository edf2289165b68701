/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Calls that wait for their session to be set up: copies, in the order they came, at most as many as the session will
 * have credits for. While any waits, `calls_max` is 0, so that later calls queue up behind. They hold no call slot.
 */
#include "shard/shard.h"

#include "base/must.h"
#include "shard/fault.h"
#include "shard/large.h"
#include "shard/rref.h"

#include <errno.h>
#include <string.h>

/** At the beginning of a buffer; a small payload follows. */
struct waiting_call {
	struct waiting_call *next;
	struct far_buf *buf, *payload; /* payload: of its own, or NULL */
	struct call_start start;       /* `data` lies in one of the two */
};

/* The largest message fills the largest buffer: no room for the record before it. */
#define PAYLOAD_BESIDE 4096u

/* Partner of the read in the count of outstanding calls: who sees the call gone from here sees where it went. */
void waiting_count(struct shard *s, uint64_t n)
{
	_Atomic uint64_t *c = &s->counters.calls_waiting;
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_release);
}

int waiting_copy(const struct call_start *start, size_t offset, struct far_buf **buf, struct far_buf **large,
		 struct call_start *copy)
{
	if (start->len > FAR_MSG_WHOLE_MAX && !start->ready)
		return -EMSGSIZE;
	bool beside = start->ready || start->len <= PAYLOAD_BESIDE;
	size_t len = start->ready ? 0 : start->len;
	offset = (offset + 63) & ~(size_t)63;
	*buf = buf_alloc(offset + (beside ? len : 0));
	*large = beside || !*buf ? NULL : buf_alloc(start->len);
	if (!*buf || (!beside && !*large)) {
		buf_unref(*buf);
		return -ENOMEM;
	}
	uint8_t *payload = *large ? buf_data(*large) : (uint8_t *)buf_data(*buf) + offset;
	*copy = *start;
	copy->data = payload;
	copy->write = NULL;
	if (start->ready) /* a long message lies ready: a reference of our own */
		large_out_ref(large_out_in(start->ready));
	else if (start->write)
		start->write(start->data, payload, len);
	else if (len)
		memcpy(payload, start->data, len);
	return 0;
}

void waiting_uncopy(struct shard *s, const struct call_start *copy, struct far_buf *large)
{
	if (copy->ready)
		large_out_drop(s, large_out_in(copy->ready));
	buf_unref(large);
}

int waiting_put(struct shard *s, struct session *se, const struct call_start *start)
{
	struct far_buf *buf, *large;
	struct call_start copy;
	if (se->waiting_n == s->config.limits.peer_calls)
		return start->len > FAR_MSG_WHOLE_MAX && !start->ready ? -EMSGSIZE : -EAGAIN;
	int error = waiting_copy(start, sizeof(struct waiting_call), &buf, &large, &copy);
	if (error)
		return error;
	struct waiting_call *w = buf_data(buf);
	*w = (struct waiting_call){.buf = buf, .payload = large, .start = copy};
	struct waiting_call **at = &se->waiting;
	while (*at) /* at most limits.peer_calls */
		at = &(*at)->next;
	*at = w;
	se->waiting_n++;
	waiting_count(s, 1);
	if (start->deadline < s->waiting_until)
		s->waiting_until = start->deadline;
	if (se->state == SESSION_CLOSED) {
		se->worker = start->worker;
		se->shard = start->shard;
		session_connect(s, se);
	}
	return 0;
}

/* Takes the oldest out of the list. */
static struct waiting_call *take(struct session *se)
{
	struct waiting_call *w = se->waiting;
	se->waiting = w->next;
	se->waiting_n--;
	return w;
}

static void done_with(struct shard *s, struct waiting_call *w)
{
	waiting_count(s, (uint64_t)-1);
	waiting_uncopy(s, &w->start, w->payload);
	buf_unref(w->buf);
}

static void end(struct shard *s, struct waiting_call *w, enum far_status status, const char *text)
{
	call_unsent(s, &w->start, status, text);
	done_with(s, w);
}

static void set_flushing(struct shard *s, struct session *se, bool flushing)
{
	if (flushing != se->flushing)
		s->blocked_n += flushing ? 1 : UINT32_MAX;
	se->flushing = flushing;
}

unsigned waiting_flush(struct shard *s, struct session *se)
{
	unsigned n = 0;
	const uint16_t max = (uint16_t)s->config.limits.peer_calls;
	while (se->waiting && se->calls_active < max) {
		struct call_start *start = &se->waiting->start;
		uint64_t now = clock_now(s->config.clock);
		if (start->deadline <= now) {
			n += waiting_expire(s, now);
			continue;
		}
		start->left = start->deadline == TIME_NEVER ? TIME_NEVER : start->deadline - now;
		se->calls_max = max;
		int error = shard_call(s, start);
		se->calls_max = 0;
		if (error == -EAGAIN)
			break;
		struct waiting_call *w = take(se);
		if (unlikely(error))
			call_unsent_error(s, &w->start, error);
		done_with(s, w);
		n++;
	}
	set_flushing(s, se, se->waiting != NULL);
	se->calls_max = se->waiting ? 0 : fault_calls_max(s);
	return n;
}

bool waiting_cancel(struct shard *s, call_done_fn *done, const void *user)
{
	for (struct session *se = s->known; se; se = se->next_known) {
		struct waiting_call *before = NULL;
		for (struct waiting_call *w = se->waiting; w; before = w, w = w->next) {
			if (!call_is(w->start.done, w->start.user, done, user))
				continue;
			*(before ? &before->next : &se->waiting) = w->next;
			se->waiting_n--;
			end(s, w, FAR_CANCELLED, "the call was cancelled here before it was sent");
			return true;
		}
	}
	return false;
}

void waiting_fail(struct shard *s, struct session *se, enum far_status status, const char *text)
{
	/* Off the list at once: callbacks may call again. */
	struct waiting_call *w = se->waiting;
	se->waiting = NULL;
	se->waiting_n = 0;
	set_flushing(s, se, false);
	while (w) {
		struct waiting_call *next = w->next;
		end(s, w, status, text);
		w = next;
	}
	post_early(s, se);
}

/* Those of a session that are due, out of its list, in order; `*until` becomes the earliest deadline of the rest, if
 * that is earlier. */
static struct waiting_call *take_due(struct session *se, uint64_t now, uint64_t *until)
{
	struct waiting_call *due = NULL, **due_end = &due, **at = &se->waiting;
	while (*at) {
		struct waiting_call *w = *at;
		if (w->start.deadline > now) {
			*until = w->start.deadline < *until ? w->start.deadline : *until;
			at = &w->next;
			continue;
		}
		*at = w->next;
		se->waiting_n--;
		w->next = NULL;
		*due_end = w;
		due_end = &w->next;
	}
	return due;
}

unsigned waiting_expire(struct shard *s, uint64_t now)
{
	unsigned n = 0;
	/* Callbacks may add calls, to this list and to others: waiting_put() sees to theirs. */
	s->waiting_until = TIME_NEVER;
	for (struct session *se = s->known; se; se = se->next_known) {
		struct waiting_call *w = take_due(se, now, &s->waiting_until);
		while (w) {
			struct waiting_call *next = w->next;
			end(s, w, FAR_TIMEOUT, "the deadline passed before the session with the worker was set up");
			w = next;
			n++;
		}
	}
	return n;
}
