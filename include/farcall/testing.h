/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * For tests: messages that fail or are late on purpose, by what they are; all counters of an agent by name; waiting
 * until nothing is under way about references. An agent that no fault is set in pays nothing for any of it.
 */
#ifndef FARCALL_TESTING_H
#define FARCALL_TESTING_H

#include <farcall/rref.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Name, what its text says. Of this worker's own messages, told apart by what they carry; a fan-out's are calls too. */
#define FAR_FAULT_LIST(X)                                                                                              \
	X(CALL, "call")     /* request of far_rpc_*, far_msg_call*, far_fanout*, far_all_gather, far_barrier */        \
	X(REMOTE, "remote") /* request to make a value and keep it */                                                  \
	X(FETCH, "fetch")   /* request for a value, or what it is: far_rref_to_here*, far_rref_type* */                \
	X(METHOD, "method") /* request to call a method on a value, its result kept there or not */                    \
	X(FORK, "fork")     /* to the owner: this reference is mine */                                                 \
	X(ACCEPT, "accept") /* to who sent a reference in a result: the owner knows of mine */                         \
	X(DELETE, "delete") /* to the owner: this reference is not mine any more, or its making has failed */          \
	X(REPLY, "reply")   /* answer of this worker to a request of any of the first four kinds, errors included */

enum far_fault_kind {
#define FAR_FAULT_ENUM(name, text) FAR_FAULT_##name,
	FAR_FAULT_LIST(FAR_FAULT_ENUM)
#undef FAR_FAULT_ENUM
		FAR_FAULT_COUNT
};

/** What happens to messages of a kind. All zero: nothing. */
struct far_fault {
	/**
	 * The first so many sends of each message fail. FORK, ACCEPT and DELETE are sent again, at most 5 times, after
	 * opts.rref_retry_ns and then after half as much again each time; a message that has failed 6 times is given
	 * up. All others are sent once: their call ends with FAR_INJECTED, executed NO. For REPLY the caller gets
	 * FAR_INJECTED, executed YES, in place of the answer.
	 */
	unsigned fail_sends;
	/** Each send that does not fail leaves so much later. The caller's time-out goes on meanwhile. Of the calls of
	 * a shard, opts.calls at most are held back at once; those beyond are FAR_BUSY. */
	uint64_t delay_ns;
	/** Only so many messages from now on; those that it fails or delays count. 0: all. */
	uint64_t messages;
};

/**
 * From now on `fault` is what happens to messages of that kind which this worker sends; NULL ends it. What is delayed
 * already stays so. Any thread, while the agent runs. Waits until its shards have taken notice, at most 1 s; in a
 * handler only its own shard has when it returns. Errors: INVALID (no such kind), RESOURCE, TIMEOUT.
 */
enum far_status far_fault_set(struct far_agent *agent, enum far_fault_kind kind, const struct far_fault *fault,
			      struct far_err *err);
/** Ends all of them; as far_fault_set(). */
enum far_status far_faults_clear(struct far_agent *agent, struct far_err *err);
/** "call", "remote" …; never NULL. */
const char *far_fault_name(enum far_fault_kind kind);

/** What faults have come to since the agent began: sends that failed, and that were delayed, by kind. */
struct far_fault_counts {
	uint64_t failed[FAR_FAULT_COUNT], delayed[FAR_FAULT_COUNT];
};
void far_fault_counts_read(struct far_agent *agent, struct far_fault_counts *out);

/**
 * Waits until nothing is under way about references of this worker: none that its owner has yet to confirm, no FORK,
 * ACCEPT or DELETE that is not answered. At most `timeout_ns` (0: the agent's default, as for a call). Where waiting is
 * allowed. TIMEOUT, naming how many are left, or the shard that a handler keeps from saying so; WOULD_DEADLOCK,
 * CANCELLED as far_future_wait().
 */
enum far_status far_rref_flush(struct far_agent *agent, uint64_t timeout_ns, struct far_err *err);

/** A counter of an agent, by name: "agent.calls_sent", "rref.owned", "fault.fork.failed" … */
struct far_debug_pair {
	char name[48];
	char value[32]; /* as text, decimal */
};
/**
 * Writes the first `cap` of an agent's counters into out[0, cap) and returns how many there are. No name comes twice.
 * Any thread; never blocks; `out` may be NULL when `cap` is 0.
 */
size_t far_debug_info(struct far_agent *agent, struct far_debug_pair *out, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
