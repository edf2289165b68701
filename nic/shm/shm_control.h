/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Control messages of a connection set-up, with the descriptors that travel with them. Control thread.
 *
 *   SHM_NOTE_ASK        connecting side: its nonce (16 bytes), the queue. Only if the group has a key, as the next two
 *   SHM_NOTE_CHALLENGE  accepting side: its nonce (16), its proof (16) of the key
 *   SHM_NOTE_ANSWER     connecting side: its proof (16)
 *   SHM_NOTE_HELLO      connecting side: connect request with the handshake payload; descriptors
 *   SHM_NOTE_WELCOME    accepting side: accept with the same; or, at any time, a reject with its reason
 */
#ifndef NIC_SHM_SHM_CONTROL_H
#define NIC_SHM_SHM_CONTROL_H

#include "nic/nic.h"

#include <stddef.h>
#include <stdint.h>

enum shm_note_kind { SHM_NOTE_HELLO = 1, SHM_NOTE_WELCOME, SHM_NOTE_ASK, SHM_NOTE_CHALLENGE, SHM_NOTE_ANSWER };

/* One message on the socket, in host byte order: both ends run on one machine. */
struct shm_note {
	uint64_t magic;
	uint32_t version;
	uint16_t kind;
	uint16_t len;      /* bytes used of bytes[] */
	int32_t status;    /* SHM_NOTE_WELCOME: 0: accept; -errno: reject */
	uint16_t queue;    /* SHM_NOTE_ASK, SHM_NOTE_HELLO: index of the addressed queue */
	uint16_t doorbell; /* index of the doorbell that the receiver rings, in the doorbells that come with the message
			    */
	uint8_t bytes[NIC_HELLO_BYTES_MAX];
};

/** `len` is at most NIC_HELLO_BYTES_MAX. */
struct shm_note shm_note_make(enum shm_note_kind kind, int status, const void *bytes, size_t len);

/* Descriptors of SHM_NOTE_HELLO: the pair, the sender's eventfd, the doorbells of its queue. Of SHM_NOTE_WELCOME: the
 * latter two. */
#define SHM_NOTE_FDS 3

/** Sends a message with fds[0, fds_n), at most SHM_NOTE_FDS, which stay the caller's. 0 or -errno. */
int shm_note_send(int fd, const struct shm_note *note, const int *fds, unsigned fds_n);

/** 1: a message; 0: end of the stream; -EAGAIN; -EPROTO: not a valid message; -EMFILE: no room for its descriptors;
 * -errno. Received descriptors are the caller's; missing ones are −1. */
int shm_note_recv(int fd, struct shm_note *note, int fds[SHM_NOTE_FDS]);
void shm_note_close(int fds[SHM_NOTE_FDS]);

#endif
