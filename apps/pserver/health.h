/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A file that shows whether this worker runs and has joined. It is locked as long as the process runs (an open
 * file description lock: it ends with the process, whatever ends it, and is seen from other pid namespaces), and holds
 * one record that a thread renews every second, after a call to each of the worker's own shards.
 */
#ifndef PSERVER_HEALTH_H
#define PSERVER_HEALTH_H

#include <farcall/farcall.h>
#include <stdint.h>

#define HEALTH_ENV       "FAR_HEALTH_FILE"
#define HEALTH_MAGIC     "farcall-health-1"
#define HEALTH_RECORD    96 /* bytes: "farcall-health-1 STATE rank R world W beat NS", blanks, a newline */
#define HEALTH_JOINING   "joining"
#define HEALTH_JOINED    "joined"
#define HEALTH_LEAVING   "leaving"
#define HEALTH_STATE_MAX 16

struct health;

/** Makes and locks the file; state "joining". `path` NULL or "": nothing, `*out` is NULL, which the others take. 0, or
 * -errno after a message beginning with `program`: another worker has the file, or it cannot be made. */
int health_begin(const char *program, const char *path, int rank, int world, struct health **out);
/** State "joined": the beats begin. 0, or -errno: no thread. */
int health_joined(struct health *h, struct far_agent *agent);
/** State "leaving": the beats have ended when this returns. Before the agent's shutdown; may come without "joined". */
void health_leaving(struct health *h);
/** Removes the file and frees. */
void health_end(struct health *h);

#endif
