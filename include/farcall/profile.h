/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Profiles: a span for each call, with the spans of its callee inside it, ranges of the application, files for Perfetto
 * and OpenTelemetry, and W3C trace contexts. Without a profile, a range or a trace context, calls cost what they cost
 * before, and a worker needs nothing to answer profiled calls.
 *
 * A profile records the calls of the flow of control (<farcall/intercept.h>) that began it: of the thread, of handlers
 * and continuations on its behalf, at other workers, too. Their spans return with the answer and lie inside the span of
 * the call. Times of another worker are placed between request and answer of the call: clocks are not compared.
 * The spans of an answer have FAR_PROFILE_REPLY_BYTES bytes at most; those beyond are counted as dropped. A call that
 * fails returns none.
 *
 * With the environment variable FAR_PROFILE, a worker records all its calls and ranges but those of flows that have a
 * profile, and writes them when far_shutdown() or far_shutdown_local() ends its last agent: to a file of this name with
 * a dot and its rank behind. `farcall run --profile FILE` makes one file of those of all workers.
 */
#ifndef FARCALL_PROFILE_H
#define FARCALL_PROFILE_H

#include <farcall/future.h>
#include <farcall/intercept.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define FAR_PROFILE_SPANS       65536 /* default limit of the spans of a profile */
#define FAR_PROFILE_REPLY_BYTES 960   /* of the spans of an answer */
#define FAR_PROFILE_NAME        128   /* bytes of a range's name with its NUL; longer names are cut */
#define FAR_TRACEPARENT         56    /* bytes of a traceparent with its NUL */

struct far_profile;

struct far_profile_opts {
	size_t spans_max; /* further spans are counted as dropped; 0: FAR_PROFILE_SPANS */
	/* Not NULL: the profile of a server. It records every request that this agent serves meanwhile, of any caller
	 * and in any thread, in place of the flow's calls. Profiles of servers overlap as they like. */
	struct far_agent *server;
	uint64_t reserved[4]; /* 0 */
};

enum far_span_kind {
	FAR_SPAN_CALL,    /* a call, from its start to its completion */
	FAR_SPAN_HANDLER, /* a request, from its receipt to its answer */
	FAR_SPAN_RANGE    /* far_range_begin() to far_range_end() */
};

/** A span. Times in ns; CLOCK_REALTIME as the reading worker sees it. */
struct far_span {
	/* CALL: as far_profile_key() writes it; HANDLER: the function, "message 7" or "fetch"; RANGE: as given. Those
	 * of another worker have the key of their call and "#remote_op: " in front, of nested ones that of each call.
	 */
	const char *name;
	enum far_span_kind kind;
	enum far_call_mode mode; /* RANGE: that of the request it belongs to */
	enum far_status status;  /* PENDING: it had not ended */
	bool remote;             /* of another worker, or of this one as callee of a profiled call */
	int at;                  /* rank of the worker that it ran on */
	struct far_to from, to;  /* CALL, HANDLER: caller and callee */
	int64_t parent;          /* index of the span around it; −1: none, or one of another profile */
	uint64_t parent_id;      /* its id; 0: none */
	uint64_t id;             /* unique in its trace */
	uint8_t trace[16];
	uint64_t begin_ns, end_ns;
	/* CALL whose answer has times, HANDLER; else 0. */
	uint64_t queued_ns;     /* at the callee, between receipt of the request and its handler */
	uint64_t wire_ns;       /* CALL: outside of the callee: both ways, and waiting for credits */
	uint64_t running_ns;    /* in the handler */
	uint64_t completing_ns; /* from the return of the handler to the answer, if that was deferred */
	uint64_t reserved[2];
};

/* ---- Any thread, or a handler on a fiber or thread of its own ---- */

/**
 * Begins a profile of the flow that calls, inside of the one that it has, or of a server. `opts` may be NULL; *out is
 * given back by far_profile_free(). Errors: INVALID (`reserved`; a flow that keeps nothing, as far_flow_set()),
 * RESOURCE.
 */
enum far_status far_profile_begin(const struct far_profile_opts *opts, struct far_profile **out, struct far_err *err);
/** Ends it: calls that begin afterwards are not recorded; those under way are, to their end. In the flow that began it,
 * with no range open inside of it; a server's in any. Errors: INVALID. */
enum far_status far_profile_end(struct far_profile *p, struct far_err *err);
/** Waits, without serving a shard, until all calls that were recorded so far have completed. Errors: PENDING (not
 * within `timeout_ns`; FAR_FOREVER: waits without limit). */
enum far_status far_profile_wait(struct far_profile *p, uint64_t timeout_ns, struct far_err *err);
/** Spans up to now, in the order of their begin, parents first; *n of them. They belong to the profile, until the next
 * far_profile_spans() or far_profile_free(). `agent` has the names of workers (NULL: "rank 0" …). NULL: no memory. One
 * thread at a time. */
const struct far_span *far_profile_spans(struct far_profile *p, struct far_agent *agent, size_t *n);
/** Spans that had no room: here, or in an answer. */
uint64_t far_profile_dropped(struct far_profile *p);
/** Ends it, if need be, and gives it back. NULL: nothing. */
void far_profile_free(struct far_profile *p);

/** Formats of files. */
enum far_profile_format {
	FAR_PROFILE_CHROME, /* trace events in JSON: ui.perfetto.dev, chrome://tracing; a process for each worker */
	FAR_PROFILE_OTLP    /* OpenTelemetry's JSON encoding of ExportTraceServiceRequest; a resource for each worker */
};
/** Writes the spans of far_profile_spans() to a file, which is replaced. Blocks. Errors: INVALID, RESOURCE,
 * SYSTEM (`code` is an errno). */
enum far_status far_profile_write(struct far_profile *p, struct far_agent *agent, enum far_profile_format format,
				  const char *path, struct far_err *err);

/** Writes the name of a call's span: "rpc_sync#fn(worker0 -> worker1)", "to_here#(worker0)->(worker1)",
 * "message#7(…)", "oneway#7(…)"; at most `cap` bytes with a NUL. Returns its length. */
size_t far_profile_key(enum far_call_mode mode, const char *function, const char *from, const char *to, char *out,
		       size_t cap);

/* ---- Any thread, fiber, handler or callback ---- */

/** Begins a range in the flow that calls. Without a profile it does nothing, as does far_range_end(). Errors: INVALID
 * (a flow that keeps nothing, as far_flow_set()), RESOURCE. */
enum far_status far_range_begin(const char *name);
/** Ends the innermost open range. Errors: INVALID (the flow's profile has no open range). */
enum far_status far_range_end(void);
/** Leaves the innermost open range, whose span ends when `f` is done. A range ends once: a second call is about the
 * range around it. Without a profile it does nothing. Errors: INVALID (the flow's profile has no open range),
 * RESOURCE. */
enum far_status far_range_end_with(struct far_future *f, struct far_err *err);

/** Makes calls of the flow that calls parts of a trace: a W3C traceparent, "00-…-…-01", as a web server received it.
 * NULL: of none any more. Handlers and their calls inherit it. Errors: INVALID (malformed; a flow that has a profile,
 * or keeps nothing), RESOURCE. */
enum far_status far_trace_accept(const char *traceparent, struct far_err *err);
/** Writes the traceparent of the flow, to be passed on: its parent is the innermost span. false: it has none. Those of
 * FAR_PROFILE alone have none. */
bool far_trace_get(char out[FAR_TRACEPARENT]);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
