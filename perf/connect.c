/* SPDX-License-Identifier: BSD-3-Clause */
/** Joins a running `farcall perf serve` as rank 1 of 2, for `--connect`. Main thread. */
#include "connect.h"
#include "address.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIMEOUT_NS (10 * FAR_SEC) /* for the listener to be there; --timeout */

/* The floors need memory that both can write. The listener has it in a file without a name, which its process leads to.
 */
static int map_floor(struct peer *p, const struct perf_opts *o)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", p->server.pid, p->server.fd);
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	int rc = fd < 0 ? -errno : 0;
	if (rc == 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof *p->shared))
		rc = -ENXIO;
	if (rc == 0 && !(p->shared = peer_map(fd)))
		rc = -errno;
	if (fd >= 0)
		close(fd);
	if (rc == 0 && p->shared->cookie != p->server.cookie) {
		munmap(p->shared, sizeof *p->shared);
		p->shared = NULL;
		rc = -ENXIO;
	}
	if (rc == 0)
		return 0;
	fprintf(stderr,
		"%s: --floor: the listener's memory cannot be reached through %s (%s): both must run on one host, as "
		"one user and in one pid namespace; else leave --floor out\n",
		o->what, path, rc == -ENXIO ? "it is not there" : strerror(-rc));
	return 1;
}

static int greet(struct peer *p, const struct perf_opts *o)
{
	struct far_worker_info server;
	struct far_err err;
	size_t len = 0;
	enum far_status status =
		far_msg_call(p->agent, p->to, SERVER_DESCRIBE, NULL, 0, NULL, &p->server, sizeof p->server, &len, &err);
	if (status != FAR_OK && status != FAR_NO_FUNCTION && status != FAR_TOO_LARGE)
		return peer_complain(o, &err);
	p->server.version[sizeof p->server.version - 1] = 0;
	if (status != FAR_OK || len != sizeof p->server) {
		fprintf(stderr, "%s: what listens at %s is no 'farcall perf serve' of farcall %s\n", o->what,
			o->connect, FAR_VERSION);
		return 1;
	}
	if (strcmp(p->server.version, FAR_VERSION) != 0 || p->server.shared_bytes != sizeof *p->shared) {
		fprintf(stderr, "%s: the listener at %s is farcall %s, this is %s; use the same build on both sides\n",
			o->what, o->connect, p->server.version, FAR_VERSION);
		return 1;
	}
	if (far_worker_by_rank(p->agent, 0, &server, &err) != FAR_OK)
		return peer_complain(o, &err);
	snprintf(p->name, sizeof p->name, "%s", server.name);
	if (server.shards < o->shards) {
		fprintf(stderr, "%s: the listener has %u shards; start it with --shards %u\n", o->what, server.shards,
			(unsigned)o->shards);
		return 1;
	}
	return o->floor ? map_floor(p, o) : 0;
}

/* Notifies the listener, unless its version is different. */
static enum far_status leave(struct peer *p, bool notify, struct far_err *err)
{
	enum far_status status = FAR_OK;
	if (notify)
		status = far_msg_call(p->agent, p->to, SERVER_BYE, NULL, 0, NULL, NULL, 0, NULL, err);
	if (notify && status == FAR_OK)
		status = far_shutdown(p->agent, PEER_LEAVE_NS, err);
	else
		far_shutdown_local(p->agent, NULL);
	p->agent = NULL;
	if (p->shared)
		munmap(p->shared, sizeof *p->shared);
	p->shared = NULL;
	return status;
}

int connect_open(struct peer *p, const struct perf_opts *o)
{
	struct address at;
	struct far_err err;
	char url[ADDRESS_TEXT_MAX];
	address_parse(o->connect, false, &at, url); /* was checked with the other flags */
	address_url(&at, url);
	struct far_opts opts = {.init_method = url,
				.nic = o->nic,
				.security = o->security,
				.progress = o->via == PERF_VIA_DIRECT ? FAR_PROGRESS_SHARED : FAR_PROGRESS_DEDICATED,
				.shards = (unsigned)o->shards,
				.init_timeout_ns = o->timeout_ns ? o->timeout_ns : TIMEOUT_NS,
				.peer_limit_ns = PEER_LIMIT_NS,
				.functions = server_functions,
				.functions_n = SERVER_FUNCTIONS};
	if (far_init_rpc("measurer", 1, 2, &opts, &p->agent, &err) != FAR_OK)
		return peer_complain(o, &err);
	p->connected = true;
	p->to = (struct far_to){.worker = 0, .shard = 0};
	int rc = greet(p, o);
	if (rc)
		leave(p, p->server.shared_bytes != 0, &err);
	return rc;
}

int connect_close(struct peer *p, const struct perf_opts *o)
{
	struct far_err err;
	return leave(p, true, &err) == FAR_OK ? 0 : peer_complain(o, &err);
}
