/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Over etcd, whose leases outlast a process: watches the processes of the members on this host. Control thread. Each
 * member listens at an abstract Unix socket that its incarnation names; a connection shows the other members its
 * process, whose end they see by a pidfd. No driver and no session takes part. Members of other hosts, users, network
 * and pid namespaces are not found: their leases count.
 */
#include "control/group.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EVENTS_MAX  16 /* of one epoll_wait(); the others stay pending */
#define ACCEPTS_MAX 64 /* of a step: any process on this host may connect, as fast as it can */

struct host_watch {
	int epoll;    /* in the set of the control thread */
	int listener; /* −1: none */
	bool due;     /* infos were read since the last step */
	struct watched {
		uint64_t incarnation; /* that was looked for; 0: none */
		int pidfd;            /* −1: its process was not found */
	} peers[];                    /* [0, world) */
};

static socklen_t address_of(struct sockaddr_un *at, uint64_t incarnation)
{
	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	int n = snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "farcall/%016" PRIx64, incarnation);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
	return -1;
}

static bool set_events(const struct host_watch *w, int op, int fd, uint32_t events, int number)
{
	struct epoll_event ev = {.events = events, .data.u32 = (uint32_t)number};
	return epoll_ctl(w->epoll, op, fd, &ev) == 0;
}

/* Events of the listener have the number `world`. Edge-triggered: a failing accept() must not keep the thread awake. */
static bool listener_await(const struct group *g, const struct host_watch *w, int op)
{
	return set_events(w, op, w->listener, EPOLLIN | EPOLLET, g->url.world);
}

static struct host_watch *watch_new(struct group *g)
{
	struct host_watch *w = calloc(1, sizeof *w + (size_t)g->url.world * sizeof w->peers[0]);
	if (!w)
		return NULL;
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll < 0 || g->config.net->ops->watch(g->config.net, w->epoll)) {
		close_fd(w->epoll);
		free(w);
		return NULL;
	}
	w->listener = -1;
	for (int r = 0; r < g->url.world; r++)
		w->peers[r].pidfd = -1;
	return w;
}

void host_watch_listen(struct group *g)
{
	struct sockaddr_un at;
	socklen_t len = address_of(&at, g->config.incarnation);
	if (g->url.scheme != URL_ETCD || (!g->host_watch && !(g->host_watch = watch_new(g))))
		return;
	struct host_watch *w = g->host_watch;
	close_fd(w->listener);
	w->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (w->listener >= 0 && (bind(w->listener, (const struct sockaddr *)(const void *)&at, len) ||
				 listen(w->listener, SOMAXCONN) || !listener_await(g, w, EPOLL_CTL_ADD)))
		w->listener = close_fd(w->listener);
}

/* Half of the descriptors are for the application. */
static bool is_in_our_half(int fd)
{
	struct rlimit limit;
	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd < limit.rlim_cur / 2;
}

/* The process that listens for the incarnation, as a pidfd; −1: none of this user that is visible here, or no
 * descriptor. */
static int process_of(uint64_t incarnation)
{
	struct sockaddr_un at;
	struct ucred peer;
	socklen_t len = address_of(&at, incarnation), peer_len = sizeof peer;
	int pidfd = -1, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* Another user may listen at any name. The pid is 0 outside of this pid namespace. */
	if (fd >= 0 && connect(fd, (const struct sockaddr *)(const void *)&at, len) == 0 &&
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) == 0 && peer.uid == geteuid() && peer.pid > 0)
		pidfd = pidfd_open(peer.pid, 0);
	close_fd(fd);
	return pidfd < 0 || is_in_our_half(pidfd) ? pidfd : close_fd(pidfd);
}

/* A child of this process may have the descriptor, too: closing it would leave it in the set. */
static void unwatch(const struct host_watch *w, struct watched *at)
{
	if (at->pidfd >= 0)
		epoll_ctl(w->epoll, EPOLL_CTL_DEL, at->pidfd, NULL);
	at->pidfd = close_fd(at->pidfd);
}

/* Looks for the process of the member's incarnation. */
static void look(struct host_watch *w, const struct peer *p)
{
	struct watched *at = &w->peers[p->rank];
	uint64_t incarnation = p->known && !p->dead ? p->group->members[p->rank].incarnation : 0;
	if (at->incarnation == incarnation || peer_is_self(p))
		return;
	unwatch(w, at);
	at->incarnation = incarnation;
	at->pidfd = incarnation ? process_of(incarnation) : -1;
	if (at->pidfd >= 0 && !set_events(w, EPOLL_CTL_ADD, at->pidfd, EPOLLIN, p->rank))
		at->pidfd = close_fd(at->pidfd);
}

static void process_ended(struct peer *p)
{
	struct host_watch *w = p->group->host_watch;
	struct watched *at = &w->peers[p->rank];
	unwatch(w, at);
	if (at->incarnation != p->group->members[p->rank].incarnation)
		return;
	incarnation_died(p);
	peer_lost(p, "its process is gone, or it has left the group");
}

/* What is left wakes the thread again. */
static void accept_some(const struct group *g, const struct host_watch *w)
{
	int fd, n = 0;
	for (; n < ACCEPTS_MAX && (fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0; n++)
		close(fd);
	if (n == ACCEPTS_MAX)
		listener_await(g, w, EPOLL_CTL_MOD);
}

void host_watch_due(struct group *g)
{
	if (g->host_watch)
		g->host_watch->due = true;
}

void host_watch_step(struct group *g)
{
	struct host_watch *w = g->host_watch;
	struct epoll_event ev[EVENTS_MAX];
	int n;
	if (!w)
		return;
	for (int r = 0; r < g->url.world && w->due && !group_joining(g); r++)
		look(w, &g->peers[r]);
	w->due &= group_joining(g);
	do {
		n = epoll_wait(w->epoll, ev, EVENTS_MAX, 0);
		for (int i = 0; i < n; i++) {
			int number = (int)ev[i].data.u32;
			if (number < g->url.world)
				process_ended(&g->peers[number]);
			else
				accept_some(g, w);
		}
	} while (n == EVENTS_MAX);
}

void host_watch_end(struct group *g)
{
	struct host_watch *w = g->host_watch;
	g->host_watch = NULL;
	if (!w)
		return;
	for (int r = 0; r < g->url.world; r++)
		unwatch(w, &w->peers[r]);
	close_fd(w->listener);
	close_fd(w->epoll);
	free(w);
}
