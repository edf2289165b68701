/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages that fail on purpose: K1, K2. Main thread of each process. */
#include "functions.h"

#include <farcall/testing.h>
#include <string.h>

/* Every message of this kind fails so many times. */
static void fail(const char *here, enum far_fault_kind kind, unsigned times)
{
	struct far_fault f = {.fail_sends = times};
	conform_at(here);
	conform_want(here, far_fault_name(kind), far_fault_set(agent, kind, &f, &err), FAR_OK);
}
#define FAIL(kind, times) fail(HERE, FAR_FAULT_##kind, times)

static uint64_t failed(enum far_fault_kind kind)
{
	struct far_fault_counts c;
	far_fault_counts_read(agent, &c);
	return c.of[kind].failed;
}

/* The usual set: what engines say to each other about references fails three times. */
static void fail_controls(unsigned times)
{
	FAIL(FORK, times);
	FAIL(ACCEPT, times);
	FAIL(DELETE, times);
	OK(far_barrier(agent, NULL, 0, 0, &err));
}

/* Made on one, shared with another, which fetches it, returned by a third; then everything is given back. */
static void share(void)
{
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(full(2, 2, rank), full(2, 2, 1)));
	IS_FULL(CALL(peer(2), "c::to_here", FAR_ARGS(r)), 2, 2, rank + 1);
	IS_FULL(FETCH_LAST(REMOTE(peer(2), "c::rref_sum", FAR_ARGS(r, r))), 2, 2, 2 * (rank + 1));
	far_rref_free(r);
	struct far_val v = CALL(peer(1), "c::remote_there", FAR_ARGS(peer(3), 1, rank));
	IS_INT(FETCH(v.u.rref), 1 + rank);
	far_val_fini(&v);
	/* After the first one no worker calls any more; after the second none has control messages to send. */
	for (int i = 0; i < 2; i++) {
		OK(far_rref_flush(agent, 0, &err));
		conform_flushed(HERE);
		OK(far_barrier(agent, NULL, 0, 0, &err));
	}
}

/* ---- K1 ---- */

CONFORM(K1, check_failed_messages)
{
	fail_controls(3);
	share();
	HOLDS(failed(FAR_FAULT_FORK) >= 3 && failed(FAR_FAULT_DELETE) >= 3);
	HOLDS(failed(FAR_FAULT_FORK) % 3 == 0 && failed(FAR_FAULT_DELETE) % 3 == 0); /* each message three times */
	OK(far_faults_clear(agent, &err));
}

CONFORM(K1, verify_backend_options)
{
	struct far_fault f = {.fail_sends = 1};
	FAILS(FAR_INVALID, far_fault_set(agent, FAR_FAULT_COUNT, &f, &err));
	for (int kind = 0; kind < FAR_FAULT_COUNT; kind++) {
		HOLDS(far_fault_name((enum far_fault_kind)kind)[0]);
		HOLDS(failed((enum far_fault_kind)kind) == 0);
		OK(far_fault_set(agent, (enum far_fault_kind)kind, &f, &err));
		OK(far_fault_set(agent, (enum far_fault_kind)kind, NULL, &err));
	}
	conform_meet(HERE); /* nothing was sent while it would have failed */
	share();
	for (int kind = 0; kind < FAR_FAULT_COUNT; kind++)
		HOLDS(failed((enum far_fault_kind)kind) == 0);
}

CONFORM(K1, custom_faulty_messages)
{
	FAIL(DELETE, 2);
	OK(far_barrier(agent, NULL, 0, 0, &err));
	share();
	HOLDS(failed(FAR_FAULT_FORK) == 0 && failed(FAR_FAULT_ACCEPT) == 0);
	HOLDS(failed(FAR_FAULT_DELETE) >= 2 && failed(FAR_FAULT_DELETE) % 2 == 0);
	OK(far_faults_clear(agent, &err));
}

CONFORM(K1, no_faulty_messages)
{
	fail_controls(0);
	share();
	HOLDS(failed(FAR_FAULT_FORK) == 0 && failed(FAR_FAULT_ACCEPT) == 0 && failed(FAR_FAULT_DELETE) == 0);
}

CONFORM(K1, custom_messages_to_delay)
{
	struct far_fault late = {.delay_ns = 20 * FAR_MS};
	struct far_fault_counts c;
	OK(far_fault_set(agent, FAR_FAULT_CALL, &late, &err));
	OK(far_fault_set(agent, FAR_FAULT_FORK, &late, &err));
	IS_INT(CALL(peer(1), "far::add", FAR_ARGS(1, 2)), 3);
	share();
	far_fault_counts_read(agent, &c);
	HOLDS(c.of[FAR_FAULT_CALL].delayed >= 3 && c.of[FAR_FAULT_FORK].delayed >= 1);
	HOLDS(c.of[FAR_FAULT_REMOTE].delayed == 0 && c.of[FAR_FAULT_CALL].failed == 0);
	OK(far_faults_clear(agent, &err));
}

/* ---- K2 ---- */

/* A request that makes a value never leaves: the reference reports it wherever it is used. */
static struct far_rref *dropped(const char *to, const char *fn, const struct far_val *args, size_t n)
{
	FAIL(REMOTE, 1);
	struct far_rref *r = REMOTE(to, fn, args, n);
	FAILS(FAR_INJECTED, far_rref_wait(r, 0, &err));
	HOLDS(failed(FAR_FAULT_REMOTE) == 1 && far_rref_status(r, NULL) == FAR_INJECTED);
	OK(far_faults_clear(agent, &err));
	return r;
}

static void dropped_pickle(const char *to)
{
	struct far_rref *r = dropped(to, "c::slow_add", FAR_ARGS(1, 2, 20)), *other = NULL;
	CALL_FAILS(FAR_INJECTED, peer(2), "c::to_here", FAR_ARGS(r));
	SAYS("was never made");
	HOLDS(err.executed == FAR_EXECUTED_NO);
	FAILS(FAR_INJECTED, far_remote(agent, peer(2), "c::to_here", FAR_ARGS(FAR_KW("r", r)), NULL, &other, &err));
	HOLDS(!other);
	far_rref_free(r);
}

static void dropped_fetch(const char *to, const char *fn, const struct far_val *args, size_t n)
{
	struct far_rref *r = dropped(to, fn, args, n);
	for (int i = 0; i < 2; i++) {
		FETCH_FAILS(FAR_INJECTED, r);
		SAYS("was never made");
	}
	far_rref_free(r);
	IS_INT(FETCH_LAST(REMOTE(to, "far::add", FAR_ARGS(1, 2))), 3); /* the next one is well */
}

CONFORM(K2, remote_message_dropped_pickle)
{
	dropped_pickle(peer(1));
}

CONFORM(K2, remote_message_dropped_pickle_to_self)
{
	dropped_pickle(peer(0));
}

CONFORM(K2, builtin_remote_message_dropped_timeout)
{
	dropped_fetch(peer(1), "far::add", FAR_ARGS(full(2, 2, 1), full(2, 2, 1)));
}

CONFORM(K2, builtin_remote_message_dropped_timeout_to_self)
{
	dropped_fetch(peer(0), "far::add", FAR_ARGS(full(2, 2, 1), full(2, 2, 1)));
}

CONFORM(K2, udf_remote_message_dropped_timeout)
{
	dropped_fetch(peer(1), "c::slow_add", FAR_ARGS(1, 2));
}

CONFORM(K2, udf_remote_message_dropped_timeout_to_self)
{
	dropped_fetch(peer(0), "c::slow_add", FAR_ARGS(1, 2));
}
