/* SPDX-License-Identifier: BSD-3-Clause */
/** The input of fuzz_shard, and the packet that is made of it. Main thread. */
#ifndef SHARD_PACKET_H
#define SHARD_PACKET_H

#include "shard_peer.h"

extern const uint8_t *input_at, *input_end;
extern uint8_t body[PEER_BODY_MAX]; /* of the packet, [0, body_len) */
extern size_t body_len;
extern struct peer *peer; /* that sends it */
extern bool faulty;       /* the input has a fault for it */

/** The next byte of the input; 0 at its end. */
uint8_t u8(void);
/** Appends to the body. */
void add(const void *bytes, size_t len);
/** Nanoseconds that a byte stands for; 0: no limit. */
uint64_t duration(uint8_t b);
/** Sets the time left of a request or one-way message. */
void set_time(union packet_head *h, uint64_t time);
/** Sends the packet, with the fault that the input chooses. */
void send_packet(union packet_head h);
/** The same as a request of a new call. */
void send_request(union packet_head h);
/** The n-th request from the last one on. */
union packet_head was_sent(unsigned n);
/** Appends so many bytes as one of the input stands for: the first 32 from the input. */
void add_bytes(uint8_t size);
/** Name of a reference. Bits 0-2: count, 3-4: worker, 5: shard of the owner, 6: shard of the giver, 7: wrong. */
struct rref_id id_of(uint8_t b);
/** The incarnation of a worker, or a wrong one. */
uint64_t owner_of(uint8_t b);
/** The same as id_of(), but by default one of the names that the peer gives. */
struct rref_id own_id(uint8_t b);
/** Appends a payload of references. */
void add_rrefs(unsigned n);
/** Appends a payload of one of 16 forms. */
void add_arguments(uint8_t how);
/** A function or method of the application; NULL: none. */
const struct function *function_of(uint8_t b);
/** Its hashes, or wrong ones. */
struct rref_function hashes_of(uint8_t b);
/** Its number. */
uint16_t number_of(uint8_t b);

#endif
