/* SPDX-License-Identifier: BSD-3-Clause */
/** Settings and output shared by all measurements of `farcall perf`. Main thread of each process. */
#ifndef PERF_PERF_H
#define PERF_PERF_H

#include "apps/cli/options.h"
#include "hist.h"
#include "json.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PERF_TARGETS_MAX 200 /* of a fan-out: as many calls can be pending towards one server */

#define PERF_ROUNDS_MAX 100
#define SHARE_PAIRS_MAX 8 /* of perf_share() */

enum perf_api { PERF_API_MESSAGE, PERF_API_RPC };
enum perf_via {
	PERF_VIA_DIRECT, /* the calling thread holds the driver token */
	PERF_VIA_THREAD  /* calls are handed over to the agent's own thread */
};

enum perf_handler { PERF_HANDLER_INLINE, PERF_HANDLER_FIBER, PERF_HANDLER_BLOCKING }; /* kinds, where requests run */

/** Memory that the messages of `bandwidth` are sent from. */
enum perf_memory {
	PERF_MEMORY_OWN,   /* malloc(), or the value of --release */
	PERF_MEMORY_REGION /* far_alloc_shared(), with a release callback */
};

struct perf_opts {
	const char *what;                 /* "farcall perf latency" */
	const char *nic, *server_nic;     /* drivers of this side and of the processes that serve; NULL: the same */
	const char *netns, *server_netns; /* network namespaces of the two; NULL: the caller's */
	uint64_t bytes; /* of a request; of each tensor with PERF_API_RPC; 0: the default of the API */
	uint64_t inflight;
	int api;         /* enum perf_api */
	int via;         /* enum perf_via */
	int handler;     /* enum perf_handler */
	int target;      /* 1: this worker itself, see to_self */
	uint64_t shards; /* of each side */
	uint64_t peers;  /* that the server has: one active, the others idle. 0 for a process that knows of none */
	struct option_list peers_each; /* latency: several numbers of them in turn */
	uint64_t duration_ns;
	uint64_t limit_ns; /* trace: longer round trips are explained */
	uint64_t spin_ns;  /* trace: what the handler of some calls takes; 0: none */
	bool floor, json, csv;
	const char *plot;                 /* file of the picture; NULL: none */
	bool release;                     /* bandwidth: messages are written anew, and sent from where they are */
	int memory;                       /* bandwidth: enum perf_memory */
	struct option_list sizes, depths; /* bandwidth */
	struct option_list marks;         /* memory: numbers of calls */
	struct option_list rates;         /* an open loop: calls that begin in a second, in turn; empty: a closed one */
	struct option_list worlds;        /* start: numbers of workers */
	uint64_t rounds;                  /* start, group: groups of each kind, up to PERF_ROUNDS_MAX */
	const char *connect, *listen;     /* HOST:PORT; NULL: the measurement starts its own processes */
	const char *security;             /* NULL or "none" */
	bool beyond_host;                 /* the group has a key that was given, or none */
	uint64_t timeout_ns;              /* with the two above; 0: each its default */
	uint64_t servers;                 /* peer processes; 0: one. Fan-out, ps */
	uint64_t pairs;                   /* share: of workers, on the same two CPUs */
	uint64_t targets;                 /* 0: several numbers in turn. Likewise */
	uint64_t rows;                    /* ps: of 16 floats */
	struct option_list owners;        /* ps: numbers of shards that serve, in turn */
	int workload;                     /* ps: 0: all; 1 + enum ps_workload */
	int keys;                         /* ps: 0: both distributions; 1: uniform; 2: Zipf */
	uint64_t stop_ns;                 /* ps: how long a server is stopped; 0: it is not */
	uint64_t memory_bytes;            /* ps: as many rows as these hold; 0: `rows` */
	bool beside;                      /* ps: small pulls beside pushes and saves */
	/* Derived. */
	bool to_self;           /* calls go to this worker itself: no third core is needed to measure a hand-over */
	bool compare_via;       /* handed over and not, by turns */
	uint64_t server_shards; /* of the processes that serve; 0: `shards` */
	bool tables;            /* they serve tables, too */
	bool asleep;            /* servers serve from their agents' own threads, on the servers' cores */
	bool roam;              /* no thread is pinned to one CPU */
	/* Hidden options that select the role of a peer process. */
	uint64_t peer_fd, peer_cpu, peer_rank, peer_world;
	bool peer_asleep, peer_tables;
};

int perf_latency(const struct perf_opts *o);
int perf_rate(const struct perf_opts *o);
int perf_fanout(const struct perf_opts *o);
int perf_rref(const struct perf_opts *o);
int perf_ps(const struct perf_opts *o);
int perf_bandwidth(const struct perf_opts *o);
int perf_serve(const struct perf_opts *o);
int perf_trace(const struct perf_opts *o);
int perf_idle(const struct perf_opts *o);
int perf_wake(const struct perf_opts *o);
int perf_memory(const struct perf_opts *o);
int perf_start(const struct perf_opts *o);
int perf_group(const struct perf_opts *o);
int perf_share(const struct perf_opts *o);
/** A worker of those that perf_start() starts. */
int starting_main(const struct perf_opts *o);
int perf_floor(const struct perf_opts *o);
/** `farcall perf sim`, with a command line of its own (figure.c). */
int perf_sim(int argc, char **argv);
/** The floors of a NIC, o->nic, instead of memory's. */
int perf_floor_nic(const struct perf_opts *o);

/** One row of a table of options that several commands share: by which of them it is taken, as a bit of each. */
struct perf_option {
	unsigned takers;
	struct option_spec spec;
};

/**
 * Parses the command line of `name`, which takes those of the `n` options that have a bit of `taker`. -1: go on; else
 * the exit status, after printing.
 */
int perf_options(const char *name, const char *about, unsigned taker, const struct perf_option *table, size_t n,
		 int argc, char **argv);

/** Drivers of the processes that serve. */
static inline const char *perf_server_nic(const struct perf_opts *o)
{
	return o->server_nic ? o->server_nic : o->nic;
}

/** Where text for people goes: stdout, or stderr when stdout is for the object. */
static inline FILE *perf_human(const struct perf_opts *o)
{
	return o->json ? stderr : stdout;
}

/** "64 KiB" and the like, in 10 columns. */
void perf_print_size(FILE *out, uint64_t bytes);
const char *perf_api_name(int api);
const char *perf_via_name(int via);
const char *perf_handler_name(int handler);

/** The median of `n` values; sorts them. */
double perf_median(double *values, unsigned n);
/** How much repeated measurements differ: the middle five of seven, or as many of another number, over their median.
 * NAN for fewer than three. Sorts them. */
double perf_noise(double *values, unsigned n);
/** A noise for people: "12.3 %", or "-" where there is none. */
struct perf_noise_text {
	char text[24];
};
struct perf_noise_text perf_noise_text(double noise);

/** The i-th CPU that this process may use, or -1 when it may use fewer than two: nothing is pinned then. */
int perf_cpu(unsigned i);
/** CPUs that this process may use. */
int perf_cpus(void);
/** Pins the calling thread; -1: does nothing. */
void perf_pin(int cpu);

#endif
