/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The part that all programs of this folder share: two pinned processes, the clock, the messages, and one figure.
 * Main thread of each process.
 *
 * A program measures one figure: `bytes` per request, `depth` requests in flight, echo or sink. bench_main() forks the
 * serving process before the library of the peer is touched; both sides exchange addresses over a socket pair.
 *
 * A message begins with a head of 8 bytes and continues with 8-byte words. Echo: the reply is as long as the request.
 * Sink: the client writes every word before it sends, the server reads every word, and the reply is the head and the
 * sum of the words, which the client compares with what it wrote. A program that loses or skips bytes ends with an
 * error, not with a figure.
 */
#ifndef PEERS_BENCH_H
#define PEERS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_DEPTH_MAX 64
#define BENCH_SMALL     64 /* bytes up to which an echo returns the bytes of the request */

struct bench_opts {
	const char *variant; /* "" or one of the program's, such as "tcp" */
	const char *dir;     /* a fresh directory, for sockets in the file system */
	size_t bytes;        /* of a request, a multiple of 8 */
	size_t reply_bytes;  /* of a reply */
	unsigned depth;      /* requests in flight, [1, BENCH_DEPTH_MAX] */
	bool sink;           /* else echo */
	bool untouched;      /* echo beyond BENCH_SMALL: the client does not rewrite the buffer either */
	double seconds;
	int cpu[2]; /* of the client and the server; -1: not pinned */
};
extern struct bench_opts bench;

/** What a program implements. Every function ends the process by bench_die() when it fails. */
struct bench_peer {
	const char *name;
	const char *variants; /* "shm tcp"; "": none */
	void (*version)(char *text, size_t cap);
	/** The serving process: connects over `fd`, answers until bench_stopped() after bench_answer(), and returns. */
	void (*serve)(int fd);
	/** The measuring process: connects. */
	void (*open)(int fd);
	/** Starts a request. `data` stays unchanged until its reply. May call bench_reply(). */
	void (*send)(unsigned slot, const void *data, size_t len);
	/** Handles what has arrived, by bench_reply(). A polling peer returns at once, a blocking one waits. */
	void (*progress)(void);
	void (*close)(void); /* NULL: nothing to do */
};

int bench_main(int argc, char **argv, const struct bench_peer *peer);

/* ---- The serving process ---- */

/** Reads a request as its kind demands. Returns the reply, valid until the next request of the same slot. */
const void *bench_answer(const void *request, size_t len, size_t *reply_len);
/** True after the request to stop was answered; the reply is still to be delivered. */
bool bench_stopped(void);

/* ---- The measuring process ---- */

/** Checks a reply and ends its request. */
void bench_reply(const void *reply, size_t len);
/** True for the request to stop, which every peer sends as a message. */
bool bench_stops(const void *request);
/** Ends the request of a slot whose reply the peer has checked itself. */
void bench_done(unsigned slot);

/* ---- Both ---- */

/** Prints what failed and why to stderr, and ends the process with status 1. */
void bench_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/** Exchanges a block of the same size with the other process; used once or twice while connecting. */
void bench_swap(int fd, const void *mine, void *theirs, size_t len);
/** True if the other process has begun bench_swap(), or has ended. Never blocks. */
bool bench_waiting(int fd);
/** Memory aligned to pages, written once. */
void *bench_alloc(size_t len);
/** Length of the message whose head is at `data`, for byte streams. */
size_t bench_length(const void *data);

/** Nanoseconds of the clock of the measurement. bench_clock() selects it: "tsc", or "CLOCK_MONOTONIC" without an
 * invariant TSC. */
const char *bench_clock(void);
double bench_now_ns(void);

#ifdef __cplusplus
}
#endif
#endif
