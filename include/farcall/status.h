/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Status codes and error details of every public function and of every call.
 * Any thread, unless a function names another one.
 *
 * A function returns `enum far_status` and fills the `struct far_err` that the caller passed. It writes the struct only
 * when it fails. The pointer may be NULL; the struct owns nothing.
 */
#ifndef FARCALL_STATUS_H
#define FARCALL_STATUS_H

#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Name, text. The position is the code on the wire: append new entries. */
#define FAR_STATUS_LIST(X)                                                                                             \
	X(OK, "ok")                                                                                                    \
	X(INVALID, "invalid argument")                                                                                 \
	X(UNKNOWN_WORKER, "unknown worker")                                                                            \
	X(NO_FUNCTION, "no such function")                                                                             \
	X(SIGNATURE, "signature differs")                                                                              \
	X(BAD_ARGS, "arguments do not fit the signature")                                                              \
	X(TIMEOUT, "deadline passed")                                                                                  \
	X(PENDING, "still pending")                                                                                    \
	X(PEER_LOST, "connection to the peer lost")                                                                    \
	X(REMOTE, "the remote function failed")                                                                        \
	X(RESOURCE, "out of a bounded resource")                                                                       \
	X(BUSY, "queue full, try again")                                                                               \
	X(TOO_LARGE, "message too large")                                                                              \
	X(UNSUPPORTED, "not supported")                                                                                \
	X(WOULD_DEADLOCK, "would deadlock")                                                                            \
	X(CANCELLED, "cancelled")                                                                                      \
	X(SHUTDOWN, "agent is shut down")                                                                              \
	X(ALREADY_INITIALIZED, "already initialized")                                                                  \
	X(NOT_UNIQUE, "worker name or rank is not unique")                                                             \
	X(PROTOCOL, "protocol error")                                                                                  \
	X(DENIED, "access denied")                                                                                     \
	X(UNREACHABLE, "no common transport or unreachable")                                                           \
	X(SYSTEM, "system error")                                                                                      \
	X(GONE, "the object was destroyed")                                                                            \
	X(INJECTED, "failed on purpose")                                                                               \
	X(LEAKED, "remote references are still held")

enum far_status {
#define FAR_STATUS_ENUM(name, text) FAR_##name,
	FAR_STATUS_LIST(FAR_STATUS_ENUM)
#undef FAR_STATUS_ENUM
		FAR_STATUS_COUNT
};

/** How often the remote function of a failed call ran. */
enum far_executed {
	FAR_EXECUTED_NO,    /* never */
	FAR_EXECUTED_MAYBE, /* zero or one time: unknown to the caller */
	FAR_EXECUTED_YES    /* once */
};

#define FAR_NAME_MAX     128 /* bytes of a worker name with its NUL */
#define FAR_ERR_TEXT_MAX 384 /* bytes of an error text with its NUL; a longer one is cut */

struct far_err {
	enum far_status status;      /* class of the error */
	enum far_executed executed;  /* how often the remote function ran */
	int32_t code;                /* the handler's own code (far_fail), or an errno, or 0 */
	char origin[FAR_NAME_MAX];   /* worker where the error arose; empty: here, before anything was sent */
	char text[FAR_ERR_TEXT_MAX]; /* what failed, why, and the remedy */
};

/* ---- Any thread ---- */

/** Name ("TIMEOUT") and short text ("deadline passed") of a status. Never NULL. */
const char *far_status_name(enum far_status status);
const char *far_status_text(enum far_status status);

/** "NO", "MAYBE" or "YES". */
const char *far_executed_name(enum far_executed executed);

/** Prints a line "far: CLASS: text (origin worker1, code 0, executed NO)" to `f` and returns `err->status`. Omits the
 * brackets if `err` has no origin. */
enum far_status far_err_print(FILE *f, const struct far_err *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
