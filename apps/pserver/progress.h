/* SPDX-License-Identifier: BSD-3-Clause */
/** A line on a terminal that shows how far a training is, and lines that stay. Main thread. */
#ifndef PSERVER_PROGRESS_H
#define PSERVER_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define PROGRESS_TEXT_MAX 256

enum progress_where {
	PROGRESS_AUTO,     /* the line is on stderr, if that is a terminal */
	PROGRESS_TERMINAL, /* on the terminal of the process, also if stderr is a pipe of 'farcall run' */
	PROGRESS_LINES     /* there is none */
};

struct progress {
	int fd; /* of the terminal; -1: there is none */
	bool shown;
	uint64_t shown_ns;
};

void progress_open(struct progress *p, enum progress_where where);
/** True: the line is due, at most five times a second. */
bool progress_due(struct progress *p, uint64_t now_ns);
/** Draws the line: a bar of the part `done` in [0, 1], if there is room, and a text of this length at most. */
void progress_show(struct progress *p, double done, const char *text);
/** Prints a line on stderr in its place. */
void progress_line(struct progress *p, const char *text);
/** Removes the line. */
void progress_close(struct progress *p);

#endif
