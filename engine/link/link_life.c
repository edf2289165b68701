/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A peer as the control core sees it, from its place in the table to its end: what it is told by and told of. Orders to
 * the shard and its news pass by boards (link_mail.h).
 */
#include "link/link_port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- peers ---- */

struct link_peer *link_peer_new(struct link_port *p, unsigned queue, enum link_state state)
{
	uint32_t i = 0;
	while (i < p->peers_n && p->peers[i]->state != LINK_FREE)
		i++;
	if (i == FAR_LINK_PEERS_MAX)
		return NULL;
	if (i == p->peers_n) {
		struct link_peer *made = aligned_alloc(64, (sizeof *made + 63) & ~(size_t)63);
		if (!made)
			return NULL;
		atomic_init(&made->due, 0);
		atomic_init(&made->news, 0);
		p->peers[p->peers_n++] = made;
	}
	struct link_peer *peer = p->peers[i];
	memset(peer, 0, offsetof(struct link_peer, due));
	memset((uint8_t *)peer + offsetof(struct link_peer, setup_full), 0,
	       sizeof *peer - offsetof(struct link_peer, setup_full));
	peer->token = (random_next(p->config.random) & ~(uint64_t)(FAR_LINK_PEERS_MAX - 1)) | i;
	if (peer->token == 0)
		peer->token = FAR_LINK_PEERS_MAX;
	peer->index = i;
	peer->state = state;
	peer->owner = queue;
	peer->queue = peer->via = p->queues[queue];
	peer->sides[0].peer = peer;
	for (unsigned k = 1; k <= FAR_LINK_WAYS_MAX; k++)
		atomic_store_explicit(&peer->sides[k].lower_peer, NIC_PEER_NONE, memory_order_relaxed);
	peer->lower_peer = peer->lower_next = peer->way = peer->way_old = NIC_PEER_NONE;
	peer->deadline = peer->repeat_at = UINT64_MAX;
	peer->repeat_ns = FAR_LINK_HELLO_NS;
	return peer;
}

/* What only open connections have: some 350 KiB of which the pages that are used become memory. */
bool link_rings_make(struct link_peer *peer)
{
	void *at = mmap(NULL, sizeof *peer->rings, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			-1, 0);
	peer->rings = at == MAP_FAILED ? NULL : at;
	return peer->rings != NULL;
}

void link_rings_free(struct link_peer *peer)
{
	if (peer->rings)
		munmap(peer->rings, sizeof *peer->rings);
	peer->rings = NULL;
}

/* The board's bit is set last and taken first: pairs with order_serve() in link_queue.c. */
void link_order(struct link_peer *peer, uint32_t due)
{
	struct link_queue *q = peer->queue;
	atomic_fetch_or_explicit(&peer->due, due, memory_order_release);
	link_board_set(&q->orders, peer->index);
	q->ops->wake(q->lower);
}

static void uncount(struct link_port *p, struct link_peer *peer)
{
	p->half_open_n -= peer->half_open;
	p->strangers_n -= peer->stranger;
	peer->half_open = peer->stranger = false;
}

void link_peer_free(struct link_port *p, struct link_peer *peer)
{
	uncount(p, peer);
	link_rings_free(peer);
	peer->state = LINK_FREE;
}

void link_way_drop(struct link_port *p, uint32_t *way)
{
	if (*way != NIC_PEER_NONE)
		p->lower->ops->drop(p->lower, *way);
	*way = NIC_PEER_NONE;
}

/* When neither the shard nor the driver below has to do with it any more. */
void link_peer_let_go(struct link_port *p, struct link_peer *peer)
{
	if (!peer->closed || peer->lower_pending || link_sides_pending(peer))
		return;
	link_sides_drop(peer);
	link_way_drop(p, &peer->way_old);
	link_way_drop(p, &peer->way);
	link_peer_free(p, peer);
}

/* A HELLO of this set-up that comes late is not to begin a new one. */
void link_remember(struct link_port *p, const struct link_peer *peer, int error)
{
	uint32_t at = p->refused_at++ % FAR_LINK_REFUSED_KEPT;
	p->refused[at].id = peer->id_there;
	p->refused[at].token = peer->token_there;
	p->refused[at].error = error;
}

void link_peer_end(struct link_port *p, struct link_peer *peer)
{
	if (peer->state == LINK_CLOSING)
		return;
	if (peer->accepted && (peer->state == LINK_UP || peer->state == LINK_DOWN))
		link_remember(p, peer, -ECONNRESET);
	uncount(p, peer);
	peer->deadline = peer->repeat_at = UINT64_MAX;
	peer->state = LINK_CLOSING;
	peer->closed = peer->way == NIC_PEER_NONE && !peer->loop;
	if (!peer->closed)
		link_order(peer, LINK_DUE_CLOSE);
	link_peer_let_go(p, peer);
}

void link_peer_kill(struct link_peer *peer, int error)
{
	atomic_store_explicit(&peer->dead_why, error, memory_order_relaxed);
	link_order(peer, LINK_DUE_DEAD);
}

void link_step_soon(struct link_port *p, uint64_t at)
{
	if (at < p->next_at)
		p->next_at = at;
}

/* ---- packets of the set-up ---- */

/* Leaves it to the shard; when that has not taken the one before yet, it is repeated later. */
static bool setup_begin(struct link_peer *peer)
{
	return !atomic_load_explicit(&peer->setup_full, memory_order_acquire); /* pairs with peer_setup() */
}

static void setup_post(struct link_peer *peer, uint32_t len)
{
	peer->setup_len = len;
	atomic_store_explicit(&peer->setup_full, true, memory_order_release);
	link_order(peer, LINK_DUE_SETUP);
}

void link_say_words(struct link_peer *peer, enum wire_kind kind)
{
	if (setup_begin(peer))
		setup_post(peer, link_words_write(peer->setup, peer, peer->queue, kind, peer->want, peer->path,
						  peer->words, peer->words_len));
}

void link_say_no(struct link_peer *peer, enum wire_kind kind, int error, uint32_t path)
{
	if (setup_begin(peer))
		setup_post(peer, link_no_write(peer->setup, kind, peer->id_there, peer->token_there, error, path,
					       peer->queue->crc));
}

/* HELLO or WELCOME, again and again. */
void link_repeat(struct link_port *p, struct link_peer *peer, uint64_t now)
{
	link_say_words(peer, peer->accepted ? WIRE_WELCOME : WIRE_HELLO);
	peer->hellos++;
	peer->repeat_at = now + peer->repeat_ns;
	peer->repeat_ns += peer->repeat_ns / 2;
	if (peer->repeat_ns > FAR_LINK_HELLO_NS_MAX)
		peer->repeat_ns = FAR_LINK_HELLO_NS_MAX;
	link_step_soon(p, peer->repeat_at);
}

/* ---- events ---- */

void link_report_failed(struct link_port *p, struct link_peer *peer, int error, const char *text)
{
	struct nic_event ev = {
		.type = NIC_EVENT_FAILED, .peer = NIC_PEER_NONE, .user = peer->user, .error = error, .text = text};
	link_peer_end(p, peer);
	p->event(p->ctx, &ev);
}

void link_failed(struct link_port *p, struct link_peer *peer, int error)
{
	char text[NIC_TEXT_BYTES_MAX], at[160];
	p->lower->ops->address_text(&peer->addr, at, sizeof at);
	if (error == -ESTALE)
		snprintf(text, sizeof text, "%s: who listens at %s is not that worker any more", p->ops.name, at);
	else if (error == -ECHRNG)
		snprintf(text, sizeof text, "%s: the set-up was refused by %s: it has no queue %u", p->ops.name, at,
			 peer->want);
	else if (error == -ETIMEDOUT)
		snprintf(text, sizeof text,
			 "%s: no answer from %s to %u packets; is the worker alive, and is the way to it open both "
			 "ways (firewall, address translation)?",
			 p->ops.name, at, peer->hellos);
	else if (error == -EHOSTUNREACH)
		snprintf(text, sizeof text, "%s: none of %u paths to %s leads to its queue %u", p->ops.name,
			 peer->paths_tried, at, peer->want);
	else
		snprintf(text, sizeof text, "%s: the set-up was refused by %s: %s", p->ops.name, at, strerror(-error));
	link_report_failed(p, peer, error, text);
}

void link_report_up(struct link_port *p, struct link_peer *peer)
{
	struct nic_event ev = {.type = NIC_EVENT_UP,
			       .peer = peer->index,
			       .queue = peer->owner,
			       .user = peer->user,
			       .hello = peer->hello,
			       .hello_len = peer->hello_len};
	uncount(p, peer);
	peer->state = LINK_UP;
	p->event(p->ctx, &ev);
}

void link_report_moved(struct link_port *p, struct link_peer *peer)
{
	struct nic_event ev = {.type = NIC_EVENT_MOVED, .peer = peer->index, .queue = peer->owner, .user = peer->user};
	p->event(p->ctx, &ev);
}

void link_report_down(struct link_port *p, struct link_peer *peer, int error)
{
	char text[NIC_TEXT_BYTES_MAX];
	const char *why = error == -ECONNRESET  ? "the peer has ended the connection"
			  : error == -ESTALE    ? "the peer does not know the connection any more"
			  : error == -ETIMEDOUT ? "the peer was not heard of for too long"
			  : error == -EMSGSIZE
				  ? "the way to the peer has become narrower than any may be; raise its MTU"
				  : "the peer broke the protocol";
	snprintf(text, sizeof text, "%s: %s", p->ops.name, why);
	struct nic_event ev = {.type = NIC_EVENT_DOWN,
			       .peer = peer->index,
			       .queue = peer->owner,
			       .user = peer->user,
			       .error = error,
			       .text = text};
	peer->settled = true;
	peer->repeat_at = peer->deadline = UINT64_MAX;
	peer->state = LINK_DOWN;
	p->event(p->ctx, &ev);
}
