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
#define MEMIF_PROXY_CLIENTS_MAX 64u

/** A unix socket: a path, or (abstract) a name that begins with a zero byte. */
struct memif_proxy_address {
	struct sockaddr_un un;
	socklen_t len; /* used bytes of `un` */
	bool abstract;
};

struct memif_proxy;

/** Listens at `front`, and replaces the socket file of a dead server; connects clients to the server at `back`. Unless
 * `any_user`, only processes of our user are accepted. -EADDRINUSE: another process listens at `front`, or it is no
 * socket. */
int memif_proxy_open(const struct memif_proxy_address *front, const struct memif_proxy_address *back, bool any_user,
		     struct memif_proxy **out, struct nic_err *err);
/** True if the process at the other end of a unix stream or SEQPACKET socket belongs to another user. */
bool memif_proxy_is_other_user(int fd);
/** Closes all connections and removes the socket of `front`. */
void memif_proxy_close(struct memif_proxy *r);
/** Accepts clients and forwards messages. True: the server has something to read. */
bool memif_proxy_run(struct memif_proxy *r);
/** A descriptor that polls readable when memif_proxy_run() has work. */
int memif_proxy_fd(const struct memif_proxy *r);

#endif
