/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The admin socket of a worker: admin-PID-N in the runtime directory, for `farcall top`, `workers` and `debug`. A
 * thread of its own serves it, one client after the other, so it answers while the control thread or a shard does not.
 *
 * A client of the same user connects, sends a line, and reads "ok BYTES\n" with as many bytes, or "error TEXT\n"; then
 * the connection is closed. A client that does not send its line within ADMIN_READ_NS, or does not read the answer
 * within ADMIN_WRITE_NS, is dropped.
 */
#ifndef FAR_CONTROL_ADMIN_H
#define FAR_CONTROL_ADMIN_H

#include <stdbool.h>
#include <stddef.h>

#define ADMIN_REQUEST_MAX 64 /* bytes of a request with its newline */
#define ADMIN_READ_NS     UINT64_C(500000000)
#define ADMIN_WRITE_NS    UINT64_C(1000000000)
#define ADMIN_PREFIX      "admin-"

struct admin;

/** Answers a request, without its newline. True: `*text`, of malloc(), is the answer; false: it is the reason, one
 * static line. The admin thread. */
typedef bool admin_answer_fn(void *ctx, const char *request, char **text, size_t *len, const char **reason);

/** Starts the thread. NULL: there is no admin socket, with the reason in why[0, cap). Start only. */
struct admin *admin_start(admin_answer_fn *answer, void *ctx, char *why, size_t cap);
/** Ends the thread, and removes the socket. NULL is ignored. Stop only. */
void admin_stop(struct admin *admin);

#endif
