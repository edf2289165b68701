/* SPDX-License-Identifier: BSD-3-Clause */
/** A proxy in front of a memif server's control socket. DPDK's server aborts its process when a client disconnects
 * before the server's first message. So clients connect to the proxy, which forwards messages and descriptors in both
 * directions and keeps the server's connection open until the server has sent its first message. Control thread;
 * non-blocking. */
#ifndef NIC_DPDK_MEMIF_PROXY_H
#define NIC_DPDK_MEMIF_PROXY_H

#include "nic/nic.h"

#include <sys/socket.h>
#include <sys/un.h>

/* Clients of one socket at a time, one per server id; further ones wait to be accepted. */
#define RELAY_CLIENTS_MAX 64u

struct relay_at {
	struct sockaddr_un un;
	socklen_t len;
	bool abstract;
};

struct relay;

/** Listens at `front`, and replaces the socket file of a dead server; connects clients to the server at `back`. Unless
 * `any_user`, only processes of our user are accepted. -EADDRINUSE: another process listens at `front`, or it is no
 * socket. */
int relay_open(const struct relay_at *front, const struct relay_at *back, bool any_user, struct relay **out,
	       struct nic_err *err);
/** True if the process at the other end of a unix stream or SEQPACKET socket belongs to another user. */
bool relay_foreign(int fd);
/** Closes all connections and removes the socket of `front`. */
void relay_close(struct relay *r);
/** Accepts clients and forwards messages. True: the server has something to read. */
bool relay_pump(struct relay *r);
/** A descriptor that polls readable when relay_pump() has work. */
int relay_fd(const struct relay *r);
/** True if a client waits for a server that does not accept yet: call relay_pump() again soon. */
bool relay_waits(const struct relay *r);

#endif
