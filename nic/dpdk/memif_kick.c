/* SPDX-License-Identifier: BSD-3-Clause */
/** Socket addresses of memif ports, and kicks between them: DPDK's memif has no interrupt that a thread could sleep on.
 * Control thread. */
#include "nic/dpdk/dpdk.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

socklen_t dpdk_memif_address(const struct dpdk_args *a, const char *suffix, struct sockaddr_un *out)
{
	memset(out, 0, sizeof *out);
	out->sun_family = AF_UNIX;
	int n = snprintf(out->sun_path + a->abstract, sizeof out->sun_path - a->abstract, "%s%s", a->socket, suffix);
	if (n < 0 || (size_t)n >= sizeof out->sun_path - a->abstract)
		return 0;
	return a->abstract ? (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n) : sizeof *out;
}

/* The kick socket lies beside memif's socket, so a peer that reaches one reaches the other. The name is unique, since
 * an id has one server and one client. */
static void dpdk_memif_kick_address(const struct dpdk_args *a, bool server, unsigned index, struct host_kick *out)
{
	char suffix[32];
	memset(out, 0, sizeof *out);
	snprintf(suffix, sizeof suffix, ".%c%u.%u", server ? 's' : 'c', a->id, index);
	out->len = dpdk_memif_address(a, suffix, (struct sockaddr_un *)&out->to);
}

void dpdk_memif_peer_kick(struct dpdk_port *p, unsigned index, struct host_kick *out)
{
	dpdk_memif_kick_address(&p->args, !p->args.server, index, out);
}

void dpdk_memif_kick_unlink(const struct dpdk_port *p, unsigned index)
{
	struct host_kick at;
	dpdk_memif_kick_address(&p->args, p->args.server, index, &at);
	if (at.len && !p->args.abstract)
		unlink(((struct sockaddr_un *)&at.to)->sun_path);
}

int dpdk_memif_kick_open(struct dpdk_port *p, unsigned index, struct nic_err *err)
{
	struct host_kick at;
	dpdk_memif_kick_address(&p->args, p->args.server, index, &at);
	if (!at.len)
		return dpdk_error(err, -ENAMETOOLONG, "dpdk: %s is too long: socket= of memif takes up to 80 bytes",
				  p->args.socket);
	int fd = p->args.abstract ? host_kick_sender(&at)
				  : host_kick_open_unix(((struct sockaddr_un *)&at.to)->sun_path, err);
	if (p->args.abstract && fd >= 0 && bind(fd, (const struct sockaddr *)&at.to, at.len) < 0) {
		int error = errno;
		close(fd);
		fd = dpdk_error(err, -error, "dpdk: cannot receive kicks at @%s: %s", p->args.socket, strerror(error));
	}
	return fd == -EADDRINUSE
		       ? dpdk_error(err, fd,
				    "dpdk: another process is memif's %s with id %u on %s; use another id= here",
				    p->args.server ? "server" : "client", p->args.id, p->args.socket)
		       : fd;
}
