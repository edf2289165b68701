/* SPDX-License-Identifier: BSD-3-Clause */
/** Connection set-up over a Unix socket. Control thread. If the group has a key, both sides prove it first. The
 * connecting side creates the pair and sends a connect request with {pair, its queue's eventfd and doorbells}. The
 * accepting side checks user, queue and descriptors, and replies with {its queue's eventfd and doorbells} or a reject.
 * The connection stays open: its hang-up reports the peer's death, across pid namespaces, too. Two queues of one port
 * are connected in the same way. */
#include "nic/shm/shm.h"
#include "nic/shm/shm_control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Limit of an accepted connection's set-up: frees what a process that sends nothing holds. The connecting side has a
 * deadline of its own. A shorter limit here would fail its attempt while it waits for a core, among many agents. */
#define CONNECT_TIMEOUT_NS UINT64_C(60000000000)

#define RETRY_NS UINT64_C(1000000) /* retry interval while the peer's backlog is full */

#define FULL_NS UINT64_C(100000000) /* pause of accept() without free descriptors */

static uint64_t monotonic_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static int watch(struct shm_port *p, struct shm_link *link)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = link->index};
	return epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, link->fd, &ev) < 0 ? -errno : 0;
}

/** True if `fd` is an eventfd, by its file type (an anonymous inode), and non-blocking, so that a poller's write to it
 * neither blocks nor raises SIGPIPE. A peer could make it blocking later and fill it, which would stop our poller; the
 * same user can do so by other means. */
static bool is_wake_fd(int fd)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	return flags >= 0 && (flags & O_NONBLOCK) && fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == 0;
}

static const char *remedy(int error)
{
	return error == -ENOMEM   ? "; each peer needs 130 MiB of address space (ulimit -v)"
	       : error == -EMFILE ? "; each peer needs two descriptors, and two more during set-up (ulimit -n)"
				  : "";
}

static void report_failed(struct shm_port *p, struct shm_link *link, int error, const char *what, nic_event_fn *event,
			  void *ctx)
{
	char text[NIC_TEXT_BYTES_MAX];
	if (error == -ECHRNG)
		snprintf(text, sizeof text, "shm: %s %s: the peer has no queue %u", what, link->to.sun_path,
			 link->remote_queue);
	else
		snprintf(text, sizeof text, "shm: %s %s: %s%s", what, link->to.sun_path, strerror(-error),
			 remedy(error));
	struct nic_event ev = {
		.type = NIC_EVENT_FAILED, .peer = NIC_PEER_NONE, .user = link->user, .error = error, .text = text};
	shm_link_free(p, link);
	event(ctx, &ev);
}

static void report_up(struct shm_port *p, struct shm_link *link, const void *handshake, size_t len, nic_event_fn *event,
		      void *ctx)
{
	struct nic_event ev = {.type = NIC_EVENT_UP,
			       .peer = link->index,
			       .queue = link->queue->index,
			       .user = link->user,
			       .handshake = handshake,
			       .handshake_len = len};
	shm_link_settled(p, link);
	link->state = SHM_LINK_UP;
	link->deadline = UINT64_MAX;
	event(ctx, &ev);
}

static int send_connect(struct shm_link *link)
{
	struct shm_control_msg message = shm_control_make(SHM_CONTROL_CONNECT, 0, link->handshake, link->handshake_len);
	message.queue = link->remote_queue;
	message.doorbell = link->bell;
	int fds[SHM_CONTROL_FDS] = {link->pair_fd, link->queue->wake_fd, link->queue->bells_fd};
	int error = shm_control_send(link->fd, &message, fds, SHM_CONTROL_FDS);
	if (!error)
		shm_close_fd(&link->pair_fd);
	return error;
}

static int send_first(struct shm_port *p, struct shm_link *link)
{
	if (!p->is_private && connect(link->fd, (struct sockaddr *)&link->to, sizeof link->to) < 0 && errno != EISCONN)
		return -errno;
	int error = p->key ? shm_auth_begin(p, link) : send_connect(link);
	if (error)
		return error;
	link->sent = true;
	return watch(p, link);
}

/* Verifies the acceptor's proof and sends the connect request. */
static void on_challenge(struct shm_port *p, struct shm_link *link, nic_event_fn *event, void *ctx)
{
	struct shm_control_msg message;
	int fds[SHM_CONTROL_FDS], got = shm_control_recv(link->fd, &message, fds);
	if (got == -EAGAIN)
		return;
	if (got > 0)
		shm_control_close_fds(fds);
	int error = got == 0 ? -ECONNRESET : got < 0 ? got : shm_challenge_take(p, link, &message);
	bool refused = got > 0 && message.kind == SHM_CONTROL_REPLY;
	if (!error)
		error = send_connect(link);
	if (error)
		report_failed(p, link, error, refused ? "connect request rejected by" : "connection set-up failed with",
			      event, ctx);
}

static void on_reply(struct shm_port *p, struct shm_link *link, nic_event_fn *event, void *ctx)
{
	struct shm_control_msg message;
	int fds[SHM_CONTROL_FDS], got = shm_control_recv(link->fd, &message, fds);
	if (got == -EAGAIN)
		return;
	int error = got == 0                                                   ? -ECONNRESET
		    : got < 0                                                  ? got
		    : message.kind == SHM_CONTROL_REPLY && message.status == 0 ? 0
		    : message.status < 0 && message.status > -4096             ? message.status
									       : -EPROTO;
	bool refused = got > 0 && error;
	if (!error && (fds[0] < 0 || fds[1] < 0 || !is_wake_fd(fds[0])))
		error = -EPROTO;
	if (!error)
		error = shm_link_bells(link, fds[1], message.doorbell);
	if (!error) {
		link->wake_fd = fds[0];
		fds[0] = -1;
		shm_pull_probe(link);
	}
	if (got > 0)
		shm_control_close_fds(fds);
	if (error)
		report_failed(p, link, error, refused ? "connect request rejected by" : "connection set-up failed with",
			      event, ctx);
	else
		report_up(p, link, message.bytes, message.len, event, ctx);
}

static void refuse(int fd, int status)
{
	struct shm_control_msg message = shm_control_make(SHM_CONTROL_REPLY, status, NULL, 0);
	shm_control_send(fd, &message, NULL, 0);
}

static int accept_one(struct shm_port *p, int fd, uint64_t now)
{
	struct shm_link *link = shm_link_new(p, SHM_LINK_ACCEPTING);
	if (!link)
		return -ENOSPC;
	link->fd = fd;
	link->deadline = now + CONNECT_TIMEOUT_NS;
	if (watch(p, link))
		shm_link_free(p, link);
	return 0;
}

/* Checks and takes the contents of a connect request: 0, or -errno, which becomes the reject. */
static int accept_connect(struct shm_port *p, struct shm_link *link, const struct shm_control_msg *message,
			  int fds[SHM_CONTROL_FDS])
{
	if (message->kind != SHM_CONTROL_CONNECT || fds[0] < 0 || fds[1] < 0 || fds[2] < 0 || !is_wake_fd(fds[1]))
		return -EPROTO;
	if (message->queue >= p->queues_n)
		return -ECHRNG;
	int error = shm_link_map(p, link, fds[0], false, false);
	if (!error)
		error = shm_link_bells(link, fds[2], message->doorbell);
	if (error)
		return error;
	link->wake_fd = fds[1];
	fds[1] = -1;
	shm_pull_offer(p, link);
	shm_pull_probe(link);
	shm_link_own(link, p->queues[message->queue]);
	return 0;
}

static void on_connect_request(struct shm_port *p, struct shm_link *link, nic_event_fn *event, void *ctx)
{
	struct shm_control_msg message;
	int fds[SHM_CONTROL_FDS], got = shm_control_recv(link->fd, &message, fds);
	if (got == -EAGAIN)
		return;
	int status = got == 0 ? -ECONNRESET : got < 0 ? got : 0;
	if (got > 0 && p->key && !link->authenticated) {
		shm_control_close_fds(fds);
		status = shm_proof_take(p, link, &message);
		if (!status)
			return;
		refuse(link->fd, status);
		shm_link_free(p, link);
		return;
	}
	uint8_t reply[NIC_HANDSHAKE_BYTES_MAX];
	size_t reply_len = 0;

	if (got > 0) {
		const struct nic_event ev = {.type = NIC_EVENT_CONNECT,
					     .peer = NIC_PEER_NONE,
					     .queue = message.queue,
					     .handshake = message.bytes,
					     .handshake_len = message.len,
					     .reply = reply,
					     .reply_len = &reply_len};
		status = accept_connect(p, link, &message, fds);
		if (!status)
			status = event(ctx, &ev);
		shm_control_close_fds(fds);
	}
	if (got > 0 || got == -EMFILE) {
		struct shm_control_msg answer =
			shm_control_make(SHM_CONTROL_REPLY, status, reply, status ? 0 : reply_len);
		int own[2] = {-1, -1};
		if (!status) {
			answer.doorbell = link->bell;
			own[0] = link->queue->wake_fd;
			own[1] = link->queue->bells_fd;
		}
		int error = shm_control_send(link->fd, &answer, own, status ? 0 : 2);
		if (!status)
			status = error;
	}
	if (status)
		shm_link_free(p, link);
	else
		report_up(p, link, message.bytes, message.len, event, ctx);
}

/* The peer gives us a memory, or ends. */
static void on_up(struct shm_port *p, struct shm_link *link, nic_event_fn *event, void *ctx)
{
	struct shm_control_msg message;
	int fds[SHM_CONTROL_FDS], got = shm_control_recv(link->fd, &message, fds);
	if (got == -EAGAIN || got == -EINTR || got == -EMFILE) /* no room for a descriptor: it is not mapped */
		return;
	if (got > 0 && message.kind == SHM_CONTROL_MEMORY)
		shm_memory_take(p, link, &message, fds[0]);
	if (got > 0)
		shm_control_close_fds(fds);
	if (got > 0 && message.kind == SHM_CONTROL_MEMORY)
		return;
	/* Nothing else is sent on an established connection: anything is its end. */
	epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
	link->state = SHM_LINK_DOWN;
	struct nic_event ev = {.type = NIC_EVENT_DOWN,
			       .peer = link->index,
			       .queue = link->queue->index,
			       .user = link->user,
			       .error = got < 0 ? got : -ECONNRESET,
			       .text = "shm: the peer's process is gone"};
	event(ctx, &ev);
}

static void listen_again_at(struct shm_port *p, uint64_t at)
{
	struct epoll_event ev = {.events = at ? 0 : EPOLLIN, .data.u32 = SHM_TAG_LISTENER};
	epoll_ctl(p->epoll_fd, EPOLL_CTL_MOD, p->listen_fd, &ev);
	p->listen_at = at;
}

static void accept_all(struct shm_port *p, uint64_t now)
{
	for (;;) {
		int fd = accept4(p->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			/* Out of descriptors: the connection stays readable, so polling it is paused. */
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
				listen_again_at(p, now + FULL_NS);
			return;
		}
		struct ucred cred;
		socklen_t len = sizeof cred;
		int status = 0;
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || (!p->any_user && cred.uid != geteuid()))
			status = -EACCES;
		else
			status = accept_one(p, fd, now);
		if (status) {
			refuse(fd, status);
			close(fd);
		}
	}
}

/* Connects two queues of a private port, which has no listener. */
static int pair_with_self(struct shm_port *p, struct shm_link *link)
{
	int fds[2];
	if (strcmp(link->to.sun_path, p->path) != 0)
		return -ECONNREFUSED;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	link->fd = fds[0];
	int error = accept_one(p, fds[1], monotonic_ns());
	if (error)
		close(fds[1]);
	return error;
}

static int connect_prepare(struct shm_port *p, struct shm_link *link, bool loopback)
{
	link->pair_fd = shm_pair_create();
	if (link->pair_fd < 0)
		return link->pair_fd;
	int error = shm_link_map(p, link, link->pair_fd, true, loopback);
	if (error)
		return error;
	shm_pull_offer(p, link);
	if (loopback) {
		shm_pull_probe(link);
		shm_close_fd(&link->pair_fd);
		link->up_pending = true;
		return shm_link_bells(link, link->queue->bells_fd, link->bell);
	}
	error = p->is_private ? pair_with_self(p, link) : 0;
	if (error)
		return error;
	if (!p->is_private)
		link->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (link->fd < 0)
		return -errno;
	error = send_first(p, link);
	return error == -EAGAIN ? 0 : error;
}

int shm_connect(struct nic_port *port, const struct nic_connect *c, struct nic_err *err)
{
	struct shm_port *p = shm_port_of(port);
	if (c->queue >= p->queues_n)
		return shm_error(err, -EINVAL, "shm: there is no queue %u; the port has %u", c->queue, p->queues_n);
	if (c->remote_queue >= SHM_QUEUES_MAX)
		return shm_error(err, -EINVAL, "shm: queue %u is out of range [0, %u)", c->remote_queue,
				 SHM_QUEUES_MAX);
	if (c->handshake_len > NIC_HANDSHAKE_BYTES_MAX)
		return shm_error(err, -EINVAL, "shm: a handshake payload of %zu bytes exceeds %u", c->handshake_len,
				 NIC_HANDSHAKE_BYTES_MAX);
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	if (!shm_address_path(c->addr, path, sizeof path))
		return shm_error(err, -EINVAL, "shm: malformed address");
	struct shm_link *link = shm_link_new(p, SHM_LINK_CONNECTING);
	if (!link)
		return shm_error(err, -ENOSPC, "shm: more than %u peers, or no memory for one more", SHM_PEERS_MAX);
	shm_link_own(link, p->queues[c->queue]);
	link->to.sun_family = AF_UNIX;
	memcpy(link->to.sun_path, path, sizeof path);
	link->user = c->user;
	link->deadline = c->deadline;
	link->remote_queue = (uint16_t)c->remote_queue;
	link->handshake_len = (uint16_t)c->handshake_len;
	if (c->handshake_len)
		memcpy(link->handshake, c->handshake, c->handshake_len);
	int error = connect_prepare(p, link, c->queue == c->remote_queue && strcmp(link->to.sun_path, p->path) == 0);
	if (error) {
		shm_error(err, error, "shm: cannot connect to %s: %s%s", link->to.sun_path, strerror(-error),
			  remedy(error));
		shm_link_free(p, link);
	}
	return error;
}

static void on_connecting(struct shm_port *p, struct shm_link *link, nic_event_fn *event, void *ctx)
{
	if (p->key && !link->authenticated)
		on_challenge(p, link, event, ctx);
	else
		on_reply(p, link, event, ctx);
}

/* At the deadline of an attempt: true if a message has come since the port looked. Else none can come any more. An
 * acceptor whose reply fails reports no connection; one that has replied would take the end of this one for the end of
 * this process. */
static bool has_message(const struct shm_link *link)
{
	char byte;
	if (recv(link->fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) > 0)
		return true;
	shutdown(link->fd, SHUT_RD);
	return false;
}

/* Processes pending links: reports UP of loopback links, retries connects, checks deadlines. */
static uint64_t step_pending(struct shm_port *p, uint64_t now, nic_event_fn *event, void *ctx)
{
	uint64_t next = UINT64_MAX;
	if (p->listen_at && now >= p->listen_at)
		listen_again_at(p, 0);
	if (p->listen_at)
		next = p->listen_at;
	for (struct shm_link *link = p->pending, *after; link; link = after) {
		after = link->next_pending;
		if (link->up_pending) {
			link->up_pending = false;
			report_up(p, link, link->handshake, link->handshake_len, event, ctx);
			continue;
		}
		if (now >= link->deadline) {
			if (link->state == SHM_LINK_CONNECTING && has_message(link)) {
				on_connecting(p, link, event, ctx);
				next = now; /* after a challenge it is still pending */
			} else if (link->state == SHM_LINK_CONNECTING) {
				report_failed(p, link, -ETIMEDOUT, "no answer from", event, ctx);
			} else {
				shm_link_free(p, link);
			}
			continue;
		}
		if (link->state == SHM_LINK_CONNECTING && !link->sent && now >= link->retry_at) {
			int error = send_first(p, link);
			if (error && error != -EAGAIN) {
				report_failed(p, link, error, "cannot connect to", event, ctx);
				continue;
			}
			link->retry_at = now + RETRY_NS;
		}
		uint64_t at = link->state == SHM_LINK_CONNECTING && !link->sent ? link->retry_at : link->deadline;
		next = at < next ? at : next;
	}
	return next;
}

uint64_t shm_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct shm_port *p = shm_port_of(port);
	struct epoll_event evs[32];
	int n;
	if (now == 0)
		now = monotonic_ns();
	do {
		n = epoll_wait(p->epoll_fd, evs, 32, 0);
		for (int i = 0; i < n; i++) {
			if (evs[i].data.u32 == SHM_TAG_LISTENER) {
				accept_all(p, now);
				continue;
			}
			if (evs[i].data.u32 == SHM_TAG_DIRECTORY) {
				shm_listen_event(p);
				continue;
			}
			if (evs[i].data.u32 == SHM_TAG_MEMORY) {
				p->memory_at = 0;
				continue;
			}
			struct shm_link *link = p->links[evs[i].data.u32];
			if (!link)
				continue;
			if (link->state == SHM_LINK_CONNECTING)
				on_connecting(p, link, event, ctx);
			else if (link->state == SHM_LINK_ACCEPTING)
				on_connect_request(p, link, event, ctx);
			else if (link->state == SHM_LINK_UP)
				on_up(p, link, event, ctx);
		}
	} while (n == 32);
	uint64_t next = step_pending(p, now, event, ctx), check_at = shm_listen_step(p, now);
	uint64_t memory_at = shm_memory_step(p, now);
	next = next < check_at ? next : check_at;
	return next < memory_at ? next : memory_at;
}
