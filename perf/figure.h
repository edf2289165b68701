/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf sim`: what the transport does on networks that this machine does not have. Whole workers run on a
 * simulated network (nic/sim), so every figure but that of sessions follows from the options and the seed: the same
 * command prints the same numbers anywhere. The thread of the simulated world.
 *
 * A figure may consist of several runs, each of a world of its own. Times are the world's, in ns.
 */
#ifndef PERF_FIGURE_H
#define PERF_FIGURE_H

#include "apps/cli/options.h"
#include "apps/sim/cluster.h"
#include "hist.h"
#include "json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct figure_opts {
	const char *what; /* "farcall perf sim incast" */
	uint64_t seed;
	uint64_t mtu, gbps, delay_ns;  /* of every host's cable, delay one way */
	uint64_t buffer_bytes;         /* of the switch, shared: a queue may have eight times what is free */
	struct option_list priorities; /* of the switch, one run with each */
	struct option_list losses;     /* goodput: packets of a million, one run with each */
	uint64_t tx_slots;             /* of a NIC's transmit ring */
	uint64_t ghz;                  /* of the cores; 0: a core is never what one waits for */
	uint64_t workers;              /* incast: senders */
	uint64_t sessions;
	uint64_t bytes, messages, depth;
	uint64_t load;     /* mix: percent */
	uint64_t limit_ns; /* of a run */
	int mix;           /* index into figure_mixes */
	bool small;        /* goodput: and small calls beside */
	bool json;
};

int figure_goodput(const struct figure_opts *o);
int figure_incast(const struct figure_opts *o);
int figure_mix(const struct figure_opts *o);
int figure_sessions(const struct figure_opts *o);

/* ---- a world (figure_world.c) ---- */

#define FIGURE_SINK 1 /* message handler that answers with nothing, once all of the request has arrived */

struct figure_world {
	const struct figure_opts *o;
	struct cluster *c;
	struct far_msg_handler handler;
	uint64_t rtt_ns; /* of a call of 32 bytes from the last worker to the first, nothing else being under way */
	uint64_t failed_n;
	struct far_err failed; /* the first call that failed */
	uint64_t priorities;
	char port_args[16];
};

struct figure_setup {
	enum sim_topology_kind kind;
	unsigned workers;
	uint64_t priorities;
	enum far_connect connect;
	unsigned shards; /* of each worker; 0: 1 */
};

/** All workers are READY and the round trip is measured. 1: failed, with the reason on stderr; close all the
 * same. */
int figure_open(struct figure_world *w, const struct figure_opts *o, const struct figure_setup *setup);
void figure_close(struct figure_world *w);
uint64_t figure_now(const struct figure_world *w);
/** The agent that the calling fiber belongs to sends `bytes` and waits until they were taken. false: it failed, which
 * is noted. */
bool figure_call(struct figure_world *w, unsigned to, uint64_t bytes);
/** Notes a call that failed. */
void figure_failed(struct figure_world *w, const struct far_err *err);
#define FIGURE_BYTES_MAX ((size_t)32 << 20)
/** A body of so many bytes, FIGURE_BYTES_MAX at the most: zeros. */
const void *figure_bytes(size_t n);
/** Runs until no application is left. 1: not possible within the limit, with the reason on stderr. */
int figure_run(struct figure_world *w);

double figure_framing(const struct figure_opts *o);
/** Bytes on the wire of a message of that length in one direction, acknowledgements not counted; `last`, which may be
 * NULL: those of its last packet. */
uint64_t figure_wire_bytes(const struct figure_opts *o, uint64_t len, uint64_t *last);

/* ---- output (figure.c) ---- */

/** The object, kept back until all runs are done. */
struct figure_report {
	const struct figure_opts *o;
	struct json json;
	FILE *f;
	char *text;
	size_t size;
	bool begun;
};

/** Prints the conditions of all runs, once, when the first world is open. */
void figure_begin(struct figure_report *r, const struct figure_world *w);
/** Prints the object, if there is to be one and all went well. Frees everything; returns `bad`. */
int figure_end(struct figure_report *r, int bad);
FILE *figure_human(const struct figure_opts *o);
/** What of a world belongs into each result: failed calls, losses, what was sent again. */
void figure_print_world(const struct figure_world *w, struct json *j);

/* ---- sizes of messages (figure_mixes.c) ---- */

struct figure_mix {
	const char *name, *what;
	struct {
		double share; /* of all messages that are no longer than */
		double bytes;
	} point[16]; /* from share 0 to share 1 */
};

#define FIGURE_MIXES 5
extern const struct figure_mix figure_mixes[FIGURE_MIXES];
extern const char *figure_mix_names[FIGURE_MIXES + 1];
/** The length that the share `u` of [0, 1) of all messages does not exceed: between two points in geometric
 * proportion. */
uint64_t figure_mix_bytes(const struct figure_mix *m, double u);

#endif
