/* SPDX-License-Identifier: BSD-3-Clause */
/** Log lines of the library: where they go and which of them are written.
 * Any thread, unless a function names another one. */
#ifndef FARCALL_LOG_H
#define FARCALL_LOG_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/** Levels, the most severe first. */
enum far_log_level {
	FAR_LOG_NONE,    /* no line has this level: as a limit it stops all lines */
	FAR_LOG_ERROR,   /* something failed, and no function returns it */
	FAR_LOG_WARNING, /* the library works, with a loss of speed or safety that can be removed */
	FAR_LOG_INFO,    /* what the library waits for */
	FAR_LOG_DEBUG    /* members that join, are lost and come back; at most 16 such lines in 10 s */
};

/** A field of a line: what the text names, for programs. Both strings are valid until the hook returns. */
struct far_log_field {
	const char *name; /* "worker", "group", "seconds", "event", "peer", "reason" … */
	const char *value;
};

/**
 * Receives the lines of the library instead of stderr: `text` without prefix and newline, fields[0, n). Runs on the
 * thread that logs, which may be a shard's or the control thread: it must not wait and not call this library. Several
 * threads may run it at once. Reports of crashes and NIC drivers stay on stderr.
 */
typedef void far_log_fn(enum far_log_level level, const char *text, const struct far_log_field *fields, size_t n,
			void *user);

/* ---- Any thread; never blocks ---- */

/** Sets the hook of the process; NULL: lines go to stderr, "farcall: TEXT". A line that another thread is logging may
 * still reach the former hook. Set it before far_init_rpc(). */
void far_log_set(far_log_fn *fn, void *user);

/** Sets the least severe level that is written. Default: FAR_LOG in the environment ("none", "error", "warning",
 * "info", "debug"), read once, else FAR_LOG_INFO. far_init_rpc() refuses another word with INVALID. */
void far_log_level_set(enum far_log_level level);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
