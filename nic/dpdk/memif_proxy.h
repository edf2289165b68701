/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * In front of a memif server's control socket: DPDK's server aborts its process when a client is gone again before it
 * could be greeted. So clients connect here, and what they and the server say, and the descriptors with it, is handed
 * on; the server's end of a connection stays open at least until it has greeted. Control core only, non-blocking.
 */
#ifndef NIC_DPDK_MEMIF_PROXY_H
#define NIC_DPDK_MEMIF_PROXY_H

#include "nic/nic.h"

#include <sys/socket.h>
#include <sys/un.h>

/* Clients of one socket at a time; more wait to be accepted. A server has one for each id. */
#define RELAY_CLIENTS_MAX 64u

struct relay_at {
	struct sockaddr_un un;
	socklen_t len;
	bool abstract;
};

struct relay;

/** Listens at `front`, where the file of a dead server is replaced, for the server at `back`. Unless `any_user`, only
 * processes of our user are served. -EADDRINUSE: somebody listens there, or it is no socket. */
int relay_open(const struct relay_at *front, const struct relay_at *back, bool any_user, struct relay **out,
	       struct nic_err *err);
/** Whether the process at the other end of a unix stream or SEQPACKET socket is of another user. */
bool relay_foreign(int fd);
/** Closes all connections; `out` of `front` again. */
void relay_close(struct relay *r);
/** Accepts, and hands on what there is; true: there is something for the server to do. */
bool relay_pump(struct relay *r);
/** Polls readable when relay_pump() has work. */
int relay_fd(const struct relay *r);
/** A client waits for a server that does not accept yet: pump again soon. */
bool relay_waits(const struct relay *r);

#endif
