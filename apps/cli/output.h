/* SPDX-License-Identifier: BSD-3-Clause */
/** Lines of many workers on one stderr, each with the rank in front, and the last lines of each kept. Main thread. */
#ifndef FAR_APPS_CLI_OUTPUT_H
#define FAR_APPS_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#define OUTPUT_TAIL_LINES  20
#define OUTPUT_TAIL_BYTES  512  /* of a line that is kept; more of it is not repeated */
#define OUTPUT_BLOCK_BYTES 2048 /* a longer line goes out in pieces; with its prefix it fits an atomic pipe write */

struct output_tail {
	char line[OUTPUT_TAIL_LINES][OUTPUT_TAIL_BYTES];
	size_t len[OUTPUT_TAIL_LINES];
	unsigned next; /* lines ever kept; the newest is next - 1, modulo OUTPUT_TAIL_LINES */
};

/** One pipe from a worker. */
struct output_stream {
	int fd; /* non-blocking; -1 after its end */
	int rank;
	struct output_tail *tail;
	size_t len;  /* bytes waiting for their newline */
	bool middle; /* the beginning of the line has gone out */
	char buf[OUTPUT_BLOCK_BYTES];
};

/** Where the lines go. */
struct output {
	int fd;
	int interrupt_fd;           /* a reader that does not read is not waited for once this is readable */
	bool lost;                  /* nobody reads, or an interrupt came first: everything is dropped from now on */
	bool gone;                  /* lost because the reader is gone */
	struct output_stream *open; /* its line lacks the newline on the terminal, or NULL */
};

/** Takes what can be read without blocking, at most a few blocks, and prints the lines. */
void output_read(struct output *o, struct output_stream *s);
/** The same until the end or until nothing is there; then ends the last line. */
void output_finish(struct output *o, struct output_stream *s);
/** Prints the kept lines of a worker again. */
void output_tail_print(struct output *o, const struct output_tail *tail, int rank);
/** True if a kept line has this text. */
bool output_tail_has(const struct output_tail *tail, const char *text);
/** One line of farcall's own. */
__attribute__((format(printf, 2, 3))) void output_print(struct output *o, const char *format, ...);

#endif
