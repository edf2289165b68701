/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions: the higher rank connects to the lower, everybody to itself; and the mails to and from the shard. */
#include "ctl/group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAIL_RETRY_NS UINT64_C(1000000) /* after a full mailbox */
#define TAKES_MAX     64                /* mails of one step */

static void port_drop(struct group *g, unsigned port, uint32_t handle)
{
	struct nic_port *p = g->config.ports[port];
	p->ops->drop(p, handle);
}

static struct hello hello_to(const struct group *g, uint64_t incarnation)
{
	return (struct hello){.group = g->hash,
			      .world = (uint32_t)g->url.world,
			      .rank = (uint32_t)g->url.rank,
			      .from = g->config.incarnation,
			      .to = incarnation};
}

/* ---- mails ---- */

static void mail_queue(struct group *g, enum mail_type type, const struct peer *p)
{
	unsigned cap = 2 * (unsigned)g->url.world;
	g->mails[g->mails_tail++ % cap] = (struct mail){.type = type,
							.worker = (uint32_t)p->rank,
							.peer = p->handle,
							.port = p->port,
							.incarnation = g->members[p->rank].incarnation};
	g->busy = true;
}

static uint64_t mails_post(struct group *g)
{
	unsigned cap = 2 * (unsigned)g->url.world;
	for (; g->mails_head != g->mails_tail; g->mails_head++) {
		if (!g->config.post(g->config.ctx, &g->mails[g->mails_head % cap]))
			return g->now + MAIL_RETRY_NS;
		g->busy = true;
	}
	return TIME_NEVER;
}

static void peer_attach(struct peer *p)
{
	struct ctl_member *m = &p->group->members[p->rank];
	const struct nic_port *port = p->group->config.ports[p->port];
	snprintf(m->nic, sizeof m->nic, "%s", port->ops->name);
	atomic_store_explicit(&m->alive, 1, memory_order_relaxed);
	p->up_posted = true;
	mail_queue(p->group, MAIL_PEER_UP, p);
}

/* The session is over: the shard lets go first, when it ever held it. */
static void peer_die(struct peer *p, const char *why)
{
	struct group *g = p->group;
	if (p->dead)
		return;
	p->dead = true;
	atomic_store_explicit(&g->members[p->rank].alive, 0, memory_order_relaxed);
	g->busy = true;
	if (p->up_posted) {
		p->down_posted = true;
		mail_queue(g, MAIL_PEER_DOWN, p);
	} else {
		port_drop(g, p->port, p->handle);
		p->handle = NIC_PEER_NONE;
	}
	if (group_joining(g))
		group_fail(g, true, FAR_PEER_LOST, "worker \"%s\" (rank %d) was lost while joining: %s",
			   g->members[p->rank].name, p->rank, why);
	else if (group_leaving(g))
		leave_ask_bye(p);
}

static struct peer *peer_find(struct group *g, unsigned port, uint32_t handle)
{
	for (int r = 0; r < g->url.world; r++) {
		struct peer *p = &g->peers[r];
		if (p->up && p->handle == handle && p->port == port)
			return p;
	}
	return NULL;
}

static void mails_take(struct group *g)
{
	struct mail mail;
	for (int i = 0; i < TAKES_MAX && g->config.take(g->config.ctx, &mail); i++) {
		struct peer *p = mail.port < g->config.ports_n ? peer_find(g, mail.port, mail.peer) : NULL;
		g->busy = true;
		if (!p)
			continue;
		if (mail.type == MAIL_POISONED) {
			peer_die(p, "it broke the protocol");
		} else if (mail.type == MAIL_DETACHED && p->down_posted) {
			port_drop(g, p->port, p->handle);
			p->handle = NIC_PEER_NONE;
		}
	}
}

/* ---- events of the ports ---- */

static int hello_check(struct group *g, const struct nic_event *ev, struct hello *h)
{
	int rc = hello_decode(ev->hello, ev->hello_len, h);
	if (rc)
		return rc;
	if (h->group != g->hash || h->world != (uint32_t)g->url.world)
		return -EACCES;
	if (h->rank >= h->world)
		return -EPROTO;
	if (h->to != g->config.incarnation)
		return -ESTALE;
	/* Before its info is known the incarnation is taken as it says; session_begin() looks again. */
	if (g->peers[h->rank].known && h->from != g->members[h->rank].incarnation)
		return -ESTALE;
	return 0;
}

static int on_hello(struct group *g, const struct nic_event *ev)
{
	uint8_t reply[HELLO_BYTES];
	struct hello h;
	if (!group_joining(g))
		return -ECONNREFUSED;
	int rc = hello_check(g, ev, &h);
	if (rc)
		return rc;
	if ((int)h.rank <= g->url.rank || g->peers[h.rank].up)
		return -EACCES;
	struct hello mine = hello_to(g, h.from);
	hello_encode(&mine, reply);
	memcpy(ev->reply, reply, sizeof reply);
	*ev->reply_len = sizeof reply;
	return 0;
}

static void on_up(struct group *g, unsigned port, const struct nic_event *ev)
{
	struct peer *p = ev->user;
	struct hello h;
	int rc = hello_check(g, ev, &h);
	if (rc == 0 && p && (int)h.rank != p->rank)
		rc = -EPROTO;
	if (rc == 0 && !p)
		p = &g->peers[h.rank];
	if (rc || p->up || !group_joining(g)) {
		port_drop(g, port, ev->peer);
		if (rc && ev->user)
			group_fail(g, true, FAR_PROTOCOL, "worker \"%s\" (rank %d) answered the set-up wrongly: %s",
				   g->members[p->rank].name, p->rank, strerror(-rc));
		return;
	}
	p->up = true;
	p->port = port;
	p->handle = ev->peer;
	p->accepted = h.from;
	g->busy = true;
	if (p->known && g->phase == PHASE_CONNECT)
		peer_attach(p);
}

static void on_failed(struct group *g, const struct nic_event *ev)
{
	const struct peer *p = ev->user;
	const char *text = ev->text ? ev->text : strerror(-ev->error);
	if (p)
		group_fail(g, true, ev->error == -EACCES ? FAR_DENIED : FAR_UNREACHABLE,
			   "worker \"%s\" cannot connect to worker \"%s\" (rank %d): %s", g->name,
			   g->members[p->rank].name, p->rank, text);
}

static int port_event(void *ctx, const struct nic_event *ev)
{
	struct group_port *port = ctx;
	struct group *g = port->group;
	struct peer *p;
	g->busy = true;
	switch (ev->type) {
	case NIC_EVENT_HELLO:
		return on_hello(g, ev);
	case NIC_EVENT_UP:
		on_up(g, port->index, ev);
		break;
	case NIC_EVENT_DOWN:
		p = peer_find(g, port->index, ev->peer);
		if (p)
			peer_die(p, ev->text ? ev->text : strerror(-ev->error));
		break;
	case NIC_EVENT_FAILED:
		on_failed(g, ev);
		break;
	}
	return 0;
}

/* ---- set-up ---- */

static void drivers_list(const struct nic_addr *addrs, unsigned n, char *out, size_t cap)
{
	size_t len = 0;
	snprintf(out, cap, "none");
	for (unsigned i = 0; i < n && len < cap; i++)
		len += (size_t)snprintf(out + len, cap - len, "%s%s", i ? ", " : "", addrs[i].driver);
}

/* The first of our ports, best first, whose driver the peer has too; NULL: the join has failed. */
static const struct nic_addr *port_choose(struct group *g, const struct peer *p, unsigned *port)
{
	const struct peer *self = &g->peers[g->url.rank];
	char here[80], there[80];
	for (unsigned i = 0; i < g->config.ports_n; i++) {
		for (unsigned a = 0; a < p->addrs_n; a++) {
			if (strcmp(p->addrs[a].driver, g->config.ports[i]->ops->name))
				continue;
			*port = i;
			return &p->addrs[a];
		}
	}
	drivers_list(self->addrs, self->addrs_n, here, sizeof here);
	drivers_list(p->addrs, p->addrs_n, there, sizeof there);
	group_fail(g, true, FAR_UNREACHABLE,
		   "workers \"%.100s\" and \"%.100s\" share no NIC driver: %s on one side, %s on the other", g->name,
		   g->members[p->rank].name, here, there);
	return NULL;
}

static void peer_connect(struct peer *p)
{
	struct group *g = p->group;
	struct nic_err err = {.text = ""};
	uint8_t words[HELLO_BYTES];
	unsigned port = 0;
	const struct nic_addr *addr = port_choose(g, p, &port);
	if (!addr || p->rank > g->url.rank)
		return;
	struct hello h = hello_to(g, g->members[p->rank].incarnation);
	hello_encode(&h, words);
	struct nic_port *nic = g->config.ports[port];
	int rc = nic->ops->connect(nic, 0, addr, 0, words, sizeof words, g->init_deadline, p, &err);
	if (rc)
		group_fail(g, true, rc == -EACCES ? FAR_DENIED : FAR_UNREACHABLE,
			   "worker \"%.100s\" cannot connect to worker \"%.100s\" (rank %d): %s", g->name,
			   g->members[p->rank].name, p->rank, err.text[0] ? err.text : strerror(-rc));
}

void session_begin(struct group *g)
{
	for (int r = 0; r < g->url.world && group_joining(g); r++) {
		struct peer *p = &g->peers[r];
		if (p->up && p->accepted != g->members[r].incarnation) {
			/* Somebody else's session, from before its rank was claimed: the rightful one comes yet. */
			port_drop(g, p->port, p->handle);
			p->up = false;
			p->handle = NIC_PEER_NONE;
		}
		if (p->up)
			peer_attach(p);
		peer_connect(p);
	}
}

static bool sessions_complete(const struct group *g)
{
	for (int r = 0; r < g->url.world; r++) {
		if (!g->peers[r].up_posted || g->peers[r].dead)
			return false;
	}
	return g->mails_head == g->mails_tail;
}

uint64_t session_step(struct group *g)
{
	uint64_t next = TIME_NEVER;
	for (unsigned i = 0; i < g->config.ports_n; i++) {
		struct nic_port *port = g->config.ports[i];
		uint64_t at = port->ops->step(port, g->now, port_event, &g->ports[i]);
		next = at < next ? at : next;
	}
	mails_take(g);
	uint64_t at = mails_post(g);
	if (g->phase == PHASE_CONNECT && sessions_complete(g))
		g->phase = PHASE_READY;
	return at < next ? at : next;
}
