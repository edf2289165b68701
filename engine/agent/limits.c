/* SPDX-License-Identifier: BSD-3-Clause */
/** Options that are limits: defaults, ranges, checks. Application thread, at start. */
#include "agent/limits.h"

#include "agent/agent.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/sized.h"

#include <inttypes.h>
#include <stddef.h>

static const struct bound {
	const char *name;
	size_t opt, out;          /* offset of an unsigned in far_opts, and in far_limits */
	unsigned by_default, max; /* range [1, max] */
	unsigned least;           /* not 0: rounded up to a power of two, at least this one */
} bounds[] = {
#define BOUND(name, ...)                                                                                               \
	{                                                                                                              \
#name, offsetof(struct far_opts, name), offsetof(struct far_limits, name), __VA_ARGS__                 \
	}
	BOUND(submit_slots, FAR_SUBMIT_SLOTS, FAR_SUBMIT_SLOTS_MAX, FAR_SUBMIT_SLOTS_MIN),
	BOUND(mailbox_slots, FAR_MAILBOX_SLOTS, FAR_MAILBOX_SLOTS_MAX, 1),
	BOUND(calls, FAR_CALLS, FAR_CALLS_MAX, 0),
	BOUND(deferred, FAR_DEFERRED, FAR_DEFERRED_MAX, 0),
	BOUND(peer_calls, FAR_SESSION_CALLS_MAX, FAR_SESSION_CALLS_MAX, 0),
	BOUND(peer_waiting, FAR_SESSION_WAITING, FAR_SESSION_WAITING_MAX, 0),
	BOUND(retry_window, FAR_RETRY_WINDOW, FAR_RETRY_WINDOW, 0),
	BOUND(fibers, FAR_FIBERS, FAR_FIBERS_MAX, 0),
	BOUND(blocking_threads, FAR_BLOCKING, FAR_BLOCKING_MAX, 0),
	BOUND(blocking_queue, FAR_BLOCKING_QUEUE, FAR_BLOCKING_QUEUE_MAX, 2),
#undef BOUND
};

static unsigned to_power(unsigned n, unsigned least)
{
	n = n < least ? least : n;
	while (n & (n - 1))
		n += n & -n;
	return n;
}

/* Checks an option in ns, which 0 leaves at its default. `note` follows the range in the text. */
static enum far_status ns_check(const char *name, uint64_t ns, uint64_t min, uint64_t max, const char *note,
				struct far_err *err)
{
	if (ns == 0 || (ns >= min && ns <= max))
		return FAR_OK;
	return err_set(err, FAR_INVALID, "options: %s is %" PRIu64 "; it must be in [%" PRIu64 ", %" PRIu64 "] %s",
		       name, ns, min, max, note);
}

enum far_status limits_resolve(const struct far_opts *opts, struct far_limits *out, struct far_err *err)
{
	for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
		const struct bound *b = &bounds[i];
		unsigned v = opts ? *(const unsigned *)(const void *)((const char *)opts + b->opt) : 0;
		v = v ? v : b->by_default;
		if (v > b->max)
			return err_set(err, FAR_INVALID, "options: %s is %u; it must be in [1, %u], or 0 for %u",
				       b->name, v, b->max, b->by_default);
		*(unsigned *)(void *)((char *)out + b->out) = b->least ? to_power(v, b->least) : v;
	}
	if (!opts)
		return FAR_OK;
	enum far_status status = ns_check("peer_limit_ns", opts->peer_limit_ns, FAR_PEER_LIMIT_NS_MIN,
					  FAR_PEER_LIMIT_NS_MAX, "(10 ms to 1 h), or 0 for 1 s", err);
	if (!status)
		status = ns_check("lease_ns", opts->lease_ns, FAR_LEASE_NS_MIN, FAR_LEASE_NS_MAX,
				  "(100 ms to 1 h), or 0 for 10 s", err);
	return status ? status
		      : ns_check("rref_retry_ns", opts->rref_retry_ns, FAR_RREF_RETRY_NS_MIN, FAR_RREF_RETRY_NS_MAX,
				 "(1 us to 1 h), or 0 for 1 ms", err);
}

void far_limits_read_sized(struct far_agent *agent, struct far_limits *out, size_t bytes)
{
	struct far_limits limits;
	if (agent)
		limits = agent->limits;
	else
		limits_resolve(NULL, &limits, NULL);
	sized_out(out, bytes, &limits, sizeof limits);
}
