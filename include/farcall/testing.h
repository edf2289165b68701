/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * For tests: injection of send failures and delays by kind of message, a wait for quiet references, all counters of an
 * agent by name. An agent without faults has no cost. Any thread, unless a function names another one.
 */
#ifndef FARCALL_TESTING_H
#define FARCALL_TESTING_H

#include <farcall/rref.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Kinds of messages that this worker sends: name, text. The calls of a fan-out are of kind CALL. */
#define FAR_FAULT_LIST(X)                                                                                              \
	X(CALL, "call")     /* request of far_rpc_*, far_msg_call*, far_fanout*, far_all_gather, far_barrier */        \
	X(REMOTE, "remote") /* request to make a value and keep it: far_remote* */                                     \
	X(FETCH, "fetch")   /* request for a value or its type: far_rref_to_here*, far_rref_type* */                   \
	X(METHOD, "method") /* request to call a method: far_rref_rpc_*, far_rref_remote */                            \
	X(FORK, "fork")     /* to the owner: registers a new reference of this worker */                               \
	X(ACCEPT, "accept") /* to the sender of a reference in a result: the owner has registered it */                \
	X(DELETE, "delete") /* to the owner: a reference of this worker was freed, or its making failed */             \
	X(REPLY, "reply")   /* reply to a request of the first four kinds, errors included */

enum far_fault_kind {
#define FAR_FAULT_ENUM(name, text) FAR_FAULT_##name,
	FAR_FAULT_LIST(FAR_FAULT_ENUM)
#undef FAR_FAULT_ENUM
		FAR_FAULT_COUNT
};

/** A fault. All fields 0: no fault. */
struct far_fault {
	/**
	 * Sends of each message that fail, counted from its first. FORK, ACCEPT and DELETE are sent again up to 5
	 * times, after opts.rref_retry_ns and then after 1.5 times the interval before; after 6 failures the message is
	 * dropped. All other kinds are sent once: the call ends with FAR_INJECTED, executed NO. For REPLY the caller
	 * gets FAR_INJECTED, executed YES, instead of the reply.
	 */
	unsigned fail_sends;
	/** Delay of each send that does not fail, ns. The deadline of the call does not move. A shard delays at most
	 * opts.calls calls at once; further ones are FAR_BUSY. */
	uint64_t delay_ns;
	/** Messages that the fault fails or delays before it ends. 0: no limit. */
	uint64_t messages;
	uint64_t reserved[2]; /* 0 */
};

/* ---- Any thread while the agent runs; these block at most 1 s per shard ---- */

/**
 * Replaces the fault of messages of a kind; NULL removes it. Messages already delayed stay delayed. Waits until every
 * shard has applied it; in a handler only its own shard has when the function returns. Errors: INVALID (no such kind),
 * RESOURCE, TIMEOUT.
 */
enum far_status far_fault_set(struct far_agent *agent, enum far_fault_kind kind, const struct far_fault *fault,
			      struct far_err *err);
/** Removes all faults. Waits and fails as far_fault_set(). */
enum far_status far_faults_clear(struct far_agent *agent, struct far_err *err);

/* ---- Any thread but an inline handler or a callback; blocks ---- */

/**
 * Waits until the references of this worker are quiet: its owners have confirmed all of them, and every FORK, ACCEPT
 * and DELETE is acknowledged. At most `timeout_ns` (0: the agent's default, as for a call). Errors: TIMEOUT, with the
 * number of each, or with the shard that a handler keeps busy; WOULD_DEADLOCK, CANCELLED as far_future_wait().
 */
enum far_status far_rref_flush(struct far_agent *agent, uint64_t timeout_ns, struct far_err *err);

/* ---- Any thread; these never block ---- */

/** "call", "remote" …; "?" for an unknown kind. */
const char *far_fault_name(enum far_fault_kind kind);

/** Effects of faults since the agent started, by kind. */
struct far_fault_counts {
	struct {
		uint64_t failed;  /* sends that failed */
		uint64_t delayed; /* sends that were delayed */
	} of[FAR_FAULT_COUNT];
};
/** far_fault_counts_read() with the caller's size of the struct. */
void far_fault_counts_read_sized(struct far_agent *agent, struct far_fault_counts *out, size_t bytes);
static inline void far_fault_counts_read(struct far_agent *agent, struct far_fault_counts *out)
{
	far_fault_counts_read_sized(agent, out, sizeof *out);
}

/** A counter of an agent: "agent.calls_sent", "rref.owned", "fault.fork.failed" … */
struct far_debug_pair {
	char name[48];  /* unique in the agent */
	char value[32]; /* decimal */
};
/** Writes the first `cap` counters of an agent to out[0, cap) and returns their total number. `out` may be NULL if
 * `cap` is 0. */
size_t far_debug_info(struct far_agent *agent, struct far_debug_pair *out, size_t cap);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
