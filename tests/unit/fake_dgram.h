/* SPDX-License-Identifier: BSD-3-Clause */
/** A datagram driver in memory, under the link: packets may be lost, repeated, overtaken and damaged by a seed, or by a
 * test's own hook. Each queue may have a thread of its own. */
#ifndef FAKE_DGRAM_H
#define FAKE_DGRAM_H

#include "nic/nic.h"

#include <pthread.h>
#include <stdatomic.h>

enum { DGRAM_PORTS = 8, DGRAM_QUEUES = 4, DGRAM_PLACES = 32768 };

struct dgram_packet {
	struct dgram_packet *next;
	uint32_t len;
	uint8_t *bytes; /* aligned to 64, and `misalign` more */
};

struct dgram_queue {
	struct nic_queue base;
	struct dgram_port *port;
	unsigned index;
	pthread_mutex_t lock; /* of what arrived */
	struct dgram_packet *first, **last, *taken;
	unsigned waiting;
	uint8_t *room; /* being written */
	int wake_fd;
	_Atomic int armed;
};

struct dgram_place {
	bool used, up, attached;
	unsigned queue, to_port, route;
	void *user;
};

struct dgram_port {
	struct nic_port base;
	struct dgram_fabric *fabric;
	unsigned index, queues_n;
	bool closed;
	int event_fd;
	pthread_mutex_t lock; /* of the places */
	unsigned lowest;      /* none below is free */
	unsigned waiting;     /* whose UP is to be reported */
	struct dgram_queue queues[DGRAM_QUEUES];
	struct dgram_place places[DGRAM_PLACES];
};

/** From port and queue, to port and queue; true: let it through. May change the bytes. */
typedef bool dgram_hook(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len);

struct dgram_fabric {
	struct dgram_port *ports[DGRAM_PORTS];
	unsigned ports_n;
	uint64_t seed;
	unsigned drop, repeat, overtake, damage; /* of 1000 */
	_Atomic uint32_t packet_max;             /* what tx_bytes_max() says, and tx_reserve() checks */
	uint32_t narrow[DGRAM_PORTS];            /* the same of what this port sends, when it is less; 0: it is not */
	uint32_t black_hole;                     /* longer ones vanish; 0: none do */
	unsigned room;                           /* packets that a queue holds; more are lost */
	unsigned full_every;                     /* each so-manieth tx_reserve() says -EAGAIN; 0: none */
	unsigned misalign;
	bool crc, wake, hash, unready;      /* unready: UP is not reported */
	unsigned respread;                  /* with hash: all paths lead to so many queues further */
	void (*dress)(struct nic_queue *q); /* of a port that opens: may give it other operations; NULL: none */
	dgram_hook *hook;
	void *hook_ctx;
	_Atomic uint8_t priority; /* nic_tx.priority of what the hook sees */
	_Atomic uint64_t waiting; /* what tx_waiting() says */
	_Atomic uint64_t sent, kicks, reserves;
};

void dgram_fabric_init(struct dgram_fabric *f);
struct nic_port *dgram_open(struct dgram_fabric *f, unsigned queues);
/** Puts a packet before a queue as if somebody had sent it. */
void dgram_inject(struct dgram_fabric *f, unsigned port, unsigned queue, const void *bytes, uint32_t len);
/** Packets that wait at all queues. */
unsigned dgram_waiting(struct dgram_fabric *f);
/** Makes an address, as published, that of another port of the fabric. */
void dgram_address_of(unsigned port, struct nic_addr *out);

#endif
