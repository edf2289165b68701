/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Control messages of a connection set-up, with the descriptors that travel with them. Control thread.
 *
 *   SHM_CONTROL_AUTH        connecting side: its nonce (16 bytes), the queue. Only if the group has a key, as the next
 * two SHM_CONTROL_CHALLENGE  accepting side: its nonce (16), its proof (16) of the key SHM_CONTROL_RESPONSE connecting
 * side: its proof (16) SHM_CONTROL_CONNECT      connecting side: connect request with the handshake payload;
 * descriptors SHM_CONTROL_REPLY    accepting side: accept with the same; or, at any time, a reject with its reason
 *   SHM_CONTROL_MEMORY      both, later: a memory that the receiver may map, with its descriptor; without one it is
 * freed
 */
#ifndef NIC_SHM_SHM_CONTROL_H
#define NIC_SHM_SHM_CONTROL_H

#include "nic/nic.h"

#include <stddef.h>
#include <stdint.h>

enum shm_control_kind {
	SHM_CONTROL_CONNECT = 1,
	SHM_CONTROL_REPLY,
	SHM_CONTROL_AUTH,
	SHM_CONTROL_CHALLENGE,
	SHM_CONTROL_RESPONSE,
	SHM_CONTROL_MEMORY
};

/* Content of SHM_CONTROL_MEMORY. */
struct shm_memory_msg {
	uint64_t bytes; /* of the memory; 0 without a descriptor */
	uint32_t key;   /* base/shared.h */
	uint32_t zero;
};

/* One message on the socket, in host byte order: both ends run on one machine. */
struct shm_control_msg {
	uint64_t magic;
	uint32_t version;
	uint16_t kind;
	uint16_t len;      /* bytes used of bytes[] */
	int32_t status;    /* SHM_CONTROL_REPLY: 0: accept; -errno: reject */
	uint16_t queue;    /* SHM_CONTROL_AUTH, SHM_CONTROL_CONNECT: index of the addressed queue */
	uint16_t doorbell; /* index of the doorbell that the receiver rings, in the doorbells that come with the message
			    */
	uint8_t bytes[NIC_HANDSHAKE_BYTES_MAX];
};

/** `len` is at most NIC_HANDSHAKE_BYTES_MAX. */
struct shm_control_msg shm_control_make(enum shm_control_kind kind, int status, const void *bytes, size_t len);

/* Descriptors of SHM_CONTROL_CONNECT: the pair, the sender's eventfd, the doorbells of its queue. Of SHM_CONTROL_REPLY:
 * the latter two. */
#define SHM_CONTROL_FDS 3

/** Sends a message with fds[0, fds_n), at most SHM_CONTROL_FDS, which stay the caller's. 0 or -errno. */
int shm_control_send(int fd, const struct shm_control_msg *message, const int *fds, unsigned fds_n);

/** 1: a message; 0: end of the stream; -EAGAIN; -EPROTO: not a valid message; -EMFILE: no room for its descriptors;
 * -errno. Received descriptors are the caller's; missing ones are −1. */
int shm_control_recv(int fd, struct shm_control_msg *message, int fds[SHM_CONTROL_FDS]);
void shm_control_close_fds(int fds[SHM_CONTROL_FDS]);

#endif
