/* SPDX-License-Identifier: BSD-3-Clause */
/** Attaches N idle peers to a server for `--peers`, from one helper process. Main thread and joining threads. */
#include "attached.h"
#include "floor_ring.h"
#include "idle_usage.h"
#include "server.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)256 << 10) /* of the threads that join and leave */
#define SERVER_RANK 1
/* What an agent of the helper has when its link is up, with room for what is only there meanwhile; the report has
 * the sums (perf/NOTES.md, "peers"). */
#define AGENT_FILES 10
#define AGENT_MAPS  14
#define OWN_FILES   64
#define OWN_MAPS    2000 /* of a server with its fibers' stacks */

unsigned attached_agents(const struct perf_opts *o)
{
	/* The group has the measuring process and the server, too; where that leaves no room for the last of them, the
	 * server is connected to itself instead. */
	unsigned most = ATTACHED_PEERS_MAX - 2, want = o->peers ? (unsigned)o->peers - 1 : 0;
	return want < most ? want : most;
}

static bool self_needed(const struct perf_opts *o)
{
	return o->peers > 0 && o->peers - 1 > attached_agents(o);
}

static uint64_t number_of_file(const char *path)
{
	unsigned long long v = 0;
	FILE *f = fopen(path, "r");
	if (f && fscanf(f, "%llu", &v) != 1)
		v = 0;
	if (f)
		fclose(f);
	return v;
}

int attached_check(const struct perf_opts *o)
{
	struct rlimit files;
	uint64_t n = attached_agents(o), need = n * AGENT_FILES + OWN_FILES, maps = n * AGENT_MAPS + OWN_MAPS;
	if (n == 0)
		return 0;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < need) {
		uint64_t fit = files.rlim_max > OWN_FILES ? (files.rlim_max - OWN_FILES) / AGENT_FILES + 1 : 1;
		fprintf(stderr,
			"%s: --peers %" PRIu64 " needs %" PRIu64
			" open files in one process, the hard limit is %" PRIu64
			"; raise it (ulimit -Hn, or LimitNOFILE= of the service), or give at most --peers %" PRIu64
			"\n",
			o->what, o->peers, need, (uint64_t)files.rlim_max, fit);
		return 1;
	}
	uint64_t maps_max = number_of_file("/proc/sys/vm/max_map_count");
	if (maps_max && maps_max < maps) {
		uint64_t fit = maps_max > OWN_MAPS ? (maps_max - OWN_MAPS) / AGENT_MAPS + 1 : 1;
		fprintf(stderr,
			"%s: --peers %" PRIu64 " needs %" PRIu64 " memory mappings in one process, vm.max_map_count is "
			"%" PRIu64 "; raise it (sysctl vm.max_map_count=%" PRIu64 "), or give at most --peers %" PRIu64
			"\n",
			o->what, o->peers, maps, maps_max, maps, fit);
		return 1;
	}
	return attached_raise_files() < 0;
}

int attached_raise_files(void)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &files) == 0)
			return 0;
	}
	int rc = -errno;
	fprintf(stderr, "farcall perf: cannot raise the limit of open files: %s\n", strerror(-rc));
	return rc;
}

/* ---- in the measuring process ---- */

int attached_start(struct attached *a, const struct spawn_group *group, const struct perf_opts *o, int rank)
{
	char rank_text[16], world_text[16], peers_text[24];
	int in[2], out[2];
	if (pipe2(in, O_CLOEXEC) < 0)
		return -errno;
	if (pipe2(out, O_CLOEXEC) < 0) {
		int rc = -errno;
		close(in[0]);
		close(in[1]);
		return rc;
	}
	snprintf(rank_text, sizeof rank_text, "%d", rank);
	snprintf(world_text, sizeof world_text, "%d", group->world);
	snprintf(peers_text, sizeof peers_text, "%u", (unsigned)o->peers);
	const char *argv[] = {"farcall",  "perf",    "attached", "--peer-rank", rank_text, "--peer-world",
			      world_text, "--peers", peers_text, "--nic",       o->nic,    NULL};
	struct spawn_child child = {.group = group,
				    .announce_fd = -1,
				    .rank = rank,
				    .file = "/proc/self/exe",
				    .argv = (char *const *)(uintptr_t)argv,
				    .in = in[0],
				    .out = out[1],
				    .err = -1,
				    .keep_fd = -1};
	int rc = spawn_start(&child, &a->pid);
	close(in[0]);
	close(out[1]);
	a->in = in[1];
	a->out = out[0];
	if (rc < 0) {
		a->pid = -1;
		attached_close(a);
	}
	return rc;
}

/* The server's link with itself, where one agent is missing. */
static int await_self(struct far_agent *agent, const struct perf_opts *o)
{
	unsigned char answered = 0;
	uint64_t until = floor_now() + 10 * FAR_SEC;
	struct far_to server = {.worker = SERVER_RANK, .shard = 0};
	while (!answered) {
		struct far_err err;
		if (far_msg_call(agent, server, SERVER_SELF, NULL, 0, NULL, &answered, 1, NULL, &err) != FAR_OK) {
			fprintf(stderr, "%s: ", o->what);
			far_err_print(stderr, &err);
			return 1;
		}
		if (!answered && floor_now() > until) {
			fprintf(stderr, "%s: the server's call to itself was not answered for 10 s\n", o->what);
			return 1;
		}
	}
	return 0;
}

int attached_await(struct attached *a, struct far_agent *agent, const struct perf_opts *o)
{
	if (a->pid < 0)
		return 0;
	uint64_t until = floor_now() + 10 * FAR_SEC + o->peers * ATTACHED_JOIN_NS;
	struct pollfd p = {.fd = a->out, .events = POLLIN};
	size_t got = 0;
	while (got < sizeof a->report) {
		uint64_t now = floor_now();
		int n = now < until ? poll(&p, 1, (int)((until - now) / 1000000 + 1)) : 0;
		if (n < 0 && errno == EINTR)
			continue;
		ssize_t more = n > 0 ? read(a->out, (char *)&a->report + got, sizeof a->report - got) : 0;
		if (more <= 0) {
			fprintf(stderr, "%s: the %u idle agents did not get attached: %s\n", o->what,
				attached_agents(o), n > 0 ? "their process ended" : "they took too long");
			return 1;
		}
		got += (size_t)more;
	}
	return self_needed(o) ? await_self(agent, o) : 0;
}

void attached_leave(struct attached *a)
{
	if (a->in >= 0)
		close(a->in);
	a->in = -1;
}

void attached_close(struct attached *a)
{
	attached_leave(a);
	if (a->out >= 0)
		close(a->out);
	a->out = -1;
}

/* ---- in the helper ---- */

struct idle_agent {
	const struct perf_opts *o;
	struct far_agent *agent;
	pthread_t thread;
	int rank;
	bool failed;
};

static void *join_main(void *arg)
{
	struct idle_agent *a = arg;
	struct far_err err;
	char name[32];
	struct far_opts opts = {.nic = a->o->nic,
				.connect = FAR_CONNECT_LAZY,
				.init_timeout_ns = 20 * FAR_SEC + a->o->peers * ATTACHED_JOIN_NS};
	snprintf(name, sizeof name, "worker%d", a->rank);
	a->failed = far_init_rpc(name, a->rank, (int)a->o->peer_world, &opts, &a->agent, &err) != FAR_OK;
	if (a->failed)
		far_err_print(stderr, &err);
	return NULL;
}

static void *leave_main(void *arg)
{
	struct idle_agent *a = arg;
	struct far_err err;
	a->failed = far_shutdown(a->agent, 10 * FAR_SEC + a->o->peers * ATTACHED_JOIN_NS, &err) != FAR_OK;
	if (a->failed)
		far_err_print(stderr, &err);
	return NULL;
}

/* Joining and leaving wait for all, so all do it at once. */
static bool in_all(struct idle_agent *agents, unsigned n, void *(*body)(void *))
{
	pthread_attr_t attr;
	bool ok = true;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	for (unsigned i = 0; i < n; i++) {
		int error = pthread_create(&agents[i].thread, &attr, body, &agents[i]);
		if (!error)
			continue;
		fprintf(stderr, "farcall perf attached: cannot start thread %u of %u: %s\n", i, n, strerror(error));
		_exit(1); /* the others would wait for it */
	}
	for (unsigned i = 0; i < n; i++) {
		pthread_join(agents[i].thread, NULL);
		ok &= !agents[i].failed;
	}
	pthread_attr_destroy(&attr);
	return ok;
}

static bool attach(struct idle_agent *agents, unsigned n)
{
	struct far_to server = {.worker = SERVER_RANK, .shard = 0};
	struct far_err err;
	for (unsigned i = 0; i < n; i++)
		if (far_msg_call(agents[i].agent, server, SERVER_ECHO, &i, sizeof i, NULL, &i, sizeof i, NULL, &err) !=
		    FAR_OK) {
			far_err_print(stderr, &err);
			return false;
		}
	return true;
}

static uint64_t entries(const char *path)
{
	uint64_t n = 0;
	DIR *d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n > 2 ? n - 2 : 0;
}

static uint64_t lines(const char *path)
{
	uint64_t n = 0;
	FILE *f = fopen(path, "r");
	for (int c; f && (c = getc(f)) != EOF;)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

static int send_report(uint64_t start, unsigned n)
{
	struct idle_usage usage;
	idle_usage_read(&usage);
	struct attached_report r = {.seconds = (double)(floor_now() - start) / 1e9,
				    .rss_bytes = usage.rss_bytes,
				    .threads = usage.threads,
				    .files = entries("/proc/self/fd"),
				    .maps = lines("/proc/self/maps"),
				    .agents = n};
	return write(STDOUT_FILENO, &r, sizeof r) == (ssize_t)sizeof r ? 0 : -1;
}

int attached_main(const struct perf_opts *o)
{
	uint64_t start = floor_now();
	unsigned n = attached_agents(o);
	struct idle_agent *agents = calloc(n ? n : 1, sizeof *agents);
	char byte;
	if (o->peer_rank == 0 || o->peer_world == 0 || n == 0) {
		fprintf(stderr, "farcall perf attached: started by farcall perf latency and rate only\n");
		free(agents);
		return 2;
	}
	if (!agents || attached_raise_files() < 0)
		return 1;
	setenv("FAR_LOG", "warning", 0); /* the agents wait for each other: the measuring process says for whom */
	for (unsigned i = 0; i < n; i++)
		agents[i] = (struct idle_agent){.o = o, .rank = (int)(o->peer_rank + i)};
	if (!in_all(agents, n, join_main) || !attach(agents, n) || send_report(start, n) < 0)
		_exit(1); /* with a message; what is left goes with the process */
	while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR)
		;
	bool left = in_all(agents, n, leave_main);
	free(agents);
	return !left;
}
