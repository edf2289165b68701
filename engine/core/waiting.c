/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Calls that wait for a credit of their session, or for its set-up. Shard thread, but for waiting_reserve(),
 * waiting_unreserve() and waiting_submit() (any thread).
 *
 * They are copies, in order of arrival, at most limits.peer_waiting with those in the submission ring, and hold no
 * call slot. While any waits, `calls_max` is 0, so that later calls queue up behind it.
 */
#include "core/shard.h"

#include "base/must.h"
#include "core/call.h"
#include "core/call_unsent.h"
#include "core/context.h"
#include "core/feature.h"
#include "core/session.h"
#include "core/waiting.h"

#include <errno.h>
#include <farcall/message.h>
#include <string.h>

/** At the beginning of a buffer; a small payload follows. */
struct waiting_call {
	struct waiting_call *next;     /* NULL: the last */
	struct waiting_call *prev;     /* of the first: the last */
	struct far_buf *buf, *payload; /* payload: of its own, or NULL */
	struct call_start start;       /* `data` lies in one of the two */
};

/* The largest message fills the largest buffer: no room for the record before it. */
#define PAYLOAD_BESIDE 4096u

/* Pairs with the read in the count of outstanding calls: a thread that sees the call gone from here sees where it went.
 */
void waiting_count(struct shard *s, uint64_t n)
{
	_Atomic uint64_t *c = &s->counters.calls_waiting;
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_release);
}

int waiting_copy(const struct shard *s, const struct call_start *start, size_t offset, struct far_buf **buf,
		 struct far_buf **large_payload, struct call_start *copy)
{
	if (start->len > FAR_MSG_EAGER_MAX && !start->ready)
		return -EMSGSIZE;
	bool beside = start->ready || start->len <= PAYLOAD_BESIDE;
	size_t len = start->ready ? 0 : start->len;
	offset = (offset + 63) & ~(size_t)63;
	*buf = buf_alloc(offset + (beside ? len : 0));
	*large_payload = beside || !*buf ? NULL : buf_alloc(start->len);
	if (!*buf || (!beside && !*large_payload)) {
		buf_unref(*buf);
		return -ENOMEM;
	}
	uint8_t *payload = *large_payload ? buf_data(*large_payload) : (uint8_t *)buf_data(*buf) + offset;
	*copy = *start;
	copy->data = payload;
	copy->write = NULL;
	if (start->ready) /* a rendezvous message lies ready: a reference of our own */
		s->hooks.ready_hold(start->ready);
	else if (start->write)
		start->write(start->data, payload, len, NULL);
	else if (len)
		memcpy(payload, start->data, len);
	return 0;
}

void waiting_uncopy(struct shard *s, const struct call_start *copy, struct far_buf *large_payload)
{
	if (copy->ready)
		s->hooks.ready_drop(s, copy->ready);
	buf_unref(large_payload);
}

static void set_draining(struct shard *s, struct session *se, bool draining)
{
	uint32_t change = draining == se->draining ? 0 : draining ? 1 : UINT32_MAX;
	s->backpressured_n += change;
	s->draining_n += change;
	se->draining = draining;
}

bool waiting_reserve(struct shard *s, uint32_t session)
{
	struct waiting_slots *taken = &s->waiting_taken[session];
	int32_t max = (int32_t)s->config.limits.peer_waiting;
	uint32_t n = atomic_load_explicit(&taken->n, memory_order_relaxed);
	do {
		/* Below 0: other threads have taken slots since `n` was read, and the exchange fails. */
		uint32_t seen = atomic_load_explicit(&taken->returned_seen, memory_order_relaxed);
		if (likely((int32_t)(n - seen) < max))
			continue;
		seen = atomic_load_explicit(&s->waiting_returned[session], memory_order_relaxed);
		atomic_store_explicit(&taken->returned_seen, seen, memory_order_relaxed);
		if ((int32_t)(n - seen) >= max)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&taken->n, &n, n + 1, memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

void waiting_unreserve(struct shard *s, uint32_t session)
{
	atomic_fetch_sub_explicit(&s->waiting_taken[session].n, 1, memory_order_relaxed);
}

void waiting_return(struct shard *s, uint32_t session)
{
	_Atomic uint32_t *returned = &s->waiting_returned[session];
	atomic_store_explicit(returned, atomic_load_explicit(returned, memory_order_relaxed) + 1, memory_order_relaxed);
}

uint32_t waiting_slots_used(const struct shard *s, uint32_t session)
{
	return atomic_load_explicit(&s->waiting_taken[session].n, memory_order_relaxed) -
	       atomic_load_explicit(&s->waiting_returned[session], memory_order_relaxed);
}

int waiting_submit(struct shard *s, const struct call_start *start)
{
	uint32_t session = session_index(s, start->worker, start->shard);
	if (!waiting_reserve(s, session))
		return -EAGAIN;
	int error = submit_put(&s->submit, start);
	if (error)
		waiting_unreserve(s, session);
	return error;
}

int waiting_put(struct shard *s, struct session *se, const struct call_start *start)
{
	shard_own(s);
	struct far_buf *buf, *large_payload;
	struct call_start copy;
	uint32_t session = session_index(s, start->worker, start->shard);
	if (!s->waiting_slot_held && !waiting_reserve(s, session))
		return start->len > FAR_MSG_EAGER_MAX && !start->ready ? -EMSGSIZE : -EAGAIN;
	int error = waiting_copy(s, start, sizeof(struct waiting_call), &buf, &large_payload, &copy);
	if (error) {
		if (!s->waiting_slot_held)
			waiting_unreserve(s, session);
		return error;
	}
	s->waiting_slot_held = false; /* the copy has it now */
	struct waiting_call *w = buf_data(buf);
	*w = (struct waiting_call){.buf = buf, .payload = large_payload, .start = copy};
	*(se->waiting ? &se->waiting->prev->next : &se->waiting) = w;
	w->prev = se->waiting->prev;
	se->waiting->prev = w;
	if (start->id)
		*start->id = (struct call_id){CALL_ID_WAITING, buf_number(buf)};
	se->waiting_n++;
	se->calls_max = 0;
	set_draining(s, se, se->state == SESSION_UP);
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

static void unlink_waiting(struct session *se, struct waiting_call *w)
{
	if (w == se->waiting)
		se->waiting = w->next;
	else
		w->prev->next = w->next;
	if (w->next)
		w->next->prev = w->prev;
	else if (se->waiting)
		se->waiting->prev = w->prev;
	se->waiting_n--;
}

/* Off its list, it cannot be cancelled. */
static void forget_id(const struct waiting_call *w)
{
	if (w->start.id)
		w->start.id->slot = 0;
}

static void done_with(struct shard *s, struct waiting_call *w)
{
	waiting_return(s, session_index(s, w->start.worker, w->start.shard));
	waiting_count(s, (uint64_t)-1);
	waiting_uncopy(s, &w->start, w->payload);
	buf_unref(w->buf);
}

static void end(struct shard *s, struct waiting_call *w, enum far_status status, const char *text)
{
	call_unsent(s, &w->start, status, text);
	done_with(s, w);
}

unsigned waiting_send(struct shard *s, struct session *se)
{
	shard_own(s);
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
		struct waiting_call *w = se->waiting;
		unlink_waiting(se, w);
		if (unlikely(error))
			call_unsent_error(s, &w->start, error);
		done_with(s, w);
		n++;
	}
	set_draining(s, se, se->waiting != NULL);
	se->calls_max = se->waiting ? 0 : call_credits(s);
	return n;
}

bool waiting_stalled(const struct shard *s)
{
	for (const struct session *se = s->draining_n ? s->known : NULL; se; se = se->next_known)
		if (se->draining && se->calls_active < s->config.limits.peer_calls)
			return true;
	return false;
}

void waiting_cancel(struct shard *s, uint32_t number)
{
	shard_own(s);
	struct waiting_call *w = buf_data(buf_numbered(number));
	unlink_waiting(&s->sessions[session_index(s, w->start.worker, w->start.shard)], w);
	end(s, w, FAR_CANCELLED, "the call was cancelled here before it was sent");
}

void waiting_fail(struct shard *s, struct session *se, enum far_status status, const char *text)
{
	shard_own(s);
	/* Off the list at once: callbacks may call again. */
	struct waiting_call *w = se->waiting;
	for (const struct waiting_call *at = w; at; at = at->next)
		forget_id(at);
	se->waiting = NULL;
	se->waiting_n = 0;
	set_draining(s, se, false);
	while (w) {
		struct waiting_call *next = w->next;
		end(s, w, status, text);
		w = next;
	}
	features_session_settled(s, se);
}

/* Those of a session that are due, out of its list, in order; `*until` becomes the earliest deadline of the rest, if
 * that is earlier. */
static struct waiting_call *take_due(struct session *se, uint64_t now, uint64_t *until)
{
	struct waiting_call *due = NULL, **due_end = &due, *next;
	for (struct waiting_call *w = se->waiting; w; w = next) {
		next = w->next;
		if (w->start.deadline > now) {
			*until = w->start.deadline < *until ? w->start.deadline : *until;
			continue;
		}
		unlink_waiting(se, w);
		forget_id(w);
		w->next = NULL;
		*due_end = w;
		due_end = &w->next;
	}
	return due;
}

unsigned waiting_expire(struct shard *s, uint64_t now)
{
	shard_own(s);
	unsigned n = 0;
	/* Callbacks may add calls, to this list and to others: waiting_put() sees to theirs. */
	s->waiting_until = TIME_NEVER;
	for (struct session *se = s->known; se; se = se->next_known) {
		struct waiting_call *w = take_due(se, now, &s->waiting_until);
		while (w) {
			struct waiting_call *next = w->next;
			call_unsent_late(s, &w->start, "the session with the worker was not set up, or had no room: ");
			done_with(s, w);
			w = next;
			n++;
		}
	}
	return n;
}

uint32_t waiting_length(const struct session *se)
{
	uint32_t n = 0;
	for (const struct waiting_call *w = se->waiting; w; w = w->next)
		n++;
	return n;
}
