/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Metrics: what a worker has done and holds, for its peers, NICs and shards, as structs and as text, JSON or the text
 * formats of Prometheus and OpenMetrics. engine/METRICS.md lists the names with their units.
 *
 * The functions collect on the shards themselves, between two passes. One that has not answered after a tenth of a
 * second (its handler does not return, or a thread holds it and does not poll) is left out, and
 * far_metrics.shards_silent counts it.
 */
#ifndef FARCALL_METRICS_H
#define FARCALL_METRICS_H

#include <farcall/agent.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/** A worker: counters since its start, unless stated otherwise. */
struct far_metrics {
	/* calls of this worker */
	uint64_t calls_sent, calls_completed, calls_failed, calls_timed_out, calls_retried;
	uint64_t calls_active;  /* now: begun, not ended */
	uint64_t calls_waiting; /* of these, for a session or for room */
	uint64_t hedges_sent, hedges_won;
	/* requests of others */
	uint64_t requests_received, replies_sent;
	uint64_t requests_active;   /* now: not answered */
	uint64_t requests_deferred; /* of these, without a running or waiting handler: to be answered later */
	uint64_t requests_duplicate;
	/* traffic */
	uint64_t bytes_sent, bytes_received;     /* bodies of messages */
	uint64_t oneways_sent, oneways_received; /* one-way messages */
	uint64_t rendezvous_sent, rendezvous_received, rendezvous_active;
	/* drops and refusals */
	uint64_t busy_refusals, packets_dropped, replies_late, oneways_dropped;
	/* references */
	uint64_t rrefs_owned;       /* now: values kept here */
	uint64_t rrefs_held;        /* now: references held here */
	uint64_t rrefs_unconfirmed; /* now: of these, not confirmed by the owner */
	uint64_t rrefs_forks;       /* now: references of others to values kept here */
	uint64_t rrefs_pending;     /* now: control messages that are not acknowledged */
	/* threads and fibers, now */
	uint64_t threads, threads_idle; /* of blocking handlers */
	uint64_t threads_queued;        /* requests that wait for one */
	uint64_t fibers_max, fibers_active;
	/* memory of the process in bytes, now */
	uint64_t memory_reserved, memory_committed, memory_slab_used, memory_large_used, memory_retained;
	/* group and sessions, now */
	uint64_t members, members_alive;
	uint64_t sessions_up, sessions_connecting, sessions_lost;
	/* shards */
	uint64_t shards, shards_silent; /* now; silent: did not answer */
	uint64_t wakeups;
	uint64_t uptime_ns;
	/* latency of this worker's calls, of one in latency_every (FAR_METRICS_SAMPLE; 0: none) */
	uint64_t latency_every, latency_n, latency_sum_ns;
	uint64_t latency_p50_ns, latency_p90_ns, latency_p99_ns, latency_p999_ns; /* at most 12.5 % too high */
	uint64_t bytes_by_reference; /* of bytes_received: in memory of far_alloc_shared() of the sender */
};

/** Classes of the errors that ended calls. */
enum far_error_class {
	FAR_ERROR_TIMEOUT,
	FAR_ERROR_LOST, /* PEER_LOST, UNREACHABLE */
	FAR_ERROR_CANCELLED,
	FAR_ERROR_REFUSED,  /* NO_FUNCTION, SIGNATURE, BAD_ARGS, TOO_LARGE, PROTOCOL */
	FAR_ERROR_RESOURCE, /* RESOURCE, BUSY */
	FAR_ERROR_HANDLER,  /* REMOTE */
	FAR_ERROR_SHUTDOWN,
	FAR_ERROR_OTHER,
	FAR_ERROR_CLASSES
};

/** What this worker has exchanged with one worker, itself included, over all incarnations. */
struct far_peer_metrics {
	char name[FAR_NAME_MAX];
	int32_t rank;
	uint32_t sessions_up;                /* now, of the shards of both */
	char nic[16];                        /* now, of a session with it; "": none */
	uint64_t calls;                      /* begun by this worker */
	uint64_t calls_active;               /* now */
	uint64_t requests;                   /* received from it, one-way messages included */
	uint64_t requests_active;            /* now: not answered */
	uint64_t bytes_sent, bytes_received; /* bodies of messages */
	uint64_t errors[8];                  /* of `calls`, by enum far_error_class */
};

enum far_metrics_format {
	FAR_METRICS_TEXT, /* a line for each: name, value, unit */
	FAR_METRICS_JSON,
	FAR_METRICS_PROMETHEUS, /* text format 0.0.4 */
	FAR_METRICS_OPENMETRICS /* OpenMetrics 1.0.0, with units; a counter's sample that is NaN or negative is left out
				 */
};

/* ---- Any thread but handlers and callbacks; these block for a tenth of a second at most ---- */

/** The functions below with the caller's size of their struct. */
enum far_status far_metrics_read_sized(struct far_agent *agent, struct far_metrics *out, size_t bytes,
				       struct far_err *err);
enum far_status far_metrics_peers_sized(struct far_agent *agent, struct far_peer_metrics *out, int cap, size_t bytes,
					struct far_err *err);

/** Reads the worker's metrics. Errors: WOULD_DEADLOCK (handler or callback), RESOURCE. */
static inline enum far_status far_metrics_read(struct far_agent *agent, struct far_metrics *out, struct far_err *err)
{
	return far_metrics_read_sized(agent, out, sizeof *out, err);
}

/** Reads the metrics of the workers of rank [0, cap), far_world_size() at most, to out[rank]. Same errors. */
static inline enum far_status far_metrics_peers(struct far_agent *agent, struct far_peer_metrics *out, int cap,
						struct far_err *err)
{
	return far_metrics_peers_sized(agent, out, cap, sizeof *out, err);
}

/** Writes all metrics in a format. `*text` ends with NUL and is the caller's: far_metrics_free() it. Same errors;
 * INVALID (the format). */
enum far_status far_metrics_text(struct far_agent *agent, enum far_metrics_format format, char **text,
				 struct far_err *err);
/** NULL is ignored. Any thread; never blocks. */
void far_metrics_free(char *text);

/* ---- Metrics of the application ---- */

#define FAR_METRICS_ADD_MAX 1024u /* metrics of one reader */

enum far_metric_kind {
	FAR_METRIC_COUNTER, /* never falls while the process runs */
	FAR_METRIC_GAUGE
};

/** A metric of the application, which is written beside those of Farcall. The strings are copied. */
struct far_metric {
	const char *name; /* letters, digits and '_', at most 127; a counter's ends in "_total". Begin it with the name
			     of the application: "farcall_" is that of Farcall's libraries */
	const char *unit; /* "seconds", "bytes", …: the name ends in it, but for "_total". NULL or "": a number */
	const char *help; /* one line without its full stop, at most 255 bytes */
	enum far_metric_kind kind;
};

/** Where a reader puts its samples; valid until it returns. */
struct far_metrics_sink;

/** Puts the samples of its metrics. Runs on the thread that reads the metrics: that of far_metrics_text(), of the admin
 * socket, or of HTTP; never two at a time. It returns within a tenth of a second, and calls no function of this header
 * but far_metrics_put(). It may make calls with a timeout. */
typedef void far_metrics_reader(struct far_metrics_sink *sink, void *user);

/** far_metrics_add() with the caller's size of struct far_metric. */
enum far_status far_metrics_add_sized(struct far_agent *agent, const struct far_metric *metrics, size_t n, size_t bytes,
				      far_metrics_reader *read, void *user, struct far_err *err);

/**
 * Adds metrics[0, n) to those of far_metrics_text(), the admin socket and HTTP. `read` with `user` is added once.
 * Readers may have metrics in common, with the same kind, unit and help. They stay until far_metrics_remove(), or until
 * the agent is shut down. Errors: INVALID: the metric, and what is wrong with it; WOULD_DEADLOCK (handler or callback);
 * RESOURCE.
 */
static inline enum far_status far_metrics_add(struct far_agent *agent, const struct far_metric *metrics, size_t n,
					      far_metrics_reader *read, void *user, struct far_err *err)
{
	return far_metrics_add_sized(agent, metrics, n, sizeof *metrics, read, user, err);
}

/** Removes a reader with its metrics, after it has returned. Errors: INVALID: it was not added; WOULD_DEADLOCK. */
enum far_status far_metrics_remove(struct far_agent *agent, far_metrics_reader *read, void *user, struct far_err *err);

/** Puts a sample of metrics[metric]. `labels`: name, value, …, NULL; or NULL. A sample with a malformed name of a label
 * is left out. In a reader. */
void far_metrics_put(struct far_metrics_sink *sink, size_t metric, double value, const char *const *labels);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
