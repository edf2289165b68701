/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The messages of a set-up, with the descriptors that travel with them. Control core.
 *
 *   ASK        connector: its nonce (16 bytes), the queue. This and the next two only where the group has a key
 *   CHALLENGE  acceptor: its nonce (16), its proof (16) of the key
 *   ANSWER     connector: its proof (16)
 *   HELLO      connector: the engine's words; descriptors
 *   WELCOME    acceptor: the same, or, at any time, a status: its refusal
 */
#ifndef NIC_SHM_SHM_CONTROL_H
#define NIC_SHM_SHM_CONTROL_H

#include "nic/nic.h"

#include <stddef.h>
#include <stdint.h>

enum shm_note_kind { SHM_NOTE_HELLO = 1, SHM_NOTE_WELCOME, SHM_NOTE_ASK, SHM_NOTE_CHALLENGE, SHM_NOTE_ANSWER };

/* One message on the socket; both ends run on one machine, so the byte order is its own. */
struct shm_note {
	uint64_t magic;
	uint32_t version;
	uint16_t kind;
	uint16_t len;      /* of bytes */
	int32_t status;    /* WELCOME: 0 or -errno */
	uint16_t queue;    /* ASK, HELLO: the acceptor's, that is asked for */
	uint16_t doorbell; /* to be rung by the receiver of the note, in the doorbells that come with it */
	uint8_t bytes[NIC_HELLO_BYTES_MAX];
};

/** `len` is at most NIC_HELLO_BYTES_MAX. */
struct shm_note shm_note_make(enum shm_note_kind kind, int status, const void *bytes, size_t len);

/* HELLO: the pair, the sender's eventfd, the doorbells of its queue. WELCOME: the latter two. */
#define SHM_NOTE_FDS 3

/** Sends a note with fds[0, fds_n), at most SHM_NOTE_FDS, which stay the caller's. 0 or -errno. */
int shm_note_send(int fd, const struct shm_note *note, const int *fds, unsigned fds_n);

/** 1: a note; 0: end of the stream; -EAGAIN; -EPROTO: something else; -EMFILE: no room for its descriptors; -errno.
 * Descriptors that came are the caller's; missing ones are −1. */
int shm_note_recv(int fd, struct shm_note *note, int fds[SHM_NOTE_FDS]);
void shm_note_close(int fds[SHM_NOTE_FDS]);

#endif
