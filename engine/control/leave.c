/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shutdown of a group: distributed termination detection over the store. Control thread.
 *
 * A member without outstanding calls writes its bye key and waits for the byes of all others, so no member loses a
 * callee that it still calls. A handler may have called on to a member whose bye was written already, so one round is
 * not enough: byes are repeated in waves, until in one wave no member has begun anything since the wave before. At the
 * end of the former wave nobody had anything outstanding, and until the latter nobody has begun anything that could
 * have led to more (Mattern 1987, the four-counter method). All members read the same values, so all agree on the last
 * wave. Rank 0 closes the store last. A member that dies before the last wave is lost, whatever byes it has written.
 *
 * A member that reaches its own deadline writes "late" in the first wave in which it has no bye yet, so that the others
 * do not count it as finished. A bye that is written never changes.
 *
 * A member closes its sessions only after its bye is stored, and the store replies to a client's requests in order. So
 * when a session ends, one query of the store shows whether the member left or died. With sessions on demand most
 * members have no session with a member that dies: rank 0 writes "lost" for it, and after a while connects to members
 * without a bye, a few at a time.
 *
 * A member of a dynamic group leaves as soon as it has no outstanding calls, whatever the others do.
 *
 * A member that serves has no work of its own. It begins to leave, without a deadline, when the first other member does
 * or is lost. Rank 0 keeps the store open meanwhile, for members that are started again.
 */
#include "base/error.h"
#include "control/group.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DRAIN_POLL_NS  UINT64_C(1000000)   /* interval between counts of outstanding calls while there are some */
#define PROBE_AFTER_NS UINT64_C(500000000) /* after this worker's bye: rank 0 begins to set up sessions to probe */
#define PROBE_EVERY_NS UINT64_C(50000000)  /* between groups of these */
#define PROBES_AT_ONCE 4
/* Interval of probes of members without a bye, over drivers that do not report the end of an idle peer. */
#define SILENT_EVERY_NS UINT64_C(1000000000)

/* After the deadline: to store "late". */
#define LATE_GRACE_NS UINT64_C(100000000)

static const char lost_value[] = "lost";
static const char late_value[] = "late";
static const char active_value[] = "+";

static void bye_wait(struct peer *p);
static void byes_wait(struct group *g);

/* Key of a wave: "bye", "bye2", … */
static const char *key_of(const char *what, unsigned wave, char *buf, size_t len)
{
	if (wave > 1)
		snprintf(buf, len, "%s%u", what, wave);
	else
		snprintf(buf, len, "%s", what);
	return buf;
}

static void wave_submit(struct group *g, struct store_msg request, const char *what, int rank, store_done_fn *done,
			void *user)
{
	char key[24];
	group_submit(g, request, key_of(what, g->wave, key, sizeof key), rank, g->leave_deadline, done, user);
}

static void wave_delete(struct group *g, const char *what, int rank)
{
	char key[24];
	group_request(g, STORE_DELETE, key_of(what, g->wave - 1, key, sizeof key), rank, g->leave_deadline,
		      group_ignore_reply, g);
}

static void left(struct group *g)
{
	group_close(g);
	g->phase = PHASE_LEFT;
	g->busy = true;
}

static bool is_value(const struct store_msg *reply, const char *value)
{
	return reply->value_len == strlen(value) && memcmp(reply->value, value, reply->value_len) == 0;
}

static void bye_read(void *user, int result, const struct store_msg *reply)
{
	struct peer *p = user;
	if (result == 0 && reply->status == STORE_OK) {
		p->bye = is_value(reply, lost_value) ? BYE_LOST : is_value(reply, late_value) ? BYE_LATE : BYE_SENT;
		p->active = reply->value_len == 1 && reply->value[0] == active_value[0];
	}
	p->group->busy = true;
}

static void closed_stored(void *user, int result, const struct store_msg *reply)
{
	((struct group *)user)->closing = false;
	group_ignore_reply(user, result, reply);
}

/* Rank 0, and in a store that no member hosts every member: a new group at the same address must not find this store.
 * No member of this group needs to connect any more, and the new group cannot begin before this member's bye. */
static void store_shut(struct group *g)
{
	if (g->server && !g->store_shut)
		store_server_shut(g->server);
	if (g->url.scheme != URL_TCP && !g->store_shut && !g->store_lost) {
		g->closing = true;
		group_submit(g, store_request(STORE_SET, "1", 1), "closed", -1, g->leave_deadline, closed_stored, g);
	}
	g->store_shut = true;
}

static void bye_queried(void *user, int result, const struct store_msg *reply)
{
	struct peer *p = user;
	bye_read(user, result, reply);
	if (result || reply->status != STORE_MISSING || !p->dead)
		return;
	/* Calls of others may have led to it since a bye of a former wave. */
	if (p->bye == BYE_UNKNOWN)
		p->bye = BYE_LOST;
	/* Members without a session with it wait for its key, which rank 0 writes. */
	if (p->group->url.rank == 0)
		wave_submit(p->group, store_request(STORE_CAS, lost_value, strlen(lost_value)), "bye", p->rank,
			    group_ignore_reply, p->group);
}

void leave_query_bye(struct peer *p)
{
	if (p->bye == BYE_UNKNOWN && p->rank != p->group->url.rank && !p->group->url.dynamic)
		wave_submit(p->group, store_request(STORE_GET, NULL, 0), "bye", p->rank, bye_queried, p);
}

void leave_peer_restarted(struct peer *p)
{
	struct group *g = p->group;
	p->bye = BYE_UNKNOWN;
	if (group_leaving(g) && !g->store_lost && !g->url.dynamic && !(list_used(g) && g->url.rank != 0))
		bye_wait(p);
}

/* `done` of the WAIT for rank 0's list of byes. */
static void byes_read(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	g->busy = true;
	if (result || reply->status != STORE_OK || reply->value_len != (size_t)g->url.world)
		return;
	g->byes_known = true;
	for (int r = 0; r < g->url.world; r++) {
		struct peer *p = &g->peers[r];
		uint8_t value = reply->value[r];
		if (p->bye != BYE_UNKNOWN || r == g->url.rank)
			continue;
		p->bye = value == '1' || value == '+' ? BYE_SENT
			 : value == 'l'               ? BYE_LOST
			 : value == 't'               ? BYE_LATE
						      : BYE_UNKNOWN;
		p->active = value == '+';
	}
}

/* Rank 0: writes the byes of this wave as one list. */
static void byes_publish(struct group *g)
{
	uint8_t byes[FAR_WORLD_MAX];
	if (!list_used(g) || g->url.rank != 0 || g->store_lost)
		return;
	for (int r = 0; r < g->url.world; r++)
		byes[r] = g->peers[r].bye == BYE_SENT || r == 0 ? (g->peers[r].active ? '+' : '1')
			  : g->peers[r].bye == BYE_LOST         ? 'l'
			  : g->peers[r].bye == BYE_LATE         ? 't'
								: '?';
	wave_submit(g, store_request(STORE_SET, byes, (size_t)g->url.world), "byes", -1, group_ignore_reply, g);
}

static void bye_stored(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	g->bye_is_stored = result == 0 && reply->status == STORE_OK;
	if (g->bye_is_stored)
		g->peers[g->url.rank].bye = BYE_SENT;
	g->busy = true;
}

static void bye_wait(struct peer *p)
{
	wave_submit(p->group, store_request(STORE_WAIT, NULL, 0), "bye", p->rank, bye_read, p);
}

static void byes_wait(struct group *g)
{
	wave_submit(g, store_request(STORE_WAIT, NULL, 0), "byes", -1, byes_read, g);
}

/* `done` of the WAIT for rank 0's end at its own deadline. */
static void host_late_read(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	g->host_is_late |= result == 0 && reply->status == STORE_OK;
	g->busy = true;
}

static void leaving_read(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	g->others_leave |= result == 0 && reply->status == STORE_OK;
	g->busy = true;
}

bool leave_due(struct group *g)
{
	if (g->url.dynamic) /* nobody's end ends the group */
		return g->leave_requested;
	if (g->serves && !g->serving && !g->store_lost) {
		g->serving = true;
		group_request(g, STORE_WAIT, "leaving", -1, TIME_NEVER, leaving_read, g);
	}
	for (int r = 0; r < g->url.world && g->serves; r++)
		g->others_leave |= g->peers[r].dead;
	return g->leave_requested || (g->serves && (g->others_leave || g->store_lost));
}

/* Reads the bye of another member: now, when it comes, or in rank 0's list. */
static void bye_await(struct peer *p, bool in_list)
{
	if (peer_is_self(p))
		return;
	if (p->dead)
		leave_query_bye(p);
	else if (!in_list)
		bye_wait(p);
}

void leave_begin(struct group *g)
{
	g->phase = PHASE_DRAIN;
	g->wave = 1;
	if (g->url.dynamic)
		return;
	if (!g->store_lost)
		group_submit(g, store_request(STORE_SET, "1", 1), "leaving", -1, g->leave_deadline, group_ignore_reply,
			     g);
	bool reads_list = list_used(g) && g->url.rank != 0;
	if (g->url.scheme == URL_TCP && g->url.rank != 0 && !g->store_lost)
		group_request(g, STORE_WAIT, "late", -1, TIME_NEVER, host_late_read, g);
	if (reads_list && !g->store_lost)
		byes_wait(g);
	for (int r = 0; r < g->url.world && !g->store_lost; r++)
		bye_await(&g->peers[r], reads_list);
}

/* All byes of this wave were read, so no member reads those of the wave before any more: deletes them. */
static void wave_delete_former(struct group *g)
{
	wave_delete(g, "bye", g->url.rank);
	if (g->url.rank != 0)
		return;
	if (list_used(g))
		wave_delete(g, "byes", -1);
	for (int r = 1; r < g->url.world; r++) {
		if (g->peers[r].dead && g->peers[r].bye_before)
			wave_delete(g, "bye", r);
	}
}

/* Begins the next wave. */
static void wave_next(struct group *g)
{
	bool reads_list = list_used(g) && g->url.rank != 0;
	if (g->wave > 2)
		wave_delete_former(g);
	g->wave++;
	g->phase = PHASE_DRAIN;
	g->busy = true;
	g->bye_sent = g->bye_is_stored = g->byes_known = false;
	if (reads_list)
		byes_wait(g);
	for (int r = 0; r < g->url.world; r++) {
		struct peer *p = &g->peers[r];
		p->bye_before = p->bye == BYE_SENT;
		p->active = p->probed = false;
		if (!p->bye_before)
			continue;
		p->bye = BYE_UNKNOWN;
		bye_await(p, reads_list);
	}
}

static bool wave_was_last(const struct group *g)
{
	bool active = false;
	for (int r = 0; r < g->url.world; r++)
		active |= g->peers[r].bye == BYE_SENT && g->peers[r].active;
	return g->wave > 1 && !active;
}

/* ---- results ---- */

static void members_with(const struct group *g, enum peer_bye bye, struct names *names)
{
	for (int r = 0; r < g->url.world; r++) {
		if (r != g->url.rank && g->peers[r].bye == bye)
			names_add(names, r, g->members[r].name);
	}
}

static void finish(struct group *g)
{
	struct names lost = {.text = ""}, late = {.text = ""};
	members_with(g, BYE_LOST, &lost);
	members_with(g, BYE_LATE, &late);
	if (late.n)
		err_set(&g->err, FAR_TIMEOUT, "left at the deadline of its own shutdown: %s%s%s", names_end(&late),
			lost.n ? "; lost before: " : "", lost.n ? names_end(&lost) : "");
	else if (lost.n)
		err_set(&g->err, FAR_PEER_LOST, "lost before the shutdown: %s", names_end(&lost));
}

/* Writes what is missing at this worker's deadline; false: nothing. */
static bool missing_text(const struct group *g, char *text, size_t len)
{
	struct names missing = {.text = ""}, lost = {.text = ""}, late = {.text = ""};
	uint64_t calls = g->config.outstanding(g->config.ctx);
	char own[128] = "";
	if (!g->url.dynamic && (!list_used(g) || g->url.rank == 0 || g->byes_known))
		members_with(g, BYE_UNKNOWN, &missing);
	members_with(g, BYE_LOST, &lost);
	members_with(g, BYE_LATE, &late);
	if (calls)
		snprintf(own, sizeof own,
			 "; %" PRIu64
			 " calls of this worker are outstanding, handlers of one-way messages here included",
			 calls);
	snprintf(text, len, "%s%s%s%s%s%s%s",
		 !missing.n    ? ""
		 : g->wave > 1 ? "; still have calls: "
			       : "; did not come: ",
		 missing.n ? names_end(&missing) : "", own,
		 late.n ? "; left at the deadline of its own shutdown: " : "", late.n ? names_end(&late) : "",
		 lost.n ? "; lost before: " : "", lost.n ? names_end(&lost) : "");
	return missing.n || calls;
}

static void finish_late(struct group *g)
{
	char text[3 * sizeof((struct names *)0)->text + 256];
	if (missing_text(g, text, sizeof text))
		err_set(&g->err, FAR_TIMEOUT, "the shutdown's deadline passed%s", text);
	else
		finish(g);
	if (g->err.status)
		return;
	if (list_used(g) && g->url.rank != 0)
		err_set(&g->err, FAR_TIMEOUT,
			"the shutdown's deadline passed before rank 0, which all notify, published who has "
			"left");
	else
		err_set(&g->err, FAR_TIMEOUT, "the shutdown's deadline passed before the store at %s answered",
			g->store);
}

/* The result when the store is lost: no further bye can be read, so only rank 0's own departure can be judged. */
static void finish_without_store(struct group *g)
{
	struct names missing = {.text = ""};
	members_with(g, BYE_UNKNOWN, &missing);
	if (g->url.scheme != URL_TCP)
		err_set(&g->err, FAR_UNREACHABLE, "the store at %s was lost before the shutdown%s%s", g->store,
			missing.n ? "; until then did not come: " : "", missing.n ? names_end(&missing) : "");
	else if (g->host_is_late || g->peers[0].bye == BYE_LATE)
		err_set(&g->err, FAR_TIMEOUT,
			"worker \"%s\" (rank 0), which hosts the store at %s, left at the deadline of its own "
			"shutdown%s%s",
			g->members[0].name, g->store, missing.n ? "; until then did not come: " : "",
			missing.n ? names_end(&missing) : "");
	else /* a complete last wave would have ended in CLOSE, before the store */
		err_set(&g->err, FAR_PEER_LOST,
			"worker \"%s\" (rank 0), which hosts the store at %s, was lost before the shutdown",
			g->members[0].name, g->store);
}

/* ---- steps ---- */

static bool byes_complete(const struct group *g)
{
	for (int r = 0; r < g->url.world; r++) {
		if (r != g->url.rank && g->peers[r].bye == BYE_UNKNOWN)
			return false;
	}
	return g->bye_is_stored;
}

/* Rank 0: probes members without a bye. Returns the absolute time of the next call. */
static uint64_t probe_step(struct group *g)
{
	int n = 0, silent = 0;
	if (g->url.rank != 0)
		return TIME_NEVER;
	if (g->now < g->probe_at)
		return g->probe_at;
	if (g->now >= g->silent_at) {
		for (int r = 1; r < g->url.world; r++)
			silent += g->peers[r].bye == BYE_UNKNOWN && session_probe_silent(&g->peers[r]);
		g->silent_at = silent ? g->now + SILENT_EVERY_NS : TIME_NEVER;
	}
	uint64_t next = g->silent_at;
	if (!g->lazy) {
		g->probe_at = next;
		return next;
	}
	for (int r = 1; r < g->url.world && n < PROBES_AT_ONCE; r++) {
		struct peer *p = &g->peers[r];
		if (p->bye != BYE_UNKNOWN || p->probed)
			continue;
		p->probed = true;
		session_probe(p);
		n++;
	}
	g->probe_at = n ? g->now + PROBE_EVERY_NS : next;
	return g->probe_at;
}

static void bye_step(struct group *g)
{
	if (!g->bye_sent) {
		g->bye_sent = true;
		g->probe_at = time_after(g->now, PROBE_AFTER_NS);
		struct peer *self = &g->peers[g->url.rank];
		self->active = g->wave > 1 && g->begun_drained != g->begun;
		g->begun = g->begun_drained;
		wave_submit(g, store_request(STORE_SET, self->active ? active_value : "1", 1), "bye", g->url.rank,
			    bye_stored, g);
	}
	if (!byes_complete(g))
		return;
	byes_publish(g);
	if (!wave_was_last(g)) {
		wave_next(g);
		return;
	}
	store_shut(g);
	finish(g);
	g->phase = PHASE_CLOSE;
	g->grace = time_after(g->now, FAR_STORE_CLOSE_NS);
}

static uint64_t drain_step(struct group *g)
{
	/* Before `outstanding`: a call begun between the two reads must not count as begun before this bye. */
	g->begun_drained = g->config.begun(g->config.ctx);
	if (g->config.outstanding(g->config.ctx))
		return g->now + DRAIN_POLL_NS;
	if (g->url.dynamic)
		left(g);
	else
		g->phase = PHASE_BYE;
	return TIME_NEVER;
}

static void late_stored(void *user, int result, const struct store_msg *reply)
{
	((struct group *)user)->notifying = false;
	group_ignore_reply(user, result, reply);
}

/* This worker's deadline has passed: writes "late" and leaves. */
static void late_begin(struct group *g)
{
	char key[24];
	finish_late(g);
	g->phase = PHASE_LATE;
	g->busy = true;
	g->grace = time_after(g->now, LATE_GRACE_NS);
	if (g->store_lost || g->url.dynamic)
		return;
	if (group_hosts_store(g)) /* the others may have read a bye in this wave */
		group_submit(g, store_request(STORE_SET, "1", 1), "late", -1, g->grace, group_ignore_reply, g);
	g->notifying = true;
	group_submit(g, store_request(STORE_SET, late_value, sizeof late_value - 1),
		     key_of("bye", g->wave + g->bye_sent, key, sizeof key), g->url.rank, g->grace, late_stored, g);
}

static uint64_t late_step(struct group *g)
{
	if (g->notifying && !g->store_lost && g->now < g->grace)
		return g->grace;
	left(g);
	return TIME_NEVER;
}

/* The last wave is complete: rank 0 waits for members that are still connected to read it, but for no other client. */
static uint64_t close_step(struct group *g)
{
	uint64_t until = g->grace < g->leave_deadline ? g->grace : g->leave_deadline;
	bool waits = g->server ? store_server_held(g->server) : g->closing && !g->store_lost;
	if (waits && g->now < until)
		return until;
	left(g);
	return TIME_NEVER;
}

uint64_t leave_step(struct group *g)
{
	uint64_t next = TIME_NEVER;
	if (!group_leaving(g))
		return TIME_NEVER;
	if (g->leave_requested && g->url.rank == 0 && !g->url.dynamic)
		store_shut(g);
	if (g->phase == PHASE_DRAIN)
		next = drain_step(g);
	/* Rank 0 may have closed the store after the last bye. */
	if (g->phase == PHASE_BYE && (!g->store_lost || byes_complete(g)))
		bye_step(g);
	if (g->phase == PHASE_BYE)
		next = probe_step(g);
	if (g->phase == PHASE_BYE && g->store_lost) {
		finish_without_store(g);
		left(g);
	} else if (g->phase == PHASE_BYE && list_used(g) && g->peers[0].bye == BYE_LOST) {
		finish(g); /* nobody publishes the byes any more */
		left(g);
	} else if (g->phase == PHASE_CLOSE) {
		next = close_step(g);
	} else if (g->phase == PHASE_LATE) {
		return late_step(g);
	} else if (g->now >= g->leave_deadline) {
		late_begin(g);
		return g->grace;
	}
	return g->leave_deadline < next && group_leaving(g) ? g->leave_deadline : next;
}
