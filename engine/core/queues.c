/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Schedules the polls of a shard's queues, and sleeps on them. Shard thread; queues_init() and queues_free(): start
 * and stop only.
 */
#include "core/queues.h"

#include "base/must.h"
#include "base/probe.h"
#include "core/context.h"
#include "core/packet.h"
#include "core/receive.h"
#include "core/session.h"
#include "core/shard.h"
#include "memory/budget.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>

/* True if a peer of the queue owes an answer. */
static bool queue_awaits(const struct shard *s, const struct shard_queue *sq)
{
	for (const struct session *se = s->known; se; se = se->next_known)
		if (se->state == SESSION_UP && se->q == sq->q && session_owes(s, se))
			return true;
	return false;
}

/* nic_queue_ops.watch */
static bool peer_owes(void *ctx, uint32_t peer)
{
	const struct shard_queue *sq = ctx;
	uint32_t session = peer < sq->peers_max ? sq->peer_session[peer] : 0;
	const struct session *se = session ? &sq->shard->sessions[session - 1] : NULL;
	/* A caller that died leaves handlers behind that are to be cancelled. */
	return se && se->state == SESSION_UP && (session_owes(sq->shard, se) || se->open_n || se->paused_n);
}

/* nic_queue_ops.set_placement */
static bool place(void *ctx, uint32_t peer, const uint8_t *head, uint64_t len, struct nic_placement *out)
{
	const struct shard_queue *sq = ctx;
	uint32_t session = peer < sq->peers_max ? sq->peer_session[peer] : 0;
	const struct session *se = session ? &sq->shard->sessions[session - 1] : NULL;
	union packet_head h;
	memcpy(&h, head, sizeof h);
	return h.type == PACKET_DATA && se && se->state == SESSION_UP && se->has_rendezvous &&
	       sq->shard->hooks.receive_place(se, &h.data, len, out);
}

bool queues_init(struct shard *s, const struct shard_port *ports, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct shard_queue *sq = &s->queues[i];
		must(ports[i].slots >= SHARD_RING_SLOTS);
		*sq = (struct shard_queue){.q = ports[i].queue,
					   .ops = ports[i].queue->ops,
					   .peer_session = calloc(ports[i].peers_max, sizeof *sq->peer_session),
					   .shard = s,
					   .peers_max = ports[i].peers_max,
					   .poll_costs = ports[i].poll_costs,
					   .bursts = ports[i].poll_costs ? FAR_BURSTS_COSTLY : 1};
		sq->q->lanes.written = i ? &s->others_dirty : NULL;
		s->queues_n = i + 1;
		if (!sq->peer_session)
			return false;
		if (sq->ops->set_liveness_callback)
			sq->ops->set_liveness_callback(sq->q, peer_owes, sq);
		if (sq->ops->set_placement)
			sq->ops->set_placement(sq->q, place, sq);
	}
	s->others_left = s->others_step = 1;
	return true;
}

void queues_free(struct shard *s)
{
	for (unsigned i = 0; i < s->queues_n; i++)
		free(s->queues[i].peer_session);
}

/* Passes until it is polled again. */
static uint32_t poll_after(const struct shard *s, struct shard_queue *sq, unsigned got)
{
	if (got)
		sq->hot = FAR_HOT_POLLS;
	else if (sq->hot && --sq->hot == 0 && queue_awaits(s, sq))
		sq->hot = FAR_HOT_POLLS;
	if (sq->hot || (sq->peers > sq->itself && !sq->poll_costs))
		return 1;
	return sq->peers ? FAR_COLD_PASSES : FAR_COLD_PASSES * FAR_COLD_ALONE;
}

unsigned queues_receive(struct shard *s)
{
	shard_own(s);
	uint32_t passed = s->others_step, next = UINT32_MAX;
	unsigned n = 0;
	for (unsigned i = 1; i < s->queues_n; i++) {
		struct shard_queue *sq = &s->queues[i];
		sq->left -= passed < sq->left ? passed : sq->left;
		if (sq->left == 0) {
			unsigned got = receive_queue(s, sq);
			sq->left = poll_after(s, sq, got);
			sq->polled = true;
			s->others_dirty = true;
			n += got;
		}
		next = sq->left < next ? sq->left : next;
	}
	s->others_left = s->others_step = next;
	return n;
}

void queues_flush(struct shard *s)
{
	shard_own(s);
	for (unsigned i = 1; i < s->queues_n; i++) {
		if (s->queues[i].q->lanes.dirty_n) /* by a lane */
			queues_touched(s, i);
		s->queues[i].ops->flush(s->queues[i].q);
	}
	s->others_dirty = false;
}

/* The schedule is read in the next pass. */
static void look_soon(struct shard *s)
{
	s->others_step -= s->others_left - 1;
	s->others_left = 1;
}

void queues_touched(struct shard *s, unsigned i)
{
	struct shard_queue *sq = &s->queues[i];
	sq->hot = FAR_HOT_POLLS;
	sq->left = 0;
	s->others_dirty = true;
	look_soon(s);
}

void queues_poll_all(struct shard *s)
{
	for (unsigned i = 1; i < s->queues_n; i++)
		s->queues[i].left = 0;
	look_soon(s);
}

void queues_due(struct shard *s, uint64_t now)
{
	for (unsigned i = 1; i < s->queues_n; i++) {
		struct shard_queue *sq = &s->queues[i];
		if (sq->polled) {
			sq->polled = false;
			sq->look_at = now + (sq->peers ? FAR_COLD_NS : FAR_COLD_NS * FAR_COLD_ALONE);
		}
		if (now >= sq->look_at || now >= sq->ops->deadline(sq->q)) {
			sq->left = 0;
			look_soon(s);
		}
	}
}

uint64_t queues_deadline(const struct shard *s)
{
	uint64_t next = TIME_NEVER;
	for (unsigned i = 0; i < s->queues_n; i++) {
		uint64_t at = s->queues[i].ops->deadline(s->queues[i].q);
		next = at < next ? at : next;
	}
	return next;
}

__attribute__((noinline, cold)) void queues_trim(struct shard *s)
{
	for (unsigned i = 0; i < s->queues_n; i++)
		if (s->queues[i].ops->trim)
			s->queues[i].ops->trim(s->queues[i].q);
}

struct far_buf *queues_buf(struct shard *s, size_t bytes)
{
	struct far_buf *buf = buf_alloc(bytes);
	if (unlikely(!buf)) {
		queues_trim(s);
		buf = buf_alloc(bytes);
	}
	return buf;
}

void queues_arm(struct shard *s)
{
	if (unlikely(budget_is_short()))
		queues_trim(s);
	for (unsigned i = 0; i < s->queues_n; i++)
		s->queues[i].ops->arm(s->queues[i].q);
}

void queues_disarm(struct shard *s)
{
	for (unsigned i = 0; i < s->queues_n; i++)
		s->queues[i].ops->disarm(s->queues[i].q);
	queues_poll_all(s);
}

uint32_t queues_sleep(const struct shard *s, uint64_t until)
{
	struct pollfd fds[FAR_PORTS_MAX];
	struct timespec ts, *timeout = NULL;
	uint32_t woke = 0;
	for (unsigned i = 0; i < s->queues_n; i++)
		fds[i] = (struct pollfd){.fd = s->queues[i].ops->wake_fd(s->queues[i].q), .events = POLLIN};
	if (until != TIME_NEVER) {
		uint64_t now = clock_now(s->config.clock), left = until > now ? until - now : 0;
		ts = (struct timespec){(time_t)(left / UINT64_C(1000000000)), (long)(left % UINT64_C(1000000000))};
		timeout = &ts;
	}
	PROBE(shard_sleep, s->config.rank, s->config.index);
	int ready = ppoll(fds, s->queues_n, timeout, NULL);
	PROBE(shard_wake, s->config.rank, s->config.index);
	if (ready <= 0)
		return 0;
	for (unsigned i = 0; i < s->queues_n; i++)
		woke |= (uint32_t)(fds[i].revents != 0) << i;
	return woke;
}

void queues_wake_clear(struct shard *s, uint32_t woke)
{
	for (unsigned i = 0; i < s->queues_n; i++)
		if (woke >> i & 1)
			s->queues[i].ops->wake_clear(s->queues[i].q);
}
