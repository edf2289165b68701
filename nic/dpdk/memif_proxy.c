/* SPDX-License-Identifier: BSD-3-Clause */
/** The proxy in front of a memif server's control socket. Control thread; non-blocking. */
#include "nic/dpdk/memif_proxy.h"

#include "nic/dpdk/host_error.h"

#include <errno.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#define MESSAGE_MAX 256 /* memif's messages have 128 bytes */
#define FDS_MAX     4   /* and at most one descriptor */

struct pair {
	int client, server; /* −1: closed, or not connected yet */
	bool used;
	bool server_replied; /* the server has sent its first message */
};

struct memif_proxy {
	struct memif_proxy_address front, back;
	int listener, epoll;
	bool any_user;
	bool listener_paused; /* no entry is free; the listener is not polled */
	struct pair pairs[MEMIF_PROXY_CLIENTS_MAX];
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void epoll_add(const struct memif_proxy *r, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
	epoll_ctl(r->epoll, EPOLL_CTL_ADD, fd, &ev);
}

/* ---- forwarding ---- */

/* A message of memif's control socket with its descriptors, and the headers for recvmsg() and sendmsg(). */
struct message {
	struct msghdr head;
	struct iovec part;
	char bytes[MESSAGE_MAX];
	alignas(struct cmsghdr) char control[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

static ssize_t receive(int fd, struct message *m)
{
	m->part = (struct iovec){m->bytes, sizeof m->bytes};
	m->head = (struct msghdr){
		.msg_iov = &m->part, .msg_iovlen = 1, .msg_control = m->control, .msg_controllen = sizeof m->control};
	ssize_t n;
	do
		n = recvmsg(fd, &m->head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	return n;
}

static void close_received(struct message *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m->head); c; c = CMSG_NXTHDR(&m->head, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			close(fd);
		}
	}
}

/* Forwards one message: 1; nothing to read: 0; end of the stream: −1. A message that cannot be delivered is dropped;
 * the end of its receiver is noticed later. */
static int forward_message(int from, int to)
{
	struct message m;
	ssize_t n = receive(from, &m);
	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	bool whole = !(m.head.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
	if (n > 0 && whole && to >= 0) {
		m.part.iov_len = (size_t)n;
		m.head.msg_flags = 0;
		if (m.head.msg_controllen == 0)
			m.head.msg_control = NULL;
		whole = sendmsg(to, &m.head, MSG_DONTWAIT | MSG_NOSIGNAL) == n || errno == EPIPE || errno == ECONNRESET;
	}
	close_received(&m);
	return n > 0 && whole ? 1 : -1;
}

/* ---- connections ---- */

static bool connect_server(struct memif_proxy *r, struct pair *p)
{
	p->server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (p->server < 0)
		return false;
	if (connect(p->server, (struct sockaddr *)&r->back.un, r->back.len) < 0) {
		close_fd(&p->server);
		return false;
	}
	epoll_add(r, p->server);
	epoll_add(r, p->client);
	return true;
}

bool memif_proxy_is_other_user(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof peer;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid();
}

static struct pair *pair_new(struct memif_proxy *r)
{
	for (unsigned i = 0; i < MEMIF_PROXY_CLIENTS_MAX; i++)
		if (!r->pairs[i].used)
			return &r->pairs[i];
	return NULL;
}

static void accept_all(struct memif_proxy *r)
{
	struct pair *p;
	bool listener_paused = !pair_new(r);
	if (listener_paused != r->listener_paused) {
		struct epoll_event ev = {.events = listener_paused ? 0 : EPOLLIN, .data.fd = r->listener};
		epoll_ctl(r->epoll, EPOLL_CTL_MOD, r->listener, &ev);
		r->listener_paused = listener_paused;
	}
	while ((p = pair_new(r))) {
		int fd = accept4(r->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		if (!r->any_user && memif_proxy_is_other_user(fd)) {
			close(fd);
			continue;
		}
		*p = (struct pair){.client = fd, .server = -1, .used = true};
	}
}

static bool forward_pair(struct memif_proxy *r, struct pair *p)
{
	bool moved = false;
	int n;
	if (p->server < 0) {
		if (!connect_server(r, p))
			return false;
		moved = true;
	}
	while (p->server >= 0 && (n = forward_message(p->server, p->client)) != 0) {
		p->server_replied = true;
		if (n < 0)
			close_fd(&p->server);
	}
	while (p->client >= 0 && p->server >= 0 && (n = forward_message(p->client, p->server)) != 0) {
		moved = true;
		if (n < 0)
			close_fd(&p->client);
	}
	/* A server that has not sent its first message would abort on a disconnect. */
	if (p->client < 0 && p->server >= 0 && p->server_replied) {
		close_fd(&p->server);
		moved = true;
	}
	if (p->server < 0) {
		close_fd(&p->client);
		p->used = false;
	}
	return moved;
}

bool memif_proxy_run(struct memif_proxy *r)
{
	bool moved = false;
	accept_all(r);
	for (unsigned i = 0; i < MEMIF_PROXY_CLIENTS_MAX; i++)
		if (r->pairs[i].used)
			moved = forward_pair(r, &r->pairs[i]) || moved;
	accept_all(r); /* entries may have become free */
	return moved;
}

int memif_proxy_fd(const struct memif_proxy *r)
{
	return r->epoll;
}

/* ---- open and close ---- */

static int remove_stale_socket(const struct memif_proxy_address *at, struct nic_err *err)
{
	struct stat st;
	const char *path = at->un.sun_path;
	if (at->abstract || lstat(path, &st) < 0)
		return 0;
	/* A socket of another type, so that a live server does not notice the connect: EPROTOTYPE. */
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool dead = S_ISSOCK(st.st_mode) && fd >= 0 && connect(fd, (const struct sockaddr *)&at->un, at->len) < 0 &&
		    errno == ECONNREFUSED;
	close_fd(&fd);
	if (dead && unlink(path) == 0)
		return 0;
	return host_error(err, -EADDRINUSE, "dpdk: %s exists already: %s", path,
			  S_ISSOCK(st.st_mode) ? "another process is memif's server there; use another socket= here"
					       : "it is not a socket; use another socket=");
}

int memif_proxy_open(const struct memif_proxy_address *front, const struct memif_proxy_address *back, bool any_user,
		     struct memif_proxy **out, struct nic_err *err)
{
	int error = remove_stale_socket(front, err);
	struct memif_proxy *r = error ? NULL : calloc(1, sizeof *r);
	if (!r)
		return error ? error : host_error(err, -ENOMEM, "dpdk: out of memory");
	r->front = *front;
	r->back = *back;
	r->any_user = any_user;
	r->epoll = epoll_create1(EPOLL_CLOEXEC);
	r->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	bool bound = r->epoll >= 0 && r->listener >= 0 && (any_user || fchmod(r->listener, 0600) == 0) &&
		     bind(r->listener, (const struct sockaddr *)&front->un, front->len) == 0;
	if (!bound || listen(r->listener, (int)MEMIF_PROXY_CLIENTS_MAX) < 0) {
		error = errno;
		r->front.abstract = r->front.abstract || !bound; /* not bound: the file is not ours to remove */
		memif_proxy_close(r);
		return host_error(err, -error, "dpdk: memif's server cannot listen at %s%s: %s%s",
				  front->abstract ? "@" : "", front->un.sun_path + front->abstract, strerror(error),
				  error == EADDRINUSE ? "; another process listens there" : "");
	}
	epoll_add(r, r->listener);
	*out = r;
	return 0;
}

void memif_proxy_close(struct memif_proxy *r)
{
	for (unsigned i = 0; i < MEMIF_PROXY_CLIENTS_MAX; i++)
		if (r->pairs[i].used) {
			close_fd(&r->pairs[i].client);
			close_fd(&r->pairs[i].server);
		}
	if (!r->front.abstract)
		unlink(r->front.un.sun_path);
	close_fd(&r->listener);
	close_fd(&r->epoll);
	free(r);
}
