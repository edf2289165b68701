/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A librdmacm of the tests' own beside fake_verbs.c: set-ups travel over TCP on loopback, so it also works between
 * processes. A device of iWARP connects its pairs by itself; of others the caller does that.
 */
#include "fake_parts.h"
#include "nic/verbs/cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* ROOM: that librdmacm leaves in a request of RoCE. */
enum { WORDS = 64, ROOM = 56, REQUEST = 1, REPLY, REJECT, READY };

struct message {
	uint32_t kind, qpn, len;
	uint8_t words[WORDS];
};

struct channel {
	struct rdma_event_channel base;
	int event_fd;
	struct event *first, **last;
	struct id *ids;
};

struct id {
	struct rdma_cm_id base;
	struct channel *channel;
	struct id *listener, *next;
	int socket;
	uint16_t service;
	bool listens, half, active, over;
	uint32_t qpn, peer, unacked;
};

struct event {
	struct rdma_cm_event base;
	struct message said;
	struct event *next;
};

struct fake_cm fake_cm;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;
static struct ibv_context contexts[FAKE_DEVICES_MAX];

static bool iwarp(void)
{
	return fake_verbs.transport == IBV_TRANSPORT_IWARP;
}

static int fails(int error)
{
	errno = error;
	return -1;
}

static struct rdma_event_channel *create_channel(void)
{
	errno = fake_cm.channel_error;
	struct channel *ch = errno ? NULL : calloc(1, sizeof *ch);
	if (!ch)
		return NULL;
	struct epoll_event ev = {.events = EPOLLIN};
	ch->base.fd = epoll_create1(EPOLL_CLOEXEC);
	ch->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ch->last = &ch->first;
	epoll_ctl(ch->base.fd, EPOLL_CTL_ADD, ch->event_fd, &ev);
	fake_cm.channels++;
	return &ch->base;
}

static void destroy_channel(struct rdma_event_channel *channel)
{
	struct channel *ch = (struct channel *)channel;
	if (ch->ids || ch->first)
		abort(); /* the real one would leave them without one */
	close(ch->event_fd);
	close(ch->base.fd);
	free(ch);
	fake_cm.channels--;
}

/* ---- events; with the lock ---- */

static void say(struct id *id, enum rdma_cm_event_type type, int status, const struct message *said)
{
	struct event *e = calloc(1, sizeof *e);
	e->base.id = &id->base;
	e->base.event = type;
	e->base.status = status;
	if (said) {
		e->said = *said;
		e->base.param.conn.private_data = e->said.words;
		e->base.param.conn.private_data_len = (uint8_t)said->len;
	}
	*id->channel->last = e;
	id->channel->last = &e->next;
	eventfd_write(id->channel->event_fd, 1);
}

static void watch(struct id *id)
{
	struct epoll_event ev = {.events = EPOLLIN};
	epoll_ctl(id->channel->base.fd, EPOLL_CTL_ADD, id->socket, &ev);
}

static struct id *id_new(struct channel *ch, void *context)
{
	struct id *id = calloc(1, sizeof *id);
	id->base.channel = &ch->base;
	id->base.context = context;
	id->base.port_num = 1;
	id->channel = ch;
	id->socket = -1;
	id->next = ch->ids;
	ch->ids = id;
	return id;
}

static void unlink_id(struct id *id)
{
	for (struct id **at = &id->channel->ids; *at; at = &(*at)->next)
		if (*at == id) {
			*at = id->next;
			return;
		}
}

static void accept_one(struct id *listener)
{
	int fd = accept4(listener->socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return;
	struct id *id = id_new(listener->channel, listener->base.context);
	id->socket = fd;
	id->half = true;
	id->listener = listener;
	watch(id);
}

static void is_over(struct id *id)
{
	epoll_ctl(id->channel->base.fd, EPOLL_CTL_DEL, id->socket, NULL);
	id->over = true;
	if (id->half) {
		unlink_id(id);
		close(id->socket);
		free(id);
		return;
	}
	say(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
}

static void hear(struct id *id)
{
	struct message m;
	ssize_t n = recv(id->socket, &m, sizeof m, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != (ssize_t)sizeof m) {
		is_over(id);
		return;
	}
	switch (m.kind) {
	case REQUEST:
		id->half = false;
		id->peer = m.qpn;
		fake_cm.ids++;
		say(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &m);
		break;
	case REPLY:
		id->peer = m.qpn;
		if (iwarp())
			fake_pair_connect(id->qpn, id->peer);
		say(id, iwarp() ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &m);
		break;
	case REJECT:
		say(id, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, &m);
		break;
	case READY:
		say(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
		break;
	}
}

static void look(struct channel *ch)
{
	for (struct id *id = ch->ids, *next; id; id = next) {
		next = id->next;
		if (id->socket < 0 || id->over)
			continue;
		if (id->listens)
			accept_one(id);
		else
			hear(id);
	}
}

static int get_event(struct rdma_event_channel *channel, struct rdma_cm_event **out)
{
	struct channel *ch = (struct channel *)channel;
	eventfd_t ignored;
	pthread_mutex_lock(&fake_lock);
	if (!ch->first) {
		eventfd_read(ch->event_fd, &ignored);
		look(ch);
	}
	struct event *e = ch->first;
	if (e) {
		ch->first = e->next;
		if (!ch->first)
			ch->last = &ch->first;
		((struct id *)e->base.id)->unacked++;
		*out = &e->base;
	}
	pthread_mutex_unlock(&fake_lock);
	return e ? 0 : fails(EAGAIN);
}

static int ack_event(struct rdma_cm_event *event)
{
	pthread_mutex_lock(&fake_lock);
	((struct id *)event->id)->unacked--;
	pthread_cond_broadcast(&acked);
	pthread_mutex_unlock(&fake_lock);
	free((struct event *)event);
	return 0;
}

/* ---- ids ---- */

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
		     enum rdma_port_space ps)
{
	(void)ps;
	pthread_mutex_lock(&fake_lock);
	*out = &id_new((struct channel *)channel, context)->base;
	pthread_mutex_unlock(&fake_lock);
	fake_cm.ids++;
	return 0;
}

static int destroy_id(struct rdma_cm_id *base)
{
	struct id *id = (struct id *)base;
	struct channel *ch = id->channel;
	pthread_mutex_lock(&fake_lock);
	unlink_id(id);
	for (struct event **at = &ch->first, *e; (e = *at);) {
		if (e->base.id != base) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		if (ch->last == &e->next)
			ch->last = at;
		free(e);
	}
	for (struct id *other = ch->ids, *next; other; other = next) {
		next = other->next;
		if (!other->half || other->listener != id)
			continue;
		unlink_id(other);
		close(other->socket);
		free(other);
	}
	while (id->unacked)
		pthread_cond_wait(&acked, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
	if (id->socket >= 0)
		close(id->socket);
	free(id);
	fake_cm.ids--;
	return 0;
}

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct sockaddr_in in = {0};
	struct sockaddr_in6 in6 = {0};
	memcpy(&in, addr, sizeof in);
	if (addr->sa_family == AF_INET6)
		memcpy(&in6, addr, sizeof in6);
	if (addr->sa_family == AF_INET ? in.sin_addr.s_addr != htonl(INADDR_LOOPBACK)
				       : !IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr))
		return fails(EADDRNOTAVAIL);
	contexts[0].device = &fake_devices[0];
	id->verbs = &contexts[0];
	return 0;
}

static int listen_on(struct rdma_cm_id *base, int backlog)
{
	struct id *id = (struct id *)base;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	id->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (id->socket < 0 || bind(id->socket, (struct sockaddr *)&at, len) < 0 || listen(id->socket, backlog) < 0 ||
	    getsockname(id->socket, (struct sockaddr *)&at, &len) < 0)
		return -1;
	id->service = at.sin_port;
	id->listens = true;
	watch(id);
	return 0;
}

static __be16 src_port(struct rdma_cm_id *id)
{
	return ((struct id *)id)->service;
}

static int resolve_addr(struct rdma_cm_id *base, struct sockaddr *from, struct sockaddr *to, int timeout_ms)
{
	struct id *id = (struct id *)base;
	struct sockaddr_in in;
	(void)from;
	(void)timeout_ms;
	memcpy(&in, to, sizeof in); /* ports are in the same place of both families */
	id->service = in.sin_port;
	pthread_mutex_lock(&fake_lock);
	say(id, fake_cm.addr_error ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED,
	    fake_cm.addr_error ? -ENETUNREACH : 0, NULL);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

static int resolve_route(struct rdma_cm_id *base, int timeout_ms)
{
	(void)timeout_ms;
	pthread_mutex_lock(&fake_lock);
	say((struct id *)base, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

static int init_attr(struct rdma_cm_id *base, struct ibv_qp_attr *attr, int *mask)
{
	*mask = IBV_QP_STATE;
	if (attr->qp_state == IBV_QPS_RTR) {
		attr->dest_qp_num = ((struct id *)base)->peer;
		*mask |= IBV_QP_DEST_QPN;
	}
	return 0;
}

static int tell(struct id *id, uint32_t kind, const void *words, size_t len)
{
	struct message m = {.kind = kind, .qpn = id->qpn, .len = (uint32_t)len};
	if (len > (kind == REQUEST ? ROOM : WORDS))
		return fails(EINVAL);
	if (len)
		memcpy(m.words, words, len);
	if (fake_cm.spoil && (kind == REQUEST || kind == REPLY))
		fake_cm.spoil(kind == REQUEST, m.words, &m.len);
	return send(id->socket, &m, sizeof m, MSG_NOSIGNAL) == (ssize_t)sizeof m ? 0 : -1;
}

static int connect_now(struct id *id, const struct rdma_conn_param *param)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = id->service};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	id->qpn = param->qp_num;
	id->active = true;
	if (fake_cm.silent || connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
		close(fd);
		pthread_mutex_lock(&fake_lock);
		if (!fake_cm.silent)
			say(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
		pthread_mutex_unlock(&fake_lock);
		return 0;
	}
	pthread_mutex_lock(&fake_lock);
	id->socket = fd;
	fake_keys_look(param->private_data, param->private_data_len);
	int error = tell(id, REQUEST, param->private_data, param->private_data_len);
	watch(id);
	pthread_mutex_unlock(&fake_lock);
	return error;
}

static void connects_no_more(void *ignored)
{
	(void)ignored;
	fake_cm.connecting--;
}

/* Cancelled only where it waits, as in the kernel. */
static int connect_to(struct rdma_cm_id *base, struct rdma_conn_param *param)
{
	int error, before;
	unsigned now = ++fake_cm.connecting, most = fake_cm.connecting_most;
	while (now > most && !atomic_compare_exchange_weak(&fake_cm.connecting_most, &most, now))
		;
	fake_cm.connects++;
	pthread_cleanup_push(connects_no_more, NULL);
	if (fake_cm.connect_delay_ms)
		usleep(fake_cm.connect_delay_ms * 1000);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	error = fake_cm.connect_error ? fails(fake_cm.connect_error) : connect_now((struct id *)base, param);
	pthread_setcancelstate(before, NULL);
	pthread_cleanup_pop(1);
	return error;
}

static int establish(struct rdma_cm_id *base)
{
	return tell((struct id *)base, READY, NULL, 0);
}

static int accept_it(struct rdma_cm_id *base, struct rdma_conn_param *param)
{
	struct id *id = (struct id *)base;
	fake_cm.accepts++;
	fake_keys_look(param->private_data, param->private_data_len);
	id->qpn = param->qp_num;
	if (iwarp())
		fake_pair_connect(id->qpn, id->peer);
	if (tell(id, REPLY, param->private_data, param->private_data_len))
		return -1;
	pthread_mutex_lock(&fake_lock);
	if (iwarp())
		say(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

static int reject(struct rdma_cm_id *base, const void *words, uint8_t len)
{
	fake_cm.rejects++;
	fake_keys_look(words, len);
	return tell((struct id *)base, REJECT, words, len);
}

static int disconnect(struct rdma_cm_id *base)
{
	struct id *id = (struct id *)base;
	return id->socket >= 0 ? shutdown(id->socket, SHUT_RDWR) : fails(EINVAL);
}

const struct verbs_cm *verbs_cm_load(struct nic_err *err)
{
	static const struct verbs_cm calls = {.rdma_create_event_channel = create_channel,
					      .rdma_destroy_event_channel = destroy_channel,
					      .rdma_create_id = create_id,
					      .rdma_destroy_id = destroy_id,
					      .rdma_bind_addr = bind_addr,
					      .rdma_listen = listen_on,
					      .rdma_get_src_port = src_port,
					      .rdma_resolve_addr = resolve_addr,
					      .rdma_resolve_route = resolve_route,
					      .rdma_init_qp_attr = init_attr,
					      .rdma_connect = connect_to,
					      .rdma_establish = establish,
					      .rdma_accept = accept_it,
					      .rdma_reject = reject,
					      .rdma_disconnect = disconnect,
					      .rdma_get_cm_event = get_event,
					      .rdma_ack_cm_event = ack_event};
	if (fake_cm.absent) {
		snprintf(err->text, sizeof err->text, "no librdmacm");
		return NULL;
	}
	return &calls;
}
