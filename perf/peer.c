/* SPDX-License-Identifier: BSD-3-Clause */
/** Starts, joins and stops the serving processes of a measurement. Main thread. */
#include "peer.h"
#include "cell.h"
#include "connect.h"
#include "memif.h"
#include "netns.h"
#include "ps.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME_SELF   "/proc/self/exe"
#define REAP_NAPS   500
#define REAP_NAP_NS 10000000 /* 5 s in all */

struct floor_shared *peer_map(int fd)
{
	int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS | MAP_NORESERVE : 0);
	void *p = mmap(NULL, sizeof(struct floor_shared), PROT_READ | PROT_WRITE, flags, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

int peer_share(struct floor_shared **shared)
{
	int fd = memfd_create("farcall-perf", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct floor_shared)) < 0 || !(*shared = peer_map(fd)) ||
	    getrandom(&(*shared)->cookie, sizeof(*shared)->cookie, 0) < 0) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	(*shared)->wake_fd = -1;
	return fd;
}

int peer_complain(const struct perf_opts *o, const struct far_err *err)
{
	fprintf(stderr, "%s: ", o->what);
	far_err_print(stderr, err);
	return 1;
}

static uint64_t join_ns(const struct perf_opts *o)
{
	return PEER_JOIN_NS + o->peers * ATTACHED_JOIN_NS;
}

/* The service of `farcall perf ps`, of all servers, while this one runs. */
static enum server_end serve_tables(const struct perf_opts *o, struct server *s, struct far_ps_server **tables)
{
	char names[PEER_SERVERS_MAX][16];
	const char *servers[PEER_SERVERS_MAX];
	struct far_ps_serve_opts opts = {.servers = servers, .servers_n = (size_t)o->peer_world - 1};
	struct far_err err;
	for (size_t i = 0; i < opts.servers_n && i < PEER_SERVERS_MAX; i++) {
		snprintf(names[i], sizeof names[i], "worker%zu", i + 1);
		servers[i] = names[i];
	}
	if (far_ps_serve(s->agent, PS_SERVICE, &opts, tables, &err) != FAR_OK) {
		far_err_print(stderr, &err);
		return SERVER_FAILED;
	}
	enum server_end end = server_run(s);
	if (far_ps_server_stop(*tables, &err) != FAR_OK)
		far_err_print(stderr, &err);
	return end;
}

int peer_main(const struct perf_opts *o)
{
	static struct server s;
	struct far_msg_handler handlers[SERVER_HANDLERS];
	struct far_err err;
	char name[32];
	if (netns_enter(o, o->netns))
		return 1;
	if (o->peer_fd == 0 || o->peer_rank == 0 || o->peer_world == 0 || !(s.shared = peer_map((int)o->peer_fd))) {
		fprintf(stderr, "farcall perf peer: started by the other measurements only\n");
		return 2;
	}
	s.shared_fd = s.client = -1;
	s.cpu = (int)o->peer_cpu - 1;
	server_handlers(&s, handlers);
	struct far_opts opts = {.nic = o->nic,
				.security = o->security,
				.progress = FAR_PROGRESS_SHARED,
				.pin_cpu = o->peer_asleep ? (int)o->peer_cpu : 0,
				.init_timeout_ns = join_ns(o),
				.peer_limit_ns = PEER_LIMIT_NS,
				.shards = (unsigned)o->shards,
				.fibers = PEER_FIBERS,
				.messages = handlers,
				.functions = server_functions,
				.functions_n = SERVER_FUNCTIONS,
				.messages_n = SERVER_HANDLERS,
				.classes = &perf_cell,
				.classes_n = 1};
	snprintf(name, sizeof name, "worker%d", (int)o->peer_rank);
	if (attached_raise_files() < 0)
		return 1;
	if (far_init_rpc(name, (int)o->peer_rank, (int)o->peer_world, &opts, &s.agent, &err) != FAR_OK) {
		far_err_print(stderr, &err);
		return 1;
	}
	struct far_ps_server *tables = NULL;
	enum server_end end = o->peer_tables ? serve_tables(o, &s, &tables) : server_run(&s);
	if (far_shutdown(s.agent, PEER_LEAVE_NS + o->peers * ATTACHED_JOIN_NS, &err) != FAR_OK)
		far_err_print(stderr, &err);
	far_ps_server_free(tables);
	return end != SERVER_NOTIFIED;
}

static unsigned servers_of(const struct perf_opts *o)
{
	return o->servers ? (unsigned)o->servers : 1;
}

/* Is there a second agent of ours, so that calls that are handed over alternate with calls that are not. */
static bool both(const struct perf_opts *o)
{
	return o->compare_via;
}

static int world_of(const struct perf_opts *o)
{
	return 1 + (int)servers_of(o) + both(o) + (int)attached_agents(o);
}

static void unshare_peer(struct floor_shared *shared)
{
	if (shared->wake_fd >= 0)
		close(shared->wake_fd);
	munmap(shared, sizeof *shared);
}

/* Options of one server beyond those of all servers. */
static void add_options(const char **argv, int argc, const struct perf_opts *o)
{
	if (o->server_netns) {
		argv[argc++] = "--netns";
		argv[argc++] = o->server_netns;
	}
	if (o->security) {
		argv[argc++] = "--security";
		argv[argc++] = o->security;
	}
	if (o->asleep)
		argv[argc++] = "--peer-asleep";
	if (o->tables)
		argv[argc++] = "--peer-tables";
	argv[argc] = NULL;
}

static int start_one(struct peer *p, const struct perf_opts *o)
{
	char fd_text[16], cpu_text[16], rank_text[16], world_text[16], shards_text[24], peers_text[24];
	int rank = (int)p->servers + 1;
	struct floor_shared *shared = NULL;
	int fd = peer_share(&shared);
	if (fd < 0)
		return fd;
	shared->wake_fd = eventfd(0, 0); /* inherited, with the same number */
	int rc = shared->wake_fd < 0 ? -errno : 0;
	snprintf(fd_text, sizeof fd_text, "%d", fd);
	snprintf(cpu_text, sizeof cpu_text, "%d", o->roam ? 0 : perf_cpu((unsigned)rank) + 1);
	snprintf(rank_text, sizeof rank_text, "%d", rank);
	snprintf(world_text, sizeof world_text, "%d", world_of(o));
	snprintf(shards_text, sizeof shards_text, "%u", (unsigned)(o->server_shards ? o->server_shards : o->shards));
	snprintf(peers_text, sizeof peers_text, "%u", (unsigned)o->peers);
	const char *argv[32] = {
		"farcall",          "perf",        "peer",      "--peer-fd",    fd_text,    "--peer-cpu",
		cpu_text,           "--peer-rank", rank_text,   "--peer-world", world_text, "--nic",
		perf_server_nic(o), "--shards",    shards_text, "--peers",      peers_text};
	add_options(argv, 17, o);
	struct spawn_child child = {.group = &p->group,
				    .announce_fd = -1,
				    .rank = rank,
				    .file = NAME_SELF,
				    .argv = (char *const *)(uintptr_t)argv,
				    .in = -1,
				    .out = STDERR_FILENO, /* stdout is the measurement's */
				    .err = -1,
				    .keep_fd = fd};
	if (rc == 0)
		rc = spawn_start(&child, &p->pids[p->servers]);
	close(fd);
	if (shared->wake_fd >= 0)
		fcntl(shared->wake_fd, F_SETFD, FD_CLOEXEC);
	if (rc < 0) {
		unshare_peer(shared);
		return rc;
	}
	p->shares[p->servers++] = shared;
	return 0;
}

/* Waits for a process's end, a few seconds after a request to stop; then kills it. */
static void reap(pid_t pid, bool patient)
{
	int status;
	for (int i = 0; patient && i < REAP_NAPS; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return;
		nanosleep(&(struct timespec){.tv_nsec = REAP_NAP_NS}, NULL);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
}

static void stop_all(struct peer *p, bool patient)
{
	attached_leave(&p->attached);
	if (p->attached.pid > 0)
		reap(p->attached.pid, patient);
	attached_close(&p->attached);
	for (unsigned i = 0; i < p->servers; i++) {
		reap(p->pids[i], patient);
		unshare_peer(p->shares[i]);
	}
	p->servers = 0;
}

/* The store listens where the servers are: this process, which is rank 0, hosts it and needs no way to it. */
static int group_open(struct peer *p, const struct perf_opts *o)
{
	if (!o->server_netns)
		return spawn_group_open(&p->group, world_of(o));
	p->group = (struct spawn_group){.world = world_of(o)};
	p->group.listen_fd = netns_listen(o, o->server_netns, &p->group.port);
	return p->group.listen_fd < 0;
}

static int start(struct peer *p, const struct perf_opts *o)
{
	int rc = group_open(p, o);
	if (rc)
		return rc;
	for (unsigned i = 0; i < servers_of(o) && rc == 0; i++)
		rc = start_one(p, o);
	if (rc == 0 && attached_agents(o))
		rc = attached_start(&p->attached, &p->group, o, 1 + (int)p->servers + both(o));
	if (rc < 0) {
		stop_all(p, false);
		spawn_group_close(&p->group);
	}
	p->shared = p->shares[0];
	return rc;
}

/* ---- our own agents ---- */

struct joining {
	struct peer *p;
	const struct perf_opts *o;
	struct far_err err;
	enum far_status status;
};

static void *join_handed(void *arg)
{
	struct joining *j = arg;
	struct peer *p = j->p;
	int cpu = perf_cpu(j->o->to_self ? 1 : 2);
	struct far_opts opts = {.nic = j->o->nic,
				.security = j->o->security,
				.progress = FAR_PROGRESS_DEDICATED,
				.pin_cpu = FAR_CPU(cpu),
				.init_timeout_ns = join_ns(j->o),
				.peer_limit_ns = PEER_LIMIT_NS,
				.fibers = PEER_FIBERS,
				.messages = p->handlers,
				.functions = server_functions,
				.functions_n = SERVER_FUNCTIONS,
				.messages_n = SERVER_BOTH_ENDS,
				.classes = &perf_cell,
				.classes_n = 1};
	snprintf(p->handed_name, sizeof p->handed_name, "worker%d", 1 + (int)p->servers);
	j->status = far_init_rpc(p->handed_name, 1 + (int)p->servers, world_of(j->o), &opts, &p->handed, &j->err);
	return NULL;
}

static enum far_status join(struct peer *p, const struct perf_opts *o, struct far_err *err)
{
	struct joining other = {.p = p, .o = o};
	pthread_t thread;
	bool own = o->via == PERF_VIA_THREAD && !both(o);
	struct far_opts opts = {.nic = o->nic,
				.security = o->security,
				.progress = own ? FAR_PROGRESS_DEDICATED : FAR_PROGRESS_SHARED,
				.init_timeout_ns = join_ns(o),
				.peer_limit_ns = PEER_LIMIT_NS,
				.shards = (unsigned)o->shards,
				.fibers = PEER_FIBERS,
				.messages = p->handlers,
				.functions = server_functions,
				.functions_n = SERVER_FUNCTIONS,
				.messages_n = SERVER_BOTH_ENDS,
				.classes = &perf_cell,
				.classes_n = 1};
	int error = both(o) ? pthread_create(&thread, NULL, join_handed, &other) : 0;
	if (error) {
		*err = (struct far_err){.status = FAR_SYSTEM, .text = "cannot start a thread"};
		return FAR_SYSTEM;
	}
	enum far_status status = far_init_rpc("worker0", 0, world_of(o), &opts, &p->agent, err);
	if (both(o)) {
		pthread_join(thread, NULL);
		if (status == FAR_OK && other.status != FAR_OK) {
			status = other.status;
			*err = other.err;
		}
	}
	return status;
}

/* Joining waits for all: a server that ends before is noticed at once, and see its last log line. */
struct watch {
	const struct peer *p;
	const struct perf_opts *o;
	pthread_t thread;
	atomic_bool joined;
};

static void *watch_main(void *arg)
{
	struct watch *w = arg;
	while (!atomic_load(&w->joined)) {
		for (unsigned i = 0; i < w->p->servers; i++) {
			siginfo_t info = {.si_pid = 0};
			if (waitid(P_PID, (id_t)w->p->pids[i], &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
			    info.si_pid == 0 || atomic_load(&w->joined))
				continue;
			fprintf(stderr, "%s: the other process has ended; see its messages above\n", w->o->what);
			memif_clear();
			_exit(1); /* the others die with us */
		}
		nanosleep(&(struct timespec){.tv_nsec = REAP_NAP_NS}, NULL);
	}
	return NULL;
}

static enum far_status join_watched(struct peer *p, const struct perf_opts *o, struct far_err *err)
{
	struct watch w = {.p = p, .o = o};
	bool watched = pthread_create(&w.thread, NULL, watch_main, &w) == 0;
	enum far_status status = join(p, o, err);
	atomic_store(&w.joined, true);
	if (watched)
		pthread_join(w.thread, NULL);
	return status;
}

int peer_hold(struct peer *p, const struct perf_opts *o, bool hold)
{
	struct far_err err;
	if (hold == p->held)
		return 0;
	if (!hold)
		far_shard_release(p->agent);
	else if (far_shard_acquire(p->agent, 0, &err) != FAR_OK)
		return peer_complain(o, &err);
	p->held = hold;
	return 0;
}

static void abandon(struct peer *p)
{
	if (p->held)
		far_shard_release(p->agent);
	p->held = false;
	stop_all(p, false);
	if (p->agent)
		far_shutdown_local(p->agent, NULL);
	if (p->handed)
		far_shutdown_local(p->handed, NULL);
	p->agent = p->handed = NULL;
}

static int own_group(struct peer *p, const struct perf_opts *o)
{
	struct far_err err;
	int rc = attached_check(o);
	if (rc)
		return rc;
	rc = start(p, o);
	if (rc < 0) {
		fprintf(stderr, "%s: cannot start the peer process: %s\n", o->what, strerror(-rc));
		return 1;
	}
	/* Behind the start of the others, which stay where they were or know themselves where to go. */
	if (rc == 0)
		rc = netns_enter(o, o->netns);
	if (rc) {
		stop_all(p, false);
		spawn_group_close(&p->group);
		return rc;
	}
	spawn_env(&p->group, 0);
	p->to = (struct far_to){.worker = o->to_self ? 0 : 1, .shard = 0};
	snprintf(p->name, sizeof p->name, "worker%d", p->to.worker);
	enum far_status status = join_watched(p, o, &err);
	rc = status == FAR_OK ? attached_await(&p->attached, p->agent, o) : peer_complain(o, &err);
	if (rc)
		abandon(p);
	return rc;
}

int peer_open(struct peer *p, const struct perf_opts *o)
{
	*p = (struct peer){.attached = {.pid = -1, .in = -1, .out = -1}};
	server_handlers(NULL, p->handlers);
	int rc = o->connect ? connect_open(p, o) : own_group(p, o);
	if (rc)
		return rc;
	if (!o->roam)
		perf_pin(perf_cpu(0));
	rc = peer_can_hold(p, o) ? peer_hold(p, o, true) : 0;
	if (rc && o->connect)
		connect_close(p, o);
	else if (rc)
		abandon(p);
	return rc;
}

int peer_floor(struct peer *p, const struct perf_opts *o, struct floor_nic *n)
{
	unsigned char byte = 0;
	char text[FLOOR_TEXT_BYTES];
	struct far_err err;
	*n = (struct floor_nic){.fd = -1};
	if (!o->floor || o->to_self)
		return 0;
	/* The first call settles what carries them. */
	if (far_msg_call(p->agent, peer_to(p, 0), SERVER_ECHO, &byte, 1, NULL, &byte, 1, NULL, &err) != FAR_OK)
		return peer_complain(o, &err);
	int rc = floor_agent_open(n, p->agent, peer_to(p, 0), p->shared, text);
	if (rc == 0 && n->ops && n->fd < 0 && !peer_can_hold(p, o)) {
		floor_agent_close(n);
		snprintf(text, sizeof text,
			 "the agent's own thread polls the device; leave --via thread or --floor out");
		rc = -EBUSY;
	}
	if (rc == 0)
		return 0;
	fprintf(stderr, "%s: --floor: %s\n", o->what, text);
	return 1;
}

struct leaving {
	struct far_agent *agent;
	uint64_t timeout_ns;
	enum far_status status;
	struct far_err err;
};

static void *leave(void *arg)
{
	struct leaving *l = arg;
	l->status = far_shutdown(l->agent, l->timeout_ns, &l->err);
	return NULL;
}

int peer_close(struct peer *p, const struct perf_opts *o)
{
	struct far_err err;
	pthread_t thread;
	uint64_t timeout_ns = PEER_LEAVE_NS + o->peers * ATTACHED_JOIN_NS;
	peer_hold(p, o, false);
	if (p->connected)
		return connect_close(p, o);
	int rc = 0;
	for (unsigned i = 0; i < p->servers && rc == 0; i++)
		rc = floor_switch(p->shares[i], FLOOR_STOP);
	attached_leave(&p->attached);
	struct leaving handed = {.agent = p->handed, .timeout_ns = timeout_ns};
	bool other = rc == 0 && p->handed && pthread_create(&thread, NULL, leave, &handed) == 0;
	if (p->handed && !other)
		far_shutdown_local(p->handed, NULL);
	if (rc == 0 && far_shutdown(p->agent, timeout_ns, &err) != FAR_OK) {
		peer_complain(o, &err);
		rc = -1;
	} else if (rc < 0) {
		fprintf(stderr, "%s: the peer process no longer answers\n", o->what);
		far_shutdown_local(p->agent, NULL);
	}
	if (other)
		pthread_join(thread, NULL);
	if (other && rc == 0 && handed.status != FAR_OK)
		rc = -peer_complain(o, &handed.err);
	stop_all(p, rc == 0);
	return rc < 0;
}
