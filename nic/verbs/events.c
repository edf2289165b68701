/* SPDX-License-Identifier: BSD-3-Clause */
/** Device events: the port goes down and up, its address disappears, the device is removed. Control thread. Sessions
 * fail over to another port by themselves when nothing arrives (engine/transport). Here broken queues are reset when
 * the device works again, and a device that is being removed is closed, which the kernel waits for. */
#include "nic/verbs/rc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODES           "/dev/infiniband"
#define EVENTS_PER_STEP 64 /* device events per step: a device may repeat the same event */

bool verbs_epoll_add(struct verbs_port *p, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
	return epoll_ctl(p->fd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

/* Inode of the device's sysfs entry, which identifies it; 0: none. */
static ino_t entry_of(const struct verbs_port *p)
{
	struct stat st;
	return stat(p->on.context->device->dev_path, &st) == 0 ? st.st_ino : 0;
}

int verbs_events_open(struct verbs_port *p, struct nic_err *err)
{
	p->fd = epoll_create1(EPOLL_CLOEXEC);
	p->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int async = p->on.context->async_fd, flags = fcntl(async, F_GETFL);
	if (p->fd < 0 || p->event_fd < 0 || flags < 0 || fcntl(async, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    !verbs_epoll_add(p, p->event_fd) || !verbs_epoll_add(p, async))
		return verbs_error(err, -errno, "verbs: %s; see `ulimit -n`", strerror(errno));
	/* Not all drivers report the removal of their device. Its node disappears first, which inotify reports at once;
	 * but a node that the kernel does not manage, as in a container, stays. Its sysfs entry disappears, too, which
	 * must be polled. Without either the device is closed when the port is. */
	p->entry = entry_of(p);
	p->watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (p->watch_fd >= 0 &&
	    (inotify_add_watch(p->watch_fd, NODES, IN_DELETE) < 0 || !verbs_epoll_add(p, p->watch_fd))) {
		close(p->watch_fd);
		p->watch_fd = -1;
	}
	return 0;
}

static enum verbs_down down_of(const struct verbs_port *p)
{
	return (enum verbs_down)atomic_load_explicit(&p->down, memory_order_relaxed);
}

static void set_down(struct verbs_port *p, enum verbs_down down)
{
	atomic_store_explicit(&p->down, down, memory_order_relaxed);
}

int verbs_down_error(const struct verbs_port *p, struct nic_err *err)
{
	char text[VERBS_GID_TEXT_MAX];
	switch (down_of(p)) {
	case VERBS_UP:
		return 0;
	case VERBS_PORT_DOWN:
		return verbs_error(err, -ENETDOWN, "verbs: %s port %u is down: see its cable, or ip link set it up",
				   p->on.device, p->on.port);
	case VERBS_GID_GONE:
		return verbs_error(err, -EADDRNOTAVAIL,
				   "verbs: %s has lost address %s (GID %u): give it back to the interface, or start "
				   "this worker again",
				   p->on.device, verbs_gid_text(p->blob.gid, text), p->on.gid.gid_index);
	case VERBS_GONE:
		break;
	}
	return verbs_error(err, -ENODEV, "verbs: %s was removed or has failed: start this worker again when it is back",
			   p->on.device);
}

/* Reads the port's state; events only report that it may have changed. */
static void query_port_state(struct verbs_port *p)
{
	struct ibv_port_attr attr;
	union ibv_gid gid;
	if (down_of(p) == VERBS_GONE)
		return;
	if (ibv_query_port(p->on.context, p->on.port, &attr) || attr.state != IBV_PORT_ACTIVE)
		set_down(p, VERBS_PORT_DOWN);
	else if (p->on.iwarp)
		set_down(p, verbs_gid_is_here(p->blob.gid, p->on.gid.ndev_ifindex) ? VERBS_UP : VERBS_GID_GONE);
	else if (ibv_query_gid(p->on.context, p->on.port, (int)p->on.gid.gid_index, &gid) ||
		 memcmp(gid.raw, p->blob.gid, sizeof p->blob.gid) != 0 || (!p->on.ethernet && attr.lid != p->blob.lid))
		set_down(p, VERBS_GID_GONE);
	else
		set_down(p, VERBS_UP);
}

void verbs_release_device(struct verbs_port *p)
{
	if (down_of(p) == VERBS_GONE)
		return;
	set_down(p, VERBS_GONE);
	verbs_resolver_stop(p);
	if (p->rc)
		verbs_rc_stop(p);
	for (unsigned i = 0; i < p->queues_n; i++) {
		atomic_store_explicit(&p->queues[i]->state, VERBS_RELEASING, memory_order_release);
		verbs_signal(p->queues[i]->event_fd);
	}
}

static void handle_event(struct verbs_port *p, const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_CQ_ERR:
		verbs_release_device(p);
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		query_port_state(p);
		break;
	default: /* about a queue pair: its poller finds the failed completion */
		for (unsigned i = 0; i < p->queues_n; i++)
			verbs_signal(p->queues[i]->event_fd);
		break;
	}
}

static void handle_events(struct verbs_port *p)
{
	struct ibv_async_event event;
	for (unsigned i = 0; i < EVENTS_PER_STEP && p->on.context; i++) {
		if (ibv_get_async_event(p->on.context, &event))
			return;
		handle_event(p, &event);
		ibv_ack_async_event(&event);
	}
}

static bool node_was_removed(const struct verbs_port *p)
{
	union {
		struct inotify_event event;
		char bytes[4096];
	} buf;
	bool gone = false;
	ssize_t n = p->watch_fd < 0 ? -1 : read(p->watch_fd, buf.bytes, sizeof buf.bytes);
	for (ssize_t at = 0; at + (ssize_t)sizeof buf.event <= n;) {
		struct inotify_event ev;
		memcpy(&ev, buf.bytes + at, sizeof ev);
		const char *name = buf.bytes + at + sizeof ev;
		gone |= ev.len && strncmp(name, p->on.node, ev.len) == 0;
		at += (ssize_t)(sizeof ev + ev.len);
	}
	return gone;
}

/* False also if the entry was not visible at open. *next is the time of the next check. */
static bool entry_was_removed(struct verbs_port *p, uint64_t now, uint64_t *next)
{
	if (!p->entry || !p->on.context)
		return false;
	if (now >= p->entry_at) {
		p->entry_at = now + VERBS_ENTRY_NS;
		if (entry_of(p) != p->entry)
			return true;
	}
	*next = p->entry_at;
	return false;
}

static uint64_t recover(struct verbs_port *p, struct verbs_queue *q, uint64_t now)
{
	if (atomic_load_explicit(&q->state, memory_order_acquire) != VERBS_BROKEN) {
		if (q->recovery_at && now >= q->recovery_at + VERBS_RECOVERY_NS_MAX)
			q->recovery_at = 0, q->recovery_ns = VERBS_RECOVERY_NS;
		return UINT64_MAX;
	}
	if (now < q->recovery_at)
		return q->recovery_at;
	q->recovery_at = now + q->recovery_ns;
	q->recovery_ns = 2 * q->recovery_ns < VERBS_RECOVERY_NS_MAX ? 2 * q->recovery_ns : VERBS_RECOVERY_NS_MAX;
	query_port_state(p);
	if (down_of(p) != VERBS_UP || verbs_qp_start(q))
		return q->recovery_at;
	/* the poller does not touch a VERBS_BROKEN queue pair */
	atomic_store_explicit(&q->state, VERBS_RECOVERED, memory_order_release);
	verbs_signal(q->event_fd);
	return UINT64_MAX;
}

static bool all_released(struct verbs_port *p)
{
	for (unsigned i = 0; i < p->queues_n; i++)
		if (atomic_load_explicit(&p->queues[i]->state, memory_order_acquire) != VERBS_RELEASED)
			return false;
	if (p->rc && !verbs_rc_ended(p))
		return false;
	return !p->resolver.started || atomic_load_explicit(&p->resolver.ended, memory_order_acquire);
}

uint64_t verbs_events_step(struct verbs_port *p, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	eventfd_t ignored;
	eventfd_read(p->event_fd, &ignored);
	if (p->on.context)
		handle_events(p);
	if (node_was_removed(p) || entry_was_removed(p, now, &next))
		verbs_release_device(p);
	if (down_of(p) == VERBS_GONE) {
		if (p->on.context && all_released(p))
			verbs_port_close_device(p);
		return UINT64_MAX;
	}
	for (unsigned i = 0; i < p->queues_n; i++) {
		uint64_t at = recover(p, p->queues[i], now);
		next = at < next ? at : next;
	}
	return next;
}
