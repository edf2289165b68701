/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The floors: what two cores of this machine can do at best, without any engine. The two sides share one mapping; the
 * client measures, the server echoes. Which floor is running is one word that the client writes and the server obeys,
 * so that a measurement of the engine and its floor can alternate in the same two processes.
 * Main thread of each process.
 */
#ifndef PERF_FLOOR_RING_H
#define PERF_FLOOR_RING_H

#include "hist.h"
#include "nic/nic.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

#define FLOOR_LINE_BYTES    64
#define FLOOR_PAYLOAD_BYTES 32u
#define FLOOR_SLOTS         1024 /* of a ring; more than are ever outstanding, so that it needs no fill check */
#define FLOOR_SLOTS_RTT     1024 /* used in turn by the round trip */
#define FLOOR_REPEATS_MAX   5
#define FLOOR_FAR_NS        5000 /* no round trip between two cores takes so long: one of them was lost */
#define FLOOR_RING_MAX      1.5  /* ring over cache line; above, something else ran on the cores */
#define FLOOR_BURST         16
#define FLOOR_INFLIGHT_MAX  512
#define FLOOR_AREA_BYTES    ((uint64_t)64 << 20) /* blocks of the copy floor; pages that nobody touches cost nothing */
#define FLOOR_LOST_NS       UINT64_C(5000000000) /* a partner silent for that long is taken for dead */
#define FLOOR_REST_NS       1000000              /* between two looks of a server that rests */
#define FLOOR_SPINS         1024                 /* looks at a word between two looks at everything else */

enum floor_mode {
	FLOOR_IDLE,   /* the server does what it is there for otherwise */
	FLOOR_LINE,   /* two lines, one written by each side */
	FLOOR_RING,   /* round trips through the rings, one outstanding */
	FLOOR_BURSTS, /* the rings, many outstanding */
	FLOOR_COPY,   /* one copy, every byte of it read by the other core */
	FLOOR_WAKE,   /* an eventfd wakes the other side */
	FLOOR_REST,   /* the server sleeps: its core is free for others */
	FLOOR_STOP,   /* the server ends */
	/* Those that the server's host knows, see struct floor_host. */
	FLOOR_ROWS,       /* rows of a flat array are read or updated by key, one request outstanding */
	FLOOR_SLEEP,      /* the server lets go of its shard and sleeps until wake_fd is written */
	FLOOR_NIC_OPEN,   /* it opens its end of a floor over a NIC */
	FLOOR_NIC_RTT,    /* raw packets, one outstanding */
	FLOOR_NIC_BURSTS, /* many outstanding */
	FLOOR_NIC_STREAM, /* large ones, one way */
	FLOOR_NIC_WAKE    /* a packet wakes the other side */
};

/* What the server is to do in FLOOR_NIC_OPEN. */
enum floor_meet {
	FLOOR_MEET_ADDRESS, /* say where it is reached */
	FLOOR_MEET_SOCKET,  /* open a UDP socket */
	FLOOR_MEET_QUEUE    /* have its queue send to the client's */
};

#define FLOOR_TEXT_BYTES 384 /* of why something did not work */

/* How the two ends of a floor over a NIC find each other. Each side writes while the other one waits. */
struct floor_meeting {
	/* client */
	int32_t what;   /* enum floor_meet */
	int32_t worker; /* its rank, when the ends are agents */
	struct nic_addr client;
	uint32_t bytes_max;           /* QUEUE: of a packet; the server takes it down to its own */
	struct sockaddr_storage from; /* SOCKET: its own */
	struct sockaddr_storage to;   /* SOCKET: the server's, who fills in the port */
	/* server */
	struct nic_addr server; /* FLOOR_MEET_ADDRESS */
	int32_t error;          /* 0 or -errno */
	char text[FLOOR_TEXT_BYTES];
};

/* A line to itself, and the next one too: the prefetcher of adjacent lines fetches pairs. */
struct floor_word {
	_Alignas(2 * FLOOR_LINE_BYTES) _Atomic uint64_t v;
};

struct floor_slot {
	_Alignas(FLOOR_LINE_BYTES) _Atomic uint64_t seq; /* position + 1 when filled; release, pairs with the acquire of
							    the reader */
	unsigned char data[FLOOR_LINE_BYTES - sizeof(uint64_t)];
};
static_assert(sizeof(struct floor_slot) == FLOOR_LINE_BYTES, "a slot is a line");

struct floor_shared {
	uint64_t cookie;         /* random, so that who maps it by a name knows it; server, before anybody maps it */
	struct floor_word mode;  /* client: generation << 8 | enum floor_mode */
	struct floor_word state; /* server: the mode it is in */
	struct floor_word line[2];
	struct floor_word head, tail; /* FLOOR_COPY: blocks written, blocks read; FLOOR_ROWS: requests, replies */
	struct floor_word stamp;      /* FLOOR_WAKE: when the server woke */
	struct floor_word sum;        /* FLOOR_COPY: of what was read, so that the reads cannot be left out */
	/* Written by the client in FLOOR_IDLE only. */
	_Alignas(2 * FLOOR_LINE_BYTES) uint64_t position; /* of the rings */
	uint64_t block_bytes;                             /* FLOOR_COPY */
	uint64_t depth;                                   /* FLOOR_COPY: blocks in flight */
	uint64_t source; /* FLOOR_COPY: address of the blocks in the client, which the server copies itself; 0: none */
	int32_t source_pid; /* the client */
	int32_t wake_fd;    /* FLOOR_WAKE, FLOOR_SLEEP: an eventfd of that number in both processes; -1: none */
	struct floor_meeting meeting; /* FLOOR_NIC_OPEN */
	struct floor_slot to[FLOOR_SLOTS];
	struct floor_slot from[FLOOR_SLOTS];
	_Alignas(4096) unsigned char area[FLOOR_AREA_BYTES];
};

static inline uint64_t floor_clock(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint64_t floor_now(void)
{
	return floor_clock(CLOCK_MONOTONIC);
}

/** What a server does beside the floors of memory. Both return 0, or -errno to end floor_serve(). */
struct floor_host {
	int (*idle)(void *ctx);                 /* called again and again in FLOOR_IDLE */
	int (*serve)(void *ctx, uint64_t mode); /* FLOOR_SLEEP and those behind it; returns when the mode changes */
	void *ctx;
};

/** Server: obeys `mode` until FLOOR_STOP. 0, or -errno; -ETIMEDOUT: the client is silent. */
int floor_serve(struct floor_shared *s, const struct floor_host *host);

/** Client: changes the mode and waits for the server to be there. 0, or -ETIMEDOUT. */
int floor_switch(struct floor_shared *s, enum floor_mode mode);
/** The same for a server that sleeps until `wake_fd` is written. 0 or -errno. */
int floor_rouse(struct floor_shared *s, enum floor_mode mode);

/* Client, each in its own mode for about `ns`, leaving the server in FLOOR_IDLE. 0 or -errno. */
int floor_line(struct floor_shared *s, uint64_t ns, struct hist *h);
int floor_ring(struct floor_shared *s, uint64_t ns, struct hist *h);
/** Both medians; a disturbed pair is measured again, FLOOR_REPEATS_MAX times at most, then -EBUSY, unless all were
 * alike. Uses up `h`. */
int floor_round_trips(struct floor_shared *s, uint64_t ns, struct hist *h, double *line_ns, double *ring_ns);
/** Prints why a floor failed. */
void floor_explain(const char *what, int rc, double line_ns, double ring_ns);
int floor_bursts(struct floor_shared *s, uint64_t ns, unsigned inflight, double *calls_per_s);
/** Reads every byte of a message or block, as handlers and floors do; returns a sum. */
uint64_t floor_read(const void *data, size_t len);

/** How a block gets to the server, which reads every byte of it by floor_read(). */
enum floor_way {
	FLOOR_PUSH,     /* the client copies it from memory that does not change */
	FLOOR_PULL,     /* the client writes it, the server copies it from there */
	FLOOR_IN_PLACE, /* the client writes it, the server reads it there */
	FLOOR_UNCHANGED /* the server reads it there; it does not change */
};
int floor_copy(struct floor_shared *s, uint64_t ns, uint64_t block_bytes, unsigned depth, enum floor_way way,
	       double *bytes_per_s);
int floor_memcpy(struct floor_shared *s, uint64_t ns, uint64_t block_bytes, double *bytes_per_s);
/** `samples` wake-ups, each after 10 ms of silence. */
int floor_wake(struct floor_shared *s, unsigned samples, struct hist *h);

/* The servers of the modes: return when `mode` changes. Called by floor_serve(). */
int floor_line_serve(struct floor_shared *s, uint64_t mode);
int floor_ring_serve(struct floor_shared *s, uint64_t mode);
int floor_bursts_serve(struct floor_shared *s, uint64_t mode);
int floor_copy_serve(struct floor_shared *s, uint64_t mode);
int floor_wake_serve(struct floor_shared *s, uint64_t mode);

#define FLOOR_ROWS_KEYS_MAX 4096u

/** A flat array of `rows` rows of `row_bytes` at the server, see ps_flat.h. */
struct floor_rows {
	uint64_t rows;
	uint32_t row_bytes;
};

/** The time from a request of n keys until its rows are in `out`; with `grads` the server first applies Adagrad to
 * the rows and answers with nothing. The server is in FLOOR_ROWS after floor_rows_open() until floor_rows_close(). 0 or
 * -errno. */
int floor_rows_open(struct floor_shared *s, const struct floor_rows *rows);
int floor_rows_exchange(struct floor_shared *s, const uint64_t *keys, uint32_t n, uint32_t row_bytes,
			const float *grads, void *out, uint64_t *ns);
int floor_rows_close(struct floor_shared *s);
/** The server of FLOOR_ROWS, for hosts: returns when `mode` changes. */
int floor_rows_serve(struct floor_shared *s, uint64_t mode);

/** One look at everything else: 1 when the mode has changed, -ETIMEDOUT when `since` is too long ago, else 0. */
int floor_poll_mode(const struct floor_shared *s, uint64_t mode, uint64_t *since);

/** Spins until `*word` is `want`: 0, 1 when the mode changed, -ETIMEDOUT. The usual case is one load per look. */
static inline int floor_spin(const struct floor_shared *s, uint64_t mode, const _Atomic uint64_t *word, uint64_t want)
{
	uint64_t since = 0;
	for (;;) {
		for (unsigned i = 0; i < FLOOR_SPINS; i++)
			if (atomic_load_explicit(word, memory_order_acquire) == want)
				return 0;
		int rc = floor_poll_mode(s, mode, &since);
		if (rc)
			return rc;
	}
}

#endif
