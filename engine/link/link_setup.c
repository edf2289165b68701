/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Connections, as the control core sees them. The connecting side makes a place to send to and repeats HELLO until it
 * is answered; the accepting side makes one to the address in HELLO, asks the engine, and answers WELCOME or REFUSED.
 * The first packet with its token tells the accepting side that WELCOME has come; until then it repeats it, and its
 * messages wait.
 *
 * Where a hash of the path decides at which queue a packet comes, either side answers WRONG_QUEUE to a HELLO or WELCOME
 * at another queue than the one it is for, and the sender tries the next path.
 *
 * What strangers can cost: who does not know the port's identity, a random number that is published to the group only,
 * gets one short answer, from one of FAR_LINK_STRANGERS_MAX entries that live for the time that it takes to send it;
 * while they are taken, nothing. Who knows it is a member, and has at most FAR_LINK_HALF_OPEN_MAX set-ups undecided.
 */
#include "link/link_port.h"

#include "base/random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct link_port *port_of(struct nic_port *port)
{
	return (struct link_port *)port;
}

/* ---- peers ---- */

static struct link_peer *peer_new(struct link_port *p, unsigned queue, enum link_state state)
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
	peer->token = (random_u64() & ~(uint64_t)(FAR_LINK_PEERS_MAX - 1)) | i;
	if (peer->token == 0)
		peer->token = FAR_LINK_PEERS_MAX;
	peer->index = i;
	peer->state = state;
	peer->owner = queue;
	peer->queue = p->queues[queue];
	peer->lower_peer = peer->lower_next = peer->way = peer->way_old = NIC_PEER_NONE;
	peer->deadline = peer->repeat_at = UINT64_MAX;
	peer->repeat_ns = FAR_LINK_HELLO_NS;
	return peer;
}

/* What only open connections have: some 350 KiB of which the pages that are used become memory. */
static bool rings_make(struct link_peer *peer)
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
static void order(struct link_peer *peer, uint32_t due)
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

static void peer_free(struct link_port *p, struct link_peer *peer)
{
	uncount(p, peer);
	link_rings_free(peer);
	peer->state = LINK_FREE;
}

static void way_drop(struct link_port *p, uint32_t *way)
{
	if (*way != NIC_PEER_NONE)
		p->lower->ops->drop(p->lower, *way);
	*way = NIC_PEER_NONE;
}

/* When neither the shard nor the driver below has to do with it any more. */
static void peer_let_go(struct link_port *p, struct link_peer *peer)
{
	if (!peer->closed || peer->lower_pending)
		return;
	way_drop(p, &peer->way_old);
	way_drop(p, &peer->way);
	peer_free(p, peer);
}

/* A HELLO of this set-up that comes late is not to begin a new one. */
static void remember(struct link_port *p, const struct link_peer *peer, int error)
{
	uint32_t at = p->refused_at++ % FAR_LINK_REFUSED_KEPT;
	p->refused[at].id = peer->id_there;
	p->refused[at].token = peer->token_there;
	p->refused[at].error = error;
}

static void peer_end(struct link_port *p, struct link_peer *peer)
{
	if (peer->state == LINK_CLOSING)
		return;
	if (peer->accepted && (peer->state == LINK_UP || peer->state == LINK_DOWN))
		remember(p, peer, -ECONNRESET);
	uncount(p, peer);
	peer->deadline = peer->repeat_at = UINT64_MAX;
	peer->state = LINK_CLOSING;
	peer->closed = peer->way == NIC_PEER_NONE && !peer->loop;
	if (!peer->closed)
		order(peer, LINK_DUE_CLOSE);
	peer_let_go(p, peer);
}

static void peer_kill(struct link_peer *peer, int error)
{
	atomic_store_explicit(&peer->dead_why, error, memory_order_relaxed);
	order(peer, LINK_DUE_DEAD);
}

static void soon(struct link_port *p, uint64_t at)
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
	order(peer, LINK_DUE_SETUP);
}

static void send_words(struct link_peer *peer, enum wire_kind kind)
{
	if (setup_begin(peer))
		setup_post(peer, link_words_write(peer->setup, peer, kind, peer->want, peer->path, peer->words,
						  peer->words_len));
}

static void send_no(struct link_peer *peer, enum wire_kind kind, int error, uint32_t path)
{
	if (setup_begin(peer))
		setup_post(peer, link_no_write(peer->setup, kind, peer->id_there, peer->token_there, error, path,
					       peer->queue->crc));
}

/* HELLO or WELCOME, again and again. */
static void repeat(struct link_port *p, struct link_peer *peer, uint64_t now)
{
	send_words(peer, peer->accepted ? WIRE_WELCOME : WIRE_HELLO);
	peer->hellos++;
	peer->repeat_at = now + peer->repeat_ns;
	peer->repeat_ns += peer->repeat_ns / 2;
	if (peer->repeat_ns > FAR_LINK_HELLO_NS_MAX)
		peer->repeat_ns = FAR_LINK_HELLO_NS_MAX;
	soon(p, peer->repeat_at);
}

/* ---- events ---- */

static void report_failed(struct link_port *p, struct link_peer *peer, int error, const char *text)
{
	struct nic_event ev = {
		.type = NIC_EVENT_FAILED, .peer = NIC_PEER_NONE, .user = peer->user, .error = error, .text = text};
	peer_end(p, peer);
	p->event(p->ctx, &ev);
}

static void failed(struct link_port *p, struct link_peer *peer, int error)
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
	report_failed(p, peer, error, text);
}

static void report_up(struct link_port *p, struct link_peer *peer)
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

static void report_down(struct link_port *p, struct link_peer *peer, int error)
{
	char text[NIC_TEXT_BYTES_MAX];
	const char *why = error == -ECONNRESET  ? "the peer has ended the connection"
			  : error == -ESTALE    ? "the peer does not know the connection any more"
			  : error == -ETIMEDOUT ? "the peer was not heard of for too long"
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

/* ---- the way there ---- */

static int way_begin(struct link_port *p, struct link_peer *peer, uint64_t deadline, struct nic_err *err)
{
	uint32_t there = peer->accepted ? peer->their_queue : peer->want;
	peer->lower_pending = true;
	peer->paths_tried++;
	int error = p->lower->ops->connect(p->lower, peer->owner, &peer->addr, NIC_ROUTE(there, peer->path), NULL, 0,
					   deadline, peer, err);
	if (error)
		peer->lower_pending = false;
	return error;
}

/* The packet came to another queue: the next path. */
static void way_next(struct link_port *p, struct link_peer *peer, uint32_t path, uint64_t now)
{
	struct nic_err err = {""};
	/* Of a path that is not tried any more, or already being replaced. */
	if (path != peer->path || peer->lower_pending || peer->way_old != NIC_PEER_NONE)
		return;
	int error = -EHOSTUNREACH;
	if (peer->paths_tried < FAR_LINK_PATHS_MAX) {
		peer->path++;
		error = way_begin(p, peer, now + FAR_LINK_HALF_OPEN_NS, &err);
	}
	if (!error)
		return;
	if (peer->state == LINK_CONNECTING)
		failed(p, peer, error);
	else
		peer_kill(peer, error);
}

/* ---- connect ---- */

int link_connect(struct nic_port *port, unsigned queue, const struct nic_addr *addr, unsigned remote_queue,
		 const void *hello, size_t hello_len, uint64_t deadline, void *user, struct nic_err *err)
{
	struct link_port *p = port_of(port);
	struct nic_addr lower;
	uint64_t id;
	if (queue >= p->queues_n)
		return link_error(err, -EINVAL, "%s: there is no queue %u; the port has %u", p->ops.name, queue,
				  p->queues_n);
	if (remote_queue >= FAR_LINK_QUEUES_MAX)
		return link_error(err, -EINVAL, "%s: no port has a queue %u; [0, %u)", p->ops.name, remote_queue,
				  FAR_LINK_QUEUES_MAX);
	if (hello_len > NIC_HELLO_BYTES_MAX)
		return link_error(err, -EINVAL, "%s: a hello of %zu bytes; at most %u", p->ops.name, hello_len,
				  NIC_HELLO_BYTES_MAX);
	if (!link_addr_split(addr, &lower, &id) || id == 0 || strcmp(addr->driver, p->ops.name))
		return link_error(err, -EINVAL, "%s: malformed address", p->ops.name);
	struct link_peer *peer = peer_new(p, queue, LINK_CONNECTING);
	if (!peer || !rings_make(peer)) {
		if (peer)
			peer_free(p, peer);
		return link_error(err, peer ? -ENOMEM : -ENOSPC, "%s: more than %u peers, or no memory for one more",
				  p->ops.name, FAR_LINK_PEERS_MAX);
	}
	peer->addr = lower;
	peer->id_there = id;
	peer->want = remote_queue;
	peer->user = user;
	peer->deadline = deadline;
	peer->words_len = (uint16_t)hello_len;
	if (hello_len)
		memcpy(peer->words, hello, hello_len);
	soon(p, deadline);
	if (id == p->id && queue == remote_queue) {
		peer->loop = true;
		peer->state = LINK_LOOPING;
		peer->hello_len = peer->words_len;
		memcpy(peer->hello, peer->words, hello_len);
		order(peer, LINK_DUE_OPEN | LINK_DUE_START);
		soon(p, 0);
		link_port_signal(p);
		return 0;
	}
	int error = 0;
	if (remote_queue >= LINK_ID_QUEUES(id)) { /* nobody would hear us */
		peer->refuse = -ECHRNG;
		peer->deadline = 0;
		soon(p, 0);
		link_port_signal(p);
	} else {
		error = way_begin(p, peer, deadline, err);
	}
	if (error)
		peer_free(p, peer);
	return error;
}

/* ---- accepting ---- */

static int refused_before(const struct link_port *p, uint64_t id, uint64_t token)
{
	for (unsigned i = 0; i < FAR_LINK_REFUSED_KEPT; i++)
		if (p->refused[i].token == token && p->refused[i].id == id)
			return p->refused[i].error;
	return 0;
}

static void refuse(struct link_port *p, struct link_peer *peer, int error, uint64_t now)
{
	if (!peer->stranger && !refused_before(p, peer->id_there, peer->token_there))
		remember(p, peer, error);
	peer->state = LINK_REFUSING;
	peer->refuse = error;
	peer->deadline = now + FAR_LINK_HALF_OPEN_NS;
	if (peer->way == NIC_PEER_NONE)
		return;
	send_no(peer, peer->refuse_reset ? WIRE_RESET : WIRE_REFUSED, error, 0);
	/* Orders are served in this sequence: the packet goes before the end. */
	peer_end(p, peer);
}

/* HELLO is at its queue, and the way back is there. */
static void decide(struct link_port *p, struct link_peer *peer, uint64_t now)
{
	size_t len = 0;
	struct nic_event ev = {.type = NIC_EVENT_HELLO,
			       .peer = NIC_PEER_NONE,
			       .queue = peer->owner,
			       .hello = peer->hello,
			       .hello_len = peer->hello_len,
			       .reply = peer->words,
			       .reply_len = &len};
	int error = rings_make(peer) ? p->event(p->ctx, &ev) : -ENOMEM;
	if (error) {
		refuse(p, peer, error, now);
		return;
	}
	peer->words_len = (uint16_t)(len < NIC_HELLO_BYTES_MAX ? len : NIC_HELLO_BYTES_MAX);
	peer->deadline = now + FAR_CONNECT_TIMEOUT_NS;
	soon(p, peer->deadline);
	order(peer, LINK_DUE_START);
	repeat(p, peer, now);
	report_up(p, peer);
}

static void stranger_counted(struct link_port *p)
{
	counter_bump(&p->refused_n);
}

/* An entry for whom we have heard of for the first time; NULL: there are too many. */
static struct link_peer *peer_answering(struct link_port *p, unsigned queue, enum link_state state,
					const struct link_words *w, bool member, uint64_t now)
{
	uint32_t most = member ? FAR_LINK_HALF_OPEN_MAX : FAR_LINK_STRANGERS_MAX;
	if (!member)
		stranger_counted(p);
	if ((member ? p->half_open_n : p->strangers_n) >= most)
		return NULL;
	struct link_peer *peer = peer_new(p, queue, state);
	if (!peer)
		return NULL;
	*(member ? &peer->half_open : &peer->stranger) = true;
	p->half_open_n += peer->half_open;
	p->strangers_n += peer->stranger;
	peer->accepted = true;
	peer->id_there = w->id;
	peer->token_there = w->token;
	peer->their_queue = w->queue;
	peer->packet_max_there = w->packet_max;
	peer->hello_len = (uint16_t)w->words_len;
	if (w->words_len)
		memcpy(peer->hello, w->words, w->words_len);
	snprintf(peer->addr.driver, sizeof peer->addr.driver, "%s", p->lower->ops->name);
	peer->addr.len = (uint16_t)w->addr_len;
	memcpy(peer->addr.blob, w->addr, w->addr_len);
	peer->deadline = now + FAR_LINK_HALF_OPEN_NS;
	soon(p, peer->deadline);
	return peer;
}

static void answer_begin(struct link_port *p, struct link_peer *peer)
{
	struct nic_err err = {""};
	if (way_begin(p, peer, peer->deadline, &err))
		peer_end(p, peer);
}

/* To somebody whose packet names no connection of ours. */
static void answer_no(struct link_port *p, unsigned queue, const struct link_words *w, bool reset, int error,
		      uint64_t now)
{
	struct link_peer *peer = peer_answering(p, queue, LINK_REFUSING, w, false, now);
	if (!peer)
		return;
	peer->refuse = error;
	peer->refuse_reset = reset;
	answer_begin(p, peer);
}

static struct link_peer *peer_accepted(const struct link_port *p, uint64_t id, uint64_t token)
{
	for (uint32_t i = 0; i < p->peers_n; i++) {
		struct link_peer *peer = p->peers[i];
		if (peer->state != LINK_FREE && peer->accepted && !peer->stranger && peer->token_there == token &&
		    peer->id_there == id)
			return peer;
	}
	return NULL;
}

static void hello_again(struct link_port *p, struct link_peer *peer, unsigned queue, uint32_t path, uint64_t now)
{
	if (peer->state == LINK_UP && !peer->settled)
		send_words(peer, WIRE_WELCOME);
	if (peer->state != LINK_ACCEPTING || peer->way == NIC_PEER_NONE || peer->lower_pending)
		return;
	if (queue == peer->owner)
		decide(p, peer, now);
	else
		send_no(peer, WIRE_WRONG_QUEUE, -EXDEV, path);
}

static void on_hello(struct link_port *p, unsigned queue, const struct wire_head *h, const struct link_words *w,
		     uint64_t now)
{
	if (be64_get(h->incarnation) != p->id) {
		answer_no(p, queue, w, false, -ESTALE, now);
		return;
	}
	struct link_peer *peer = peer_accepted(p, w->id, w->token);
	if (peer) {
		hello_again(p, peer, queue, w->path, now);
		return;
	}
	int error = refused_before(p, w->id, w->token);
	if (!error && w->want >= p->queues_n)
		error = -ECHRNG;
	unsigned owner = w->want < p->queues_n ? w->want : 0;
	peer = peer_answering(p, owner, error ? LINK_REFUSING : LINK_ACCEPTING, w, true, now);
	if (!peer)
		return; /* it says it again */
	peer->refuse = error;
	peer->rx_first = be32_get(h->packet);
	/* What to say of this HELLO when the way is there. */
	peer->came_to = queue;
	peer->came_by = w->path;
	answer_begin(p, peer);
}

/* ---- answers to us ---- */

static struct link_peer *peer_named(const struct link_port *p, const struct wire_head *h)
{
	uint64_t token = be64_get(h->token);
	uint32_t i = LINK_INDEX(token);
	struct link_peer *peer = i < p->peers_n ? p->peers[i] : NULL;
	return peer && peer->state != LINK_FREE && peer->token == token && be64_get(h->incarnation) == p->id ? peer
													     : NULL;
}

static void on_welcome(struct link_port *p, unsigned queue, const struct wire_head *h, const struct link_words *w,
		       uint64_t now)
{
	struct link_peer *peer = peer_named(p, h);
	if (!peer || peer->state == LINK_CLOSING || w->id != peer->id_there) {
		/* Our set-up was given up meanwhile: the other side must not believe in it. */
		answer_no(p, queue, w, true, -ESTALE, now);
		return;
	}
	if (peer->state == LINK_UP && !peer->accepted && queue == peer->owner)
		order(peer, LINK_DUE_ACK);
	if (peer->state != LINK_CONNECTING)
		return;
	peer->token_there = w->token;
	if (queue != peer->owner) {
		send_no(peer, WIRE_WRONG_QUEUE, -EXDEV, w->path);
		return;
	}
	peer->packet_max_there = w->packet_max;
	peer->rx_first = be32_get(h->packet);
	peer->hello_len = (uint16_t)w->words_len;
	if (w->words_len)
		memcpy(peer->hello, w->words, w->words_len);
	peer->settled = true;
	peer->repeat_at = peer->deadline = UINT64_MAX;
	order(peer, LINK_DUE_START | LINK_DUE_ACK);
	report_up(p, peer);
}

static void on_no(struct link_port *p, const struct wire_head *h, int error, uint32_t path, uint64_t now)
{
	struct link_peer *peer = peer_named(p, h);
	if (!peer)
		return;
	switch (h->kind) {
	case WIRE_REFUSED:
		if (peer->state == LINK_CONNECTING)
			failed(p, peer, error);
		break;
	case WIRE_WRONG_QUEUE:
		if (peer->state == LINK_CONNECTING || (peer->state == LINK_UP && !peer->settled))
			way_next(p, peer, path, now);
		break;
	default: /* RESET, BYE: at another queue than its own */
		if (peer->state == LINK_UP)
			peer_kill(peer, h->kind == WIRE_BYE ? -ECONNRESET : -ESTALE);
	}
}

static void on_mail(struct link_port *p, unsigned queue, const struct link_mail *mail, uint64_t now)
{
	struct wire_head h;
	struct link_words w;
	uint32_t path;
	int error;
	if (mail->len < LINK_HEAD)
		return;
	memcpy(&h, mail->bytes, sizeof h);
	const uint8_t *body = mail->bytes + LINK_HEAD;
	uint32_t len = mail->len - LINK_HEAD;
	bool has_words = h.kind == WIRE_HELLO || h.kind == WIRE_WELCOME || h.kind == WIRE_PING;
	if (has_words ? !link_words_read(body, len, &w) : !link_no_read(body, len, &error, &path)) {
		stranger_counted(p);
		return;
	}
	if (h.kind == WIRE_HELLO)
		on_hello(p, queue, &h, &w, now);
	else if (h.kind == WIRE_WELCOME)
		on_welcome(p, queue, &h, &w, now);
	else if (h.kind == WIRE_PING)
		answer_no(p, queue, &w, true, -ESTALE, now);
	else
		on_no(p, &h, error, path, now);
}

/* ---- the driver below ---- */

static void way_up(struct link_port *p, struct link_peer *peer, uint32_t lower_peer, uint64_t now)
{
	bool another = peer->way != NIC_PEER_NONE;
	peer->way_old = peer->way;
	peer->way = peer->lower_next = lower_peer;
	order(peer, another ? LINK_DUE_MOVE : LINK_DUE_OPEN);
	if (peer->state == LINK_CONNECTING || (peer->state == LINK_UP && !peer->settled))
		repeat(p, peer, now);
	else if (peer->state == LINK_REFUSING)
		refuse(p, peer, peer->refuse, now);
	else if (peer->state == LINK_ACCEPTING && peer->came_to == peer->owner)
		decide(p, peer, now);
	else if (peer->state == LINK_ACCEPTING)
		send_no(peer, WIRE_WRONG_QUEUE, -EXDEV, peer->came_by);
}

static int lower_event(void *ctx, const struct nic_event *ev)
{
	struct link_port *p = ctx;
	struct link_peer *peer = ev->user;
	if (!peer || (ev->type != NIC_EVENT_UP && ev->type != NIC_EVENT_FAILED))
		return -EPROTO;
	peer->lower_pending = false;
	if (peer->state == LINK_CLOSING) {
		if (ev->type == NIC_EVENT_UP)
			p->lower->ops->drop(p->lower, ev->peer);
		peer_let_go(p, peer);
	} else if (ev->type == NIC_EVENT_UP) {
		way_up(p, peer, ev->peer, p->now);
	} else if (peer->state == LINK_CONNECTING) {
		report_failed(p, peer, ev->error, ev->text);
	} else if (peer->state == LINK_UP) {
		peer_kill(peer, ev->error);
	} else {
		peer_end(p, peer);
	}
	return 0;
}

/* ---- step ---- */

static void news_take(struct link_port *p, struct link_peer *peer)
{
	uint32_t news = atomic_exchange_explicit(&peer->news, 0, memory_order_acquire);
	if (news & LINK_NEWS_MOVED)
		way_drop(p, &peer->way_old);
	if (news & LINK_NEWS_CONFIRMED) {
		peer->settled = true;
		peer->repeat_at = peer->deadline = UINT64_MAX;
	}
	if (news & LINK_NEWS_DOWN && peer->state == LINK_UP)
		report_down(p, peer, atomic_load_explicit(&peer->why, memory_order_relaxed));
	if (news & LINK_NEWS_CLOSED && peer->state == LINK_CLOSING) {
		peer->closed = true;
		peer_let_go(p, peer);
	}
}

static void queue_step(struct link_port *p, struct link_queue *q, uint64_t now)
{
	const struct link_mail *mail;
	uint32_t i;
	while ((i = link_board_take(&q->news)) != UINT32_MAX)
		news_take(p, p->peers[i]);
	for (unsigned n = 0; n < LINK_MAIL_SLOTS && (mail = link_mail_get(&q->mail)); n++) {
		on_mail(p, q->index, mail, now);
		link_mail_done(&q->mail);
	}
	if (link_mail_get(&q->mail)) /* the others first */
		link_port_signal(p);
}

static void peer_step(struct link_port *p, struct link_peer *peer, uint64_t now)
{
	if (peer->state == LINK_LOOPING) {
		peer->settled = true;
		peer->deadline = UINT64_MAX;
		report_up(p, peer);
		return;
	}
	if (now >= peer->deadline) {
		if (peer->state == LINK_CONNECTING)
			failed(p, peer, peer->refuse ? peer->refuse : -ETIMEDOUT);
		else if (peer->state == LINK_UP)
			peer_kill(peer, -ETIMEDOUT);
		else
			peer_end(p, peer);
		peer->deadline = UINT64_MAX;
	} else if (now >= peer->repeat_at) {
		repeat(p, peer, now);
	}
	soon(p, peer->deadline < peer->repeat_at ? peer->deadline : peer->repeat_at);
}

uint64_t link_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct link_port *p = port_of(port);
	uint64_t count;
	ssize_t cleared = read(p->event_fd, &count, sizeof count);
	(void)cleared; /* EAGAIN: nothing to clear */
	if (now == 0)
		now = clock_now(p->config.clock);
	p->event = event;
	p->ctx = ctx;
	p->now = now;
	uint64_t next = p->lower->ops->step(p->lower, now, lower_event, p);
	for (uint32_t i = 0; i < p->queues_n; i++)
		queue_step(p, p->queues[i], now);
	if (now >= p->next_at) {
		p->next_at = UINT64_MAX;
		for (uint32_t i = 0; i < p->peers_n; i++)
			if (p->peers[i]->state != LINK_FREE)
				peer_step(p, p->peers[i], now);
	}
	return next < p->next_at ? next : p->next_at;
}

void link_drop(struct nic_port *port, uint32_t number)
{
	struct link_port *p = port_of(port);
	struct link_peer *peer = number < p->peers_n ? p->peers[number] : NULL;
	if (peer && (peer->state == LINK_UP || peer->state == LINK_DOWN))
		peer_end(p, peer);
}

/* ---- the end ---- */

void link_leave(struct link_port *p)
{
	/* Nobody drives the queues any more: what was ordered and not done is done here. */
	for (uint32_t i = 0; i < p->queues_n; i++)
		link_orders_serve(p->queues[i]);
	for (uint32_t i = 0; i < p->peers_n; i++) {
		struct link_peer *peer = p->peers[i];
		if (peer->state == LINK_FREE)
			continue;
		if (peer->queue->peers[peer->index] == peer)
			link_queue_end(peer->queue, peer);
		way_drop(p, &peer->way_old);
		way_drop(p, &peer->way);
	}
}
