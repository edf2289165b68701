/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Layout of the memory that two workers of one host share: one sealed memfd for each pair of queues, and one for the
 * doorbells of each queue, shared with all its peers. Pollers read and write it. Every end may write all of it, so no
 * end trusts what it reads: indices, lengths and block numbers are copied out and checked, and whatever the reader's
 * own safety depends on (its position, the allocator's state) is in private memory.
 *
 *   page 0             constants, checked at set-up and not read afterwards; the proof of each end's process
 *   direction 0        connecting side → accepting side: consumer's line, slots, returns
 *   direction 1        accepting side → connecting side
 *   bulk 0, bulk 1     bodies larger than a slot: allocated by the direction's producer, read in place, returned by its
 *                      consumer
 */
#ifndef NIC_SHM_LAYOUT_H
#define NIC_SHM_LAYOUT_H

#include "base/shared.h"
#include "nic/lane.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_MAGIC   UINT64_C(0x314d485352414621)
#define SHM_VERSION 6u
/* Both rings of a pair take 128 KiB: with twice as many slots a call in flight costs 1.6 times as much (perf/NOTES.md,
 * "ring size"). */
#define SHM_SLOTS      LANE_LINES
#define SHM_BULK_BYTES (UINT64_C(64) << 20)
/* A message of 16 MiB and the engine's header. */
#define SHM_BODY_MAX ((UINT64_C(16) << 20) + 64)
#define SHM_BLOCK    256u /* granule of the bulk area, bytes */
#define SHM_BLOCKS   (uint32_t)(SHM_BULK_BYTES / SHM_BLOCK)
#define SHM_RETURNS  1024u /* bulk bodies in flight in one direction */

/** Where the body of a packet with LANE_BULK is: the last 16 bytes of its line. */
struct shm_bulk_ref {
	uint64_t len;
	uint32_t block;
	uint32_t reserved;
};
#define SHM_REF_OFFSET (LANE_LINE_BYTES - (uint32_t)sizeof(struct shm_bulk_ref))

/* What the producer does after it has published slots; set by the consumer. */
enum shm_rx_state {
	SHM_RX_POLLING, /* nothing */
	SHM_RX_ASLEEP,  /* writes to the consumer's eventfd */
	SHM_RX_DOORBELL /* sets the consumer's doorbell; then, if the queue is asleep, writes to its eventfd */
};

/* Whether the consumer can pull from the producer's process; set by the consumer at set-up, and when a pull fails. */
enum shm_rx_pulls { SHM_PULLS_NO, SHM_PULLS_YES };

/** Written by the consumer only, so that the line stays in the producer's cache while it does not change. */
struct shm_consumer {
	alignas(64) _Atomic uint32_t
		head;              /* slots given back, free-running; stored every LANE_GIVE_BACK slots, release */
	_Atomic uint32_t rx_state; /* enum shm_rx_state; see the fence pairing in shm_recv.c */
	_Atomic uint32_t rx_pulls; /* enum shm_rx_pulls */
};

/** One direction. The consumer returns a bulk block by a `returns` word, (lap << 18 | block), with a lap of 14 bits as
 * above over SHM_RETURNS; it is stored with release, after the last read of the body. */
struct shm_direction {
	struct shm_consumer consumer;
	struct nic_line slots[SHM_SLOTS];
	alignas(64) _Atomic uint32_t returns[SHM_RETURNS];
	/* Keys of the producer's memories that the consumer has mapped, by slot; 0: none. Written by the consumer: a
	 * wrong one makes the producer send references that the consumer cannot follow. */
	alignas(64) _Atomic uint32_t mapped[FAR_SHARED_MAX];
};

/** The doorbells of a queue: created by it, written by all its peers. A producer that reads SHM_RX_DOORBELL sets its
 * own byte, whose index it received at set-up, and then, by an exchange, the byte of that line of 64 doorbells in
 * `rung`, which a pass of the consumer reads alone. Any peer can write any byte: a doorbell without a packet costs a
 * poll of an empty ring; a cleared one, or a cleared `asleep`, delays others until the consumer's own round of polls
 * finds the packet (shm_recv.c). No invalid access follows. */
#define SHM_BELLS      4096u
#define SHM_BELL_LINES (SHM_BELLS / 64)
struct shm_doorbells {
	alignas(4096) uint64_t magic; /* with version and bells, checked at set-up and not read afterwards */
	uint32_t version;
	uint32_t bells;
	alignas(64) _Atomic uint32_t asleep; /* 1: after setting a doorbell, write to the queue's eventfd */
	alignas(64) union {
		_Atomic uint8_t rung[SHM_BELL_LINES]; /* 1: a doorbell of this line is set */
		_Atomic uint64_t rung_word[SHM_BELL_LINES / 8];
	};
	alignas(64) union {
		_Atomic uint8_t byte[SHM_BELLS];
		_Atomic uint64_t word[SHM_BELLS / 8];
	};
};

/** Written by the connecting side before it sends the memory; checked once by the accepting side. */
struct shm_header {
	uint64_t magic;
	uint32_t version;
	uint32_t slots;       /* of each direction */
	uint64_t bulk_bytes;  /* of each direction */
	uint64_t total_bytes; /* of the memory */
};

/** Proof of the process of one end: these bytes are at this address of its memory. Written at set-up, before the
 * message that the other end reads it upon. */
struct shm_process {
	uint64_t at; /* address in the process of that end */
	uint8_t nonce[16];
};

/** The shared memory of a pair of queues, less the two bulk areas that follow it. */
struct shm_pair {
	alignas(4096) struct shm_header header;
	alignas(64) struct shm_process process[2]; /* of the connecting side, of the accepting side */
	alignas(4096) struct shm_direction direction[2];
};

#define SHM_BULK_OFFSET(i) (sizeof(struct shm_pair) + (uint64_t)(i)*SHM_BULK_BYTES)
#define SHM_TOTAL_BYTES    SHM_BULK_OFFSET(2)

static_assert(offsetof(struct nic_line, bytes) == 4, "the body of a 28-byte head is aligned to 32");
static_assert(SHM_REF_OFFSET == 44, "heads up to 44 bytes");
static_assert(sizeof(struct shm_bulk_ref) == 16, "");
static_assert(sizeof(struct shm_consumer) == 64, "");
static_assert(offsetof(struct shm_pair, process) == 64 && sizeof(struct shm_process) == 24, "");
static_assert(offsetof(struct shm_doorbells, asleep) == 64 && offsetof(struct shm_doorbells, rung) == 128 &&
		      offsetof(struct shm_doorbells, byte) == 192,
	      "");
static_assert(sizeof(struct shm_doorbells) == 8192, "the first 3904 bells share a page with `asleep`");
static_assert(SHM_BLOCKS <= 1u << 18, "a block number has 18 bits");
static_assert(sizeof(struct shm_pair) % 4096 == 0, "bulk areas begin on a page");

/** Sets a doorbell. A reader that takes the byte of the line sees it: all senders set that byte by an exchange. */
static inline void shm_bell_ring(struct shm_doorbells *bells, uint32_t bell)
{
	atomic_store_explicit(&bells->byte[bell], 1, memory_order_relaxed);
	atomic_exchange_explicit(&bells->rung[bell / 64], 1, memory_order_acq_rel); /* pairs with sweep() */
}

#endif
