/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * memif ports: connecting and disconnecting. Control thread. Works around four properties of DPDK's driver:
 *
 * - When the peer disconnects it unmaps the shared memory at once, on EAL's interrupt thread, while a poller may still
 *   read it. So that thread is paused as long as memif ports exist. Their control sockets are watched here; when one is
 *   readable, the queues of all memif ports are kept out of their devices, the thread runs until it is idle, and is
 *   paused again (a "window").
 * - A client tries to connect once, when it is started. So it is restarted until it is connected.
 * - A server's listening socket is never closed, though the argument of its callback is freed. So the descriptor is
 *   replaced by one that never becomes readable.
 * - A server aborts if a client disconnects before the server's first message. So DPDK's server listens in the runtime
 *   directory, where only our user has access, and a proxy listens in front of it, see memif_proxy.h.
 *
 * DPDK trusts its peer. So both sides check that the peer belongs to their user, unless security=none.
 */
#include "base/hash.h"
#include "base/runtime_dir.h"
#include "nic/dpdk/dpdk.h"
#include "nic/dpdk/eal_pause.h"
#include "nic/dpdk/memif_proxy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define RETRY_MIN_NS UINT64_C(5000000) /* first retry interval of a client; doubled each time */
#define RETRY_MAX_NS UINT64_C(100000000)
#define WINDOW_NS    UINT64_C(20000000) /* maximum length of a window; the rest waits for the next one */
#define QUIET_NS     UINT64_C(200000)   /* idle time that ends a window; CONNECT_NS while a peer connects */
#define CONNECT_NS   UINT64_C(2000000)
#define TICK_NS      20000
#define SOCKETS_MAX  64 /* sockets of one path: one per client, and the listener */

/* A proxy that the servers of this process with the same socket share; each has another id. */
struct front {
	struct front *next;
	struct memif_proxy *memif_proxy;
	struct memif_proxy_address at, back;
	unsigned users;
};

struct dpdk_memif {
	struct dpdk_memif *next;
	struct dpdk_port *port;
	struct front *front;           /* server only */
	struct memif_proxy_address at; /* DPDK's own socket; of a server: behind the proxy */
	int watch;                     /* epoll of the control sockets; member of the port's epoll */
	bool any_user;
	bool up;
	ino_t control; /* client: inode of its connection; 0: none */
	uint64_t retry_at, retry_ns;
};

/* State of all memif ports of the process, which may have several control threads. */
static struct {
	pthread_mutex_t mutex;
	struct dpdk_memif *first;
	struct front *fronts;
	bool paused; /* EAL's interrupt thread is paused */
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- DPDK's sockets, found in /proc/self/fd ---- */

struct found {
	int fd;
	ino_t inode;
	bool listener;
	struct sockaddr_un name; /* server: the local name, shared by accepted connections; client: the peer's name */
	socklen_t len;
};

/* Sockets of this process: at[0, n) of `room` allocated. */
struct sockets {
	struct found *at;
	size_t n, room;
};

static bool look(int fd, bool server, struct found *out)
{
	struct stat st;
	int value = 0;
	socklen_t len = sizeof value;
	if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode) || getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len) < 0 ||
	    value != SOCK_SEQPACKET)
		return false;
	*out = (struct found){.fd = fd, .inode = st.st_ino, .len = sizeof out->name};
	len = sizeof value;
	out->listener = getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &len) == 0 && value;
	int error = server ? getsockname(fd, (struct sockaddr *)&out->name, &out->len)
			   : getpeername(fd, (struct sockaddr *)&out->name, &out->len);
	return !error && out->name.sun_family == AF_UNIX && out->len > offsetof(struct sockaddr_un, sun_path);
}

static bool is_named(const struct dpdk_memif *m, const struct found *f)
{
	size_t path = f->len - offsetof(struct sockaddr_un, sun_path), want = strlen(m->at.un.sun_path);
	if (m->at.abstract)
		return f->len == m->at.len && memcmp(f->name.sun_path, m->at.un.sun_path, path) == 0;
	return strnlen(f->name.sun_path, path) == want && memcmp(f->name.sun_path, m->at.un.sun_path, want) == 0;
}

/* True if the socket belongs to `m`. A server's sockets have its name. A client's is the one that its last attempt
 * created: its peer's name may differ, in another container. */
static bool is_of(const struct dpdk_memif *m, const struct found *f)
{
	return m->port->args.server ? is_named(m, f) : m->control && f->inode == m->control;
}

static void append(struct sockets *s, const struct found *f)
{
	if (s->n == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		struct found *more = realloc(s->at, room * sizeof *more);
		if (!more)
			return;
		s->at = more;
		s->room = room;
	}
	s->at[s->n++] = *f;
}

/* Finds the sockets of `m`; `any`: all with a peer's name. */
static void find_sockets(const struct dpdk_memif *m, bool any, struct sockets *out)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	struct found f;
	out->n = 0;
	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.' && look(atoi(e->d_name), m->port->args.server && !any, &f) &&
		    (any || is_of(m, &f)))
			append(out, &f);
	if (dir)
		closedir(dir);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static unsigned match_score(const struct dpdk_memif *m, const struct found *f)
{
	struct sockaddr_un name = f->name;
	name.sun_path[sizeof name.sun_path - 1] = 0;
	if (is_named(m, f))
		return 3;
	return !m->at.abstract && strcmp(base_name(name.sun_path), base_name(m->at.un.sun_path)) == 0 ? 2 : 1;
}

/* Finds the connection that was not there before; other threads may have created some meanwhile. */
static ino_t new_control(const struct dpdk_memif *m, const struct sockets *before, const struct sockets *now)
{
	ino_t best = 0;
	unsigned like = 0;
	for (size_t i = 0; i < now->n; i++) {
		bool old = false;
		for (size_t k = 0; k < before->n && !old; k++)
			old = before->at[k].inode == now->at[i].inode;
		if (old || match_score(m, &now->at[i]) <= like)
			continue;
		like = match_score(m, &now->at[i]);
		best = now->at[i].inode;
	}
	return best;
}

/* ---- connecting a client ---- */

static bool is_of_another_user(const struct dpdk_memif *m, const struct sockets *now)
{
	for (size_t i = 0; i < now->n && !m->any_user; i++)
		if (now->at[i].inode == m->control && memif_proxy_is_other_user(now->at[i].fd))
			return true;
	return false;
}

/* Restarts the device, which connects. DPDK's connect() blocks while the server is stopped and two other clients wait
 * for it. A trial connection is no way out: a server whose client disconnects again keeps a callback with a freed
 * argument. */
static void try_connect(struct dpdk_memif *m, uint64_t now)
{
	struct sockets before = {0}, after = {0};
	if (m->port->args.server || m->up || now < m->retry_at)
		return;
	find_sockets(m, false, &before);
	if (before.n == 0) {
		m->retry_at = now + m->retry_ns;
		m->retry_ns = 2 * m->retry_ns < RETRY_MAX_NS ? 2 * m->retry_ns : RETRY_MAX_NS;
		find_sockets(m, true, &before);
		dpdk_log_quiet(true);
		rte_eth_dev_stop(m->port->ethdev);
		int error = rte_eth_dev_start(m->port->ethdev);
		dpdk_log_quiet(false);
		find_sockets(m, true, &after);
		m->control = error ? 0 : new_control(m, &before, &after);
		/* The interrupt thread is paused, so no message was exchanged yet. */
		if (m->control && is_of_another_user(m, &after)) {
			rte_eth_dev_stop(m->port->ethdev);
			m->control = 0;
		}
	}
	free(before.at);
	free(after.at);
}

/* ---- windows ---- */

static bool link_up(const struct dpdk_memif *m)
{
	struct rte_eth_link link = {0};
	return rte_eth_link_get_nowait(m->port->ethdev, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

static unsigned collect(struct pollfd *out, unsigned max, bool *connecting)
{
	unsigned n = 0;
	*connecting = false;
	for (struct dpdk_memif *m = all.first; m; m = m->next) {
		struct sockets s = {0};
		find_sockets(m, false, &s);
		*connecting = *connecting || (!link_up(m) && s.n > (m->port->args.server ? 1 : 0));
		for (size_t i = 0; i < s.n && n < max; i++)
			out[n++] = (struct pollfd){.fd = s.at[i].fd, .events = POLLIN};
		free(s.at);
	}
	return n;
}

static bool run_proxies(void)
{
	bool moved = false;
	for (struct front *f = all.fronts; f; f = f->next)
		moved = memif_proxy_run(f->memif_proxy) || moved;
	return moved;
}

/* Waits until no control socket was readable for a while. */
static void wait_until_idle(void)
{
	struct pollfd fds[SOCKETS_MAX];
	const struct timespec tick = {.tv_nsec = TICK_NS};
	uint64_t now = dpdk_now(), end = now + WINDOW_NS, since = now;
	bool connecting;
	do {
		nanosleep(&tick, NULL);
		unsigned n = collect(fds, SOCKETS_MAX, &connecting);
		now = dpdk_now();
		if (run_proxies() || poll(fds, n, 0) > 0)
			since = now;
	} while (now < end && now - since < (connecting ? CONNECT_NS : QUIET_NS));
}

static void watch_sockets(struct dpdk_memif *m)
{
	struct sockets s = {0};
	struct epoll_event ev = {.events = EPOLLIN};
	find_sockets(m, false, &s);
	if (m->watch >= 0)
		close(m->watch);
	m->watch = epoll_create1(EPOLL_CLOEXEC);
	for (size_t i = 0; i < s.n && m->watch >= 0; i++)
		epoll_ctl(m->watch, EPOLL_CTL_ADD, s.at[i].fd, &ev);
	free(s.at);
	if (m->watch >= 0)
		epoll_ctl(m->port->fd, EPOLL_CTL_ADD, m->watch, &ev);
}

/* Updates the port's state; it cannot change until the next window. */
static void update_state(struct dpdk_memif *m)
{
	m->up = all.paused && link_up(m);
	if (m->up)
		m->retry_ns = RETRY_MIN_NS;
	atomic_store_explicit(&m->port->shut, m->up ? DPDK_OPEN : DPDK_DOWN, memory_order_release);
	watch_sockets(m);
}

/* Keeps all queues out of their devices. A poller that stays in a burst for a second is stopped, by a debugger perhaps;
 * then no memory may be unmapped. */
static bool pause_queues(void)
{
	bool shut = true;
	for (struct dpdk_memif *m = all.first; m; m = m->next)
		if (m->up)
			shut = dpdk_shut(m->port, DPDK_PAUSED) == 0 && shut;
	return shut;
}

static void window(uint64_t now)
{
	if (pause_queues()) {
		for (struct dpdk_memif *m = all.first; m; m = m->next)
			try_connect(m, now);
		eal_interrupts_resume();
		wait_until_idle();
		all.paused = eal_interrupts_pause() == 0; /* else the thread is busy: dpdk_memif_step() retries */
	}
	for (struct dpdk_memif *m = all.first; m; m = m->next)
		update_state(m);
}

uint64_t dpdk_memif_step(struct dpdk_port *p, uint64_t now)
{
	struct dpdk_memif *m = p->memif;
	struct epoll_event ev;
	pthread_mutex_lock(&all.mutex);
	bool retry = !p->args.server && !m->up;
	if (run_proxies() || (m->watch >= 0 && epoll_wait(m->watch, &ev, 1, 0) > 0) || (retry && now >= m->retry_at) ||
	    !all.paused)
		window(now);
	retry = !p->args.server && !m->up;
	/* The epoll set reports progress of a connection; the deadline is for one that never completes. */
	uint64_t next = !all.paused         ? now + RETRY_MIN_NS
			: !retry            ? UINT64_MAX
			: m->retry_at > now ? m->retry_at
					    : now + RETRY_MIN_NS;
	pthread_mutex_unlock(&all.mutex);
	return next;
}

/* ---- open and close ---- */

/* Works around the third property above. */
static void close_listener(const struct dpdk_memif *m)
{
	struct sockets s = {0};
	int never = eventfd(0, EFD_CLOEXEC);
	find_sockets(m, false, &s);
	for (size_t i = 0; i < s.n && never >= 0; i++)
		if (s.at[i].listener)
			dup3(never, s.at[i].fd, O_CLOEXEC);
	if (never >= 0)
		close(never);
	free(s.at);
}

static void front_leave(struct dpdk_memif *m)
{
	struct front *f = m->front, **at;
	if (--f->users)
		return;
	for (at = &all.fronts; *at != f; at = &(*at)->next)
		;
	*at = f->next;
	close_listener(m);
	unlink(f->back.un.sun_path);
	memif_proxy_close(f->memif_proxy);
	free(f);
}

/* Chooses the path behind the proxy, in the runtime directory. It follows from the front's name, so a killed server
 * leaves at most one file. */
static int name_back(const struct memif_proxy_address *front, const struct nic_config *config,
		     struct memif_proxy_address *back, struct nic_err *err)
{
	struct {
		uint64_t name, space, device, inode;
	} of = {.name = hash64(&front->un, sizeof front->un)};
	char dir[RUNTIME_DIR_BYTES], path[sizeof front->un.sun_path], why[320] = "its path is too long";
	struct stat st;
	int fd = -EPERM;
	for (unsigned i = 0; fd == -EPERM && runtime_dir_path(config->runtime_dir, i, dir) == 0; i++)
		fd = runtime_dir_open(dir, true, config->any_user, why, sizeof why);
	if (fd < 0 || strchr(dir, ','))
		return dpdk_error(err, fd < 0 ? fd : -EINVAL, "dpdk: memif's server has no runtime directory: %s",
				  fd < 0 ? why : "its path contains a comma; set FAR_RUNTIME_DIR to another directory");
	close(fd);
	if (stat("/proc/self/ns/net", &st) == 0)
		of.space = st.st_ino;
	snprintf(path, sizeof path, "%s", front->un.sun_path);
	if (!front->abstract && stat(dirname(path), &st) == 0) {
		of.device = st.st_dev;
		of.inode = st.st_ino;
	}
	*back = (struct memif_proxy_address){.un.sun_family = AF_UNIX, .len = sizeof back->un};
	snprintf(back->un.sun_path, sizeof back->un.sun_path, "%s/memif-%016llx", dir,
		 (unsigned long long)hash64(&of, sizeof of));
	return 0;
}

static int front_join(struct dpdk_memif *m, const struct memif_proxy_address *at, const struct nic_config *config,
		      struct nic_err *err)
{
	struct front *f = all.fronts;
	while (f && (f->at.len != at->len || memcmp(&f->at.un, &at->un, sizeof at->un) != 0))
		f = f->next;
	if (!f) {
		f = calloc(1, sizeof *f);
		if (!f)
			return dpdk_error(err, -ENOMEM, "dpdk: out of memory");
		f->at = *at;
		int error = name_back(at, config, &f->back, err);
		if (!error)
			error = memif_proxy_open(&f->at, &f->back, config->any_user, &f->memif_proxy, err);
		if (error) {
			free(f);
			return error;
		}
		unlink(f->back.un.sun_path); /* a stale socket: we own the front, so no live server has it */
		f->next = all.fronts;
		all.fronts = f;
	}
	f->users++;
	m->front = f;
	m->at = f->back;
	struct epoll_event ev = {.events = EPOLLIN};
	epoll_ctl(m->port->fd, EPOLL_CTL_ADD, memif_proxy_fd(f->memif_proxy), &ev);
	return 0;
}

int dpdk_memif_prepare(struct dpdk_port *p, const struct nic_config *config, struct nic_err *err)
{
	struct dpdk_args *a = &p->args;
	struct memif_proxy_address at = {.abstract = a->abstract};
	struct dpdk_memif *m = calloc(1, sizeof *m);
	if (!m)
		return dpdk_error(err, -ENOMEM, "dpdk: out of memory");
	p->memif = m;
	m->port = p;
	m->watch = -1;
	m->any_user = config->any_user;
	m->retry_ns = RETRY_MIN_NS;
	at.len = dpdk_memif_address(a, "", &at.un);
	m->at = at;
	int error = 0;
	if (a->server) {
		pthread_mutex_lock(&all.mutex);
		error = front_join(m, &at, config, err);
		pthread_mutex_unlock(&all.mutex);
	}
	if (error)
		return error;
	size_t len = strlen(a->devargs);
	int n = snprintf(a->devargs + len, sizeof a->devargs - len, ",socket=%s,socket-abstract=%s",
			 m->at.un.sun_path + m->at.abstract, m->at.abstract ? "yes" : "no");
	return n < 0 || (size_t)n >= sizeof a->devargs - len
		       ? dpdk_error(err, -EINVAL, "dpdk: the arguments of %s take more than %zu bytes", a->name,
				    sizeof a->devargs - 1)
		       : 0;
}

int dpdk_memif_open(struct dpdk_port *p, struct nic_err *err)
{
	struct dpdk_memif *m = p->memif;
	pthread_mutex_lock(&all.mutex);
	int error = all.paused ? 0 : eal_interrupts_pause();
	all.paused = !error;
	if (error)
		dpdk_error(err, error, "dpdk: EAL's interrupt thread did not pause within 5 s");
	m->next = all.first;
	all.first = m;
	if (!error && p->args.server)
		error = dpdk_device_start(p, err);
	if (!error)
		window(dpdk_now());
	pthread_mutex_unlock(&all.mutex);
	return error;
}

void dpdk_memif_close(struct dpdk_port *p)
{
	struct dpdk_memif *m = p->memif, **at;
	pthread_mutex_lock(&all.mutex);
	for (at = &all.first; *at && *at != m; at = &(*at)->next)
		;
	if (*at)
		*at = m->next;
	dpdk_device_close(p);
	run_proxies(); /* forwards the disconnect message */
	if (m->front)
		front_leave(m);
	if (!all.first && all.paused) {
		eal_interrupts_resume();
		all.paused = false;
	}
	pthread_mutex_unlock(&all.mutex);
	if (m->watch >= 0)
		close(m->watch);
	free(m);
}
