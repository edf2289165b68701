/* SPDX-License-Identifier: BSD-3-Clause */
/** What a reference is, and what is left of it: I3, I4, I5; J1. Main thread of each process. */
#include "functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- I3 ---- */

CONFORM(I3, local_rref_no_fork)
{
	struct far_val v;
	struct far_rref *r = REMOTE(peer(0), "far::identity", FAR_ARGS(35));
	OK(far_rref_local_value(r, 0, &v, &err));
	IS_INT(v, 35);
	HOLDS(far_rref_is_owner(r) && far_rref_owner(r).worker == rank);
	far_rref_free(r);
}

CONFORM(I3, local_value_not_on_owner)
{
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2));
	char text[FAR_RREF_TEXT_MAX];
	FAILS(FAR_INVALID, far_rref_local_value(r, 0, NULL, &err));
	SAYS(far_rref_text(r, text, sizeof text));
	SAYS(peer(0));
	SAYS(peer(1));
	far_rref_free(r);
}

CONFORM(I3, rref_str)
{
	char text[FAR_RREF_TEXT_MAX], want[32];
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2)),
			*s = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2));
	far_rref_text(r, text, sizeof text);
	snprintf(want, sizeof want, "RRef(created_on=%d, ", rank);
	HOLDS(strncmp(text, want, strlen(want)) == 0);
	snprintf(want, sizeof want, "owner=%d)", peer_rank(1));
	HOLDS(strstr(text, want) && strstr(text, "local_id="));
	HOLDS(strcmp(text, far_rref_text(s, (char[FAR_RREF_TEXT_MAX]){0}, FAR_RREF_TEXT_MAX)) != 0);
	far_rref_free(r);
	far_rref_free(s);
}

/* When it is known to have been made, be it by a built-in, a function, or oneself. */
CONFORM(I3, rref_get_future)
{
	struct far_rref *r[] = {REMOTE(peer(1), "far::add", FAR_ARGS(full(2, 2, 1), 1)),
				REMOTE(peer(1), "c::slow_add", FAR_ARGS(1, 2, 20)),
				REMOTE(peer(0), "far::identity", FAR_ARGS(3))};
	HOLDS(far_rref_status(r[1], NULL) == FAR_PENDING || far_rref_status(r[1], NULL) == FAR_OK);
	for (int i = 0; i < 3; i++) {
		OK(far_rref_wait(r[i], 0, &err));
		HOLDS(far_rref_status(r[i], &err) == FAR_OK && far_rref_confirmed_by_owner(r[i]));
		far_rref_free(r[i]);
	}
}

/* It goes to others in calls of its own agent and in no other way. */
CONFORM(I3, rref_py_pickle_not_supported)
{
	struct far_opts opts = {.init_method = conform_own_url(HERE)};
	struct far_agent *lone;
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2));
	CALL_FAILS(FAR_INVALID, peer(1), "far::identity", FAR_ARGS(far_rref_val(NULL)));
	OK(far_init_rpc("lone", 0, 1, &opts, &lone, &err));
	FAILS(FAR_INVALID, far_rpc_sync(lone, "lone", "far::identity", FAR_ARGS(r), NULL, NULL, &err));
	SAYS("another agent");
	OK(far_shutdown(lone, FAR_FOREVER, &err));
	IS_INT(FETCH_LAST(r), 3);
}

/* ---- I4 ---- */

static void is_true(const char *here, struct far_val v)
{
	conform_at(here);
	if (v.type != FAR_TYPE_BOOL || !v.u.b)
		conform_fail(here, "it is not confirmed");
}

CONFORM(I4, user_rrefs_confirmed)
{
	for (int i = 0; i < 4; i++) {
		struct far_rref *r = REMOTE(peer(2), "c::slow_add", FAR_ARGS(1, 2, 5));
		is_true(HERE, CALL(peer(1), "c::confirmed", FAR_ARGS(r)));
		far_rref_free(r);
	}
}

CONFORM(I4, user_rrefs_confirmed_remote)
{
	for (int i = 0; i < 4; i++) {
		struct far_rref *r = REMOTE(peer(2), "c::slow_add", FAR_ARGS(1, 2, 5));
		struct far_rref *yes = REMOTE(peer(1), "c::confirmed", FAR_ARGS(r));
		far_rref_free(r);
		is_true(HERE, FETCH_LAST(yes));
	}
}

/* ---- I5 ---- */

__attribute__((format(printf, 1, 0))) static void said_held(const char *format, const char *a, const char *b,
							    const char *c)
{
	char line[512];
	snprintf(line, sizeof line, format, a, b, c);
	HOLDS(conform_stderr_has(line));
}

/* Two workers hold a value when the group ends: its owner prints both, each holder prints the reference, and the
 * shutdown fails. Kills: FAIL that only prints; an owner, or a holder, that prints nothing; a line without the holder's
 * name. */
CONFORM_BARE(I5, rref_leak)
{
	conform_may_leak();
	conform_opts.leaks = FAR_LEAKS_FAIL;
	conform_join(HERE);
	char text[FAR_RREF_TEXT_MAX];
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(full(2, 2, 1), 1));
	IS_NONE(CALL(peer(2), "c::keep_global", FAR_ARGS(r)));
	far_rref_text(r, text, sizeof text);
	OK(far_barrier(agent, NULL, 0, 0, &err));
	FAILS(FAR_LEAKED, far_shutdown(agent, FAR_FOREVER, &err));
	SAYS("RRef(");
	said_held("worker \"%s\" still holds %s of worker \"%s\"", peer(0), text, peer(1));
	/* The value here was made by the worker before; its reference was given to the next. */
	said_held("of worker \"%s\" is still held by worker \"%s\"%s", peer(0), peer(WORLD - 1), "");
	said_held("of worker \"%s\" is still held by worker \"%s\"%s", peer(0), peer(WORLD - 1 + 2), "");
	far_rref_free(r);
}

/* With FAR_LEAKS_IGNORE the shutdown succeeds and prints nothing. Kills: IGNORE taken for REPORT, or for FAIL. */
CONFORM_BARE(I5, ignore_rref_leak)
{
	conform_may_leak();
	conform_opts.leaks = FAR_LEAKS_IGNORE;
	conform_join(HERE);
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(full(2, 2, 1), 1));
	IS_NONE(CALL(peer(2), "c::keep_global", FAR_ARGS(r)));
	OK(far_barrier(agent, NULL, 0, 0, &err));
	conform_leave(HERE);
	HOLDS(!conform_stderr_has("still hold") && !conform_stderr_has("RRef("));
	far_rref_free(r);
}

static struct far_rref_counts wanted;

static bool counts_are(void *user)
{
	struct far_rref_counts c;
	far_rref_counts_read(agent, &c);
	return c.owned == wanted.owned && c.held == wanted.held && c.forks == wanted.forks && c.pending == 0;
}

static void settle(uint64_t owned, uint64_t held, uint64_t forks)
{
	wanted = (struct far_rref_counts){.owned = owned, .held = held, .forks = forks};
	UNTIL(counts_are, NULL);
	OK(far_barrier(agent, NULL, 0, 0, &err));
}

CONFORM(I5, rref_context_debug_info)
{
	settle(0, 0, 0);
	struct far_rref *own = REMOTE(peer(0), "far::identity", FAR_ARGS(1));
	settle(1, 1, 1); /* one's own counts as anybody's */
	far_rref_free(own);
	settle(0, 0, 0);
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2)); /* as everybody does */
	settle(1, 1, 1);
	IS_NONE(CALL(peer(2), "c::keep_global", FAR_ARGS(r)));
	settle(1, 2, 2);
	far_rref_free(r);
	settle(1, 1, 1);
	IS_NONE(CALL(peer(2), "c::clear_global", FAR_NOARGS));
	settle(0, 0, 0);
}

/* ---- J1 ---- */

#define PAIRS_MAX 128
static struct far_debug_pair pairs[PAIRS_MAX];

/* Value of a counter of far_debug_info(), whose names differ from each other. */
static uint64_t debug_value(const char *name)
{
	size_t n = far_debug_info(agent, pairs, PAIRS_MAX), found = n;
	HOLDS(n > 30 && n <= PAIRS_MAX);
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < i; k++)
			HOLDS(strcmp(pairs[i].name, pairs[k].name) != 0);
		if (strcmp(pairs[i].name, name) == 0)
			found = i;
	}
	HOLDS(found < n);
	return strtoull(pairs[found].value, NULL, 10);
}

static bool is_deferred(void *user)
{
	struct far_metrics m;
	(void)user;
	OK(far_metrics_read(agent, &m, &err));
	return m.requests_deferred >= 1 && m.threads_idle == m.threads; /* others wait for a barrier */
}

/* Each counter of the reference, with a known number of references, and a call and a request that wait. */
CONFORM(J1, debug_info)
{
	settle(0, 0, 0);
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2));
	OK(far_rref_wait(r, 0, &err));
	settle(1, 1, 1);
	HOLDS(debug_value("rref.owned") == 1 && debug_value("rref.held") == 1 && debug_value("rref.forks") == 1);
	HOLDS(debug_value("rref.unconfirmed") == 0 && debug_value("rref.pending") == 0);
	uint64_t sent = debug_value("agent.calls_sent");
	struct far_future *f = ASYNC(peer(1), "c::ps_push", FAR_ARGS(1, 2)); /* answered with the second one */
	UNTIL(is_deferred, NULL);                                            /* that of another worker, here */
	HOLDS(debug_value("agent.calls_active") >= 1 && debug_value("agent.requests_active") >= 1);
	HOLDS(debug_value("agent.calls_sent") > sent && debug_value("agent.calls_failed") == 0);
	OK(far_barrier(agent, NULL, 0, 0, &err));
	IS_INT(CALL(peer(1), "c::ps_push", FAR_ARGS(1, 2)), 2);
	struct far_val v = TAKE(f);
	IS_INT(v, 2);
	far_rref_free(r);
	settle(0, 0, 0);
}

/* Everybody holds a reference to a value that holds one to a value of the first: nobody will let go. */
CONFORM_BARE(I5, non_garbage_collected_user_rref_due_to_local_circular_dependency)
{
	conform_may_leak();
	conform_join(HERE);
	struct far_rref *mine = REMOTE(peer(0), "far::identity", FAR_ARGS(rank));
	struct far_rref *there = REMOTE(peer(1), "far::identity", FAR_ARGS(FAR_LIST(mine, 1)));
	OK(far_rref_wait(there, 0, &err));
	IS_NONE(CALL(peer(1), "c::keep_global", FAR_ARGS(there)));
	OK(far_barrier(agent, NULL, 0, 0, &err));
	conform_leave(HERE);
	far_rref_free(there);
	far_rref_free(mine);
}

CONFORM_BARE(I5, use_rref_after_shutdown)
{
	conform_may_leak();
	conform_join(HERE);
	struct far_future *f = NULL;
	char text[FAR_RREF_TEXT_MAX];
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2)),
			*own = REMOTE(peer(0), "far::add", FAR_ARGS(1, 2));
	IS_INT(FETCH(r), 3);
	OK(far_barrier(agent, NULL, 0, 0, &err));
	conform_leave(HERE);
	FETCH_FAILS(FAR_SHUTDOWN, r);
	FAILS(FAR_SHUTDOWN, far_rref_to_here_async(r, 0, &f, &err));
	FAILS(FAR_SHUTDOWN, far_rref_local_value(own, 0, NULL, &err));
	HOLDS(!f && strstr(far_rref_text(r, text, sizeof text), "RRef("));
	/* Another agent does not share it either. */
	struct far_opts opts = {.init_method = conform_own_url(HERE)};
	OK(far_init_rpc("lone", 0, 1, &opts, &agent, &err));
	CALL_FAILS(FAR_SHUTDOWN, "lone", "far::identity", FAR_ARGS(r));
	conform_leave(HERE);
	far_rref_free(r);
	far_rref_free(own);
}
