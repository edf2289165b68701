/* SPDX-License-Identifier: BSD-3-Clause */
#include "peer.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME_SELF   "/proc/self/exe"
#define POLLS       16 /* passes of the shard's loop between two looks at the mode */
#define LEAVE_NS    (10 * FAR_SEC)
#define JOIN_NS     (20 * FAR_SEC)
#define REAP_NAPS   500
#define REAP_NAP_NS 10000000 /* 5 s in all */

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	(void)user;
	far_reply(req, data, len);
}

static void drain(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t sum = 0, w;
	const unsigned char *p = data;
	size_t at = 0;
	for (; at + sizeof w <= len; at += sizeof w) {
		memcpy(&w, p + at, sizeof w);
		sum += w;
	}
	for (; at < len; at++)
		sum += p[at];
	*(volatile uint64_t *)user = sum; /* keeps the compiler from dropping the reads */
	far_reply(req, NULL, 0);
}

struct floor_shared *peer_map(int fd)
{
	int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS | MAP_NORESERVE : 0);
	void *p = mmap(NULL, sizeof(struct floor_shared), PROT_READ | PROT_WRITE, flags, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

static int serve(void *ctx)
{
	for (int i = 0; i < POLLS; i++)
		far_shard_poll(ctx);
	return 0;
}

int peer_main(const struct perf_opts *o)
{
	static uint64_t sum;
	struct floor_shared *shared = peer_map((int)o->peer_fd);
	struct far_err err;
	struct far_agent *agent = NULL;
	if (o->peer_fd == 0 || o->peer_rank == 0 || o->peer_world == 0 || !shared) {
		fprintf(stderr, "farcall perf peer: started by farcall perf latency, rate and fanout only\n");
		return 2;
	}
	const struct far_msg_handler messages[] = {{PEER_ECHO, FAR_KIND_INLINE, echo, NULL},
						   {PEER_SINK, FAR_KIND_INLINE, drain, &sum}};
	/* This thread holds the shard and never leaves its loop: the policy "busy", with the server's own thread. It is
	 * not the agent's thread because that one could not step aside for the raw floors, and two busy threads on one
	 * core would measure the scheduler. */
	struct far_opts opts = {.nic = o->nic,
				.driver = FAR_DRIVER_SHARED,
				.init_timeout_ns = JOIN_NS,
				.messages = messages,
				.messages_n = 2};
	char name[32];
	snprintf(name, sizeof name, "worker%d", (int)o->peer_rank);
	if (far_init_rpc(name, (int)o->peer_rank, (int)o->peer_world, &opts, &agent, &err) != FAR_OK) {
		far_err_print(stderr, &err);
		return 1;
	}
	if (o->peer_cpu) /* behind the start of the agent: its threads shall not inherit it */
		perf_pin((int)o->peer_cpu - 1);
	enum far_status status = far_shard_acquire(agent, 0, &err);
	int rc = status == FAR_OK ? floor_serve(shared, serve, agent) : -1;
	if (status == FAR_OK)
		far_shard_release(agent);
	else
		far_err_print(stderr, &err);
	if (far_shutdown(agent, LEAVE_NS, &err) != FAR_OK)
		far_err_print(stderr, &err);
	return rc < 0;
}

static unsigned servers_of(const struct perf_opts *o)
{
	return o->servers ? (unsigned)o->servers : 1;
}

static int start_one(struct peer *p, const struct perf_opts *o)
{
	char fd_text[16], cpu_text[16], rank_text[16], world_text[16];
	int rc, rank = (int)p->servers + 1;
	int fd = memfd_create("farcall-perf", MFD_CLOEXEC);
	struct floor_shared *shared = NULL;
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct floor_shared)) < 0 || !(shared = peer_map(fd))) {
		rc = -errno;
		close(fd);
		return rc;
	}
	snprintf(fd_text, sizeof fd_text, "%d", fd);
	snprintf(cpu_text, sizeof cpu_text, "%d", perf_cpu((unsigned)rank) + 1);
	snprintf(rank_text, sizeof rank_text, "%d", rank);
	snprintf(world_text, sizeof world_text, "%u", servers_of(o) + 1);
	const char *argv[] = {"farcall",     "perf",    "peer",         "--peer-fd", fd_text, "--peer-cpu", cpu_text,
			      "--peer-rank", rank_text, "--peer-world", world_text,  "--nic", o->nic,       NULL};
	struct spawn_child child = {.group = &p->group,
				    .announce_fd = -1,
				    .rank = rank,
				    .file = NAME_SELF,
				    .argv = (char *const *)(uintptr_t)argv,
				    .in = -1,
				    .out = STDERR_FILENO, /* stdout is the measurement's */
				    .err = -1,
				    .keep_fd = fd};
	rc = spawn_start(&child, &p->pids[p->servers]);
	close(fd);
	if (rc < 0) {
		munmap(shared, sizeof *shared);
		return rc;
	}
	p->shares[p->servers++] = shared;
	return 0;
}

static void stop_all(struct peer *p, bool patient);

static int start(struct peer *p, const struct perf_opts *o)
{
	int rc = spawn_group_open(&p->group, (int)servers_of(o) + 1);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < servers_of(o) && rc == 0; i++)
		rc = start_one(p, o);
	if (rc < 0) {
		stop_all(p, false);
		spawn_group_close(&p->group);
	}
	p->shared = p->shares[0];
	return rc;
}

/* Waits for the peer's end, a few seconds when it was asked to; then kills it. */
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
	for (unsigned i = 0; i < p->servers; i++) {
		reap(p->pids[i], patient);
		munmap(p->shares[i], sizeof *p->shares[i]);
	}
	p->servers = 0;
}

int peer_open(struct peer *p, const struct perf_opts *o)
{
	struct far_err err;
	*p = (struct peer){0};
	int rc = start(p, o);
	if (rc < 0) {
		fprintf(stderr, "%s: cannot start the peer process: %s\n", o->what, strerror(-rc));
		return 1;
	}
	spawn_env(&p->group, 0);
	struct far_opts opts = {.nic = o->nic,
				.driver = o->via == PERF_VIA_DIRECT ? FAR_DRIVER_SHARED : FAR_DRIVER_OWN,
				.init_timeout_ns = JOIN_NS};
	enum far_status status = far_init_rpc("worker0", 0, (int)p->servers + 1, &opts, &p->agent, &err);
	if (status == FAR_OK) {
		perf_pin(perf_cpu(0));
		if (o->via == PERF_VIA_DIRECT)
			status = far_shard_acquire(p->agent, 0, &err);
		p->held = status == FAR_OK && o->via == PERF_VIA_DIRECT;
	}
	if (status == FAR_OK)
		return 0;
	fprintf(stderr, "%s: ", o->what);
	far_err_print(stderr, &err);
	stop_all(p, false);
	if (p->agent)
		far_shutdown_local(p->agent, NULL);
	return 1;
}

int peer_close(struct peer *p, const struct perf_opts *o)
{
	struct far_err err;
	int rc = 0;
	for (unsigned i = 0; i < p->servers && rc == 0; i++)
		rc = floor_switch(p->shares[i], FLOOR_STOP);
	if (p->held)
		far_shard_release(p->agent);
	if (rc == 0 && far_shutdown(p->agent, LEAVE_NS, &err) != FAR_OK) {
		fprintf(stderr, "%s: ", o->what);
		far_err_print(stderr, &err);
		rc = -1;
	} else if (rc < 0) {
		fprintf(stderr, "%s: the peer process no longer answers\n", o->what);
		far_shutdown_local(p->agent, NULL);
	}
	stop_all(p, rc == 0);
	return rc < 0;
}
