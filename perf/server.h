/* SPDX-License-Identifier: BSD-3-Clause */
/** The serving side of a measurement: the handlers, and the threads that hold the shards and poll them. */
#ifndef PERF_SERVER_H
#define PERF_SERVER_H

#include "floor_agent.h"
#include "floor_ring.h"
#include <farcall/farcall.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* Message handlers. The first two come in each kind: add 2 × (enum perf_handler). */
#define SERVER_ECHO     1  /* the request comes back */
#define SERVER_SINK     2  /* every byte is read, the reply is empty */
#define SERVER_DESCRIBE 7  /* struct server_description comes back */
#define SERVER_BYE      8  /* the caller is about to leave */
#define SERVER_SELF     9  /* has the server call itself once; one byte comes back: has that call been answered */
#define SERVER_STAMP    10 /* struct server_stamp_request; struct server_stamp comes back */

#define SERVER_BOTH_ENDS 6 /* the first of server_handlers(): what callers that call themselves serve, too */
#define SERVER_HANDLERS  10

/* Functions, which callers register, too. */
#define SERVER_READ      "perf::read"     /* every byte of a tensor is read, the value is none */
#define SERVER_IN_PLACE  "perf::in_place" /* far_counters.bytes_by_reference of the server comes back */
#define SERVER_FUNCTIONS 2
extern const struct far_function server_functions[SERVER_FUNCTIONS];

/* What a process that was started by itself has to know of its server. */
struct server_description {
	char version[32];
	uint32_t shared_bytes; /* of struct floor_shared */
	int32_t pid, fd;       /* where its memory is found; the pid as the server sees it */
	uint64_t cookie;       /* what it begins with */
};

struct server_stamp_request {
	uint64_t spin_ns; /* what the handler takes */
	uint64_t look;    /* 1: `run_ns` and `sleeps` are wanted, system calls */
};

/* Of one execution of the handler; CLOCK_MONOTONIC. */
struct server_stamp {
	uint64_t begun_ns, ended_ns;
	uint64_t run_ns; /* CPU time of the thread, at `begun_ns` */
	uint64_t sleeps; /* its voluntary context switches */
};

enum server_end {
	SERVER_NOTIFIED, /* by FLOOR_STOP, or the peer said that it leaves */
	SERVER_SIGNALLED,
	SERVER_LOST,   /* the peer died */
	SERVER_SILENT, /* it stopped in the middle of a floor */
	SERVER_FAILED  /* an error was printed */
};

struct server {
	/* Set by the user before server_run(). */
	struct far_agent *agent;
	struct floor_shared *shared;
	int shared_fd; /* -1: nobody else may map it */
	int cpu;       /* of shard 0; -1: none is pinned */
	int client;    /* rank whose death ends the server; -1: the parent dies with this process */
	const volatile sig_atomic_t *signal; /* NULL, or becomes a signal's number */

	/* The server's own. */
	atomic_bool bye, ending, self_sent, self_answered;
	uint64_t looks;
	enum server_end end;
	struct floor_nic nic; /* its end of a floor over a NIC */
	unsigned threads_n;
	struct server_shard {
		struct server *server;
		unsigned index;
		int cpu;
		pthread_t thread;
	} shards[FAR_SHARDS_MAX];
};

/** Writes the handlers, whose `user` is `s`. It must stay until the agent is gone. */
void server_handlers(struct server *s, struct far_msg_handler out[SERVER_HANDLERS]);

/**
 * Holds all shards of the agent and serves until it is stopped; the calling thread is shard 0's. The shards are
 * released then.
 */
enum server_end server_run(struct server *s);

#endif
