/* SPDX-License-Identifier: BSD-3-Clause */
/* One member's state machine of a group: phases, failures, requests to the store. Control thread. */
#include "control/group.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "control/lease.h"
#include "transport/transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASSES_MAX 64                  /* of one step; the next step follows at once, after a check of `stop` */
#define GRACE_NS   UINT64_C(500000000) /* to store the abort key after a failed join */

void member_set(struct ctl_member *m, const char *name, unsigned shards)
{
	m->name = name;
	ctl_member_set_name(m, name);
	atomic_store_explicit(&m->shards, shards, memory_order_relaxed);
}

int group_create(struct group *g, const struct ctl_config *config, const struct url *url, int store_fd)
{
	size_t world = (size_t)url->world;
	memset(g, 0, sizeof *g);
	g->config = *config;
	g->url = *url;
	g->store_fd = store_fd;
	snprintf(g->name, sizeof g->name, "%s", config->name);
	snprintf(g->group, sizeof g->group, "%s", config->group ? config->group : "default");
	url_text(url, g->store);
	g->config.name = g->name;
	g->config.group = g->group;
	g->config.init_method = NULL;
	g->is_refused = config->refused != NULL;
	if (g->is_refused)
		g->refused = *config->refused;
	g->config.refused = NULL;
	g->hash = hash64(g->group, strlen(g->group));
	g->key_auto = KEY_AUTO_NONE;
	g->store_next = TIME_NEVER;
	g->unanswered_at = TIME_NEVER;
	g->introduced_by = TIME_NEVER;
	g->leave_deadline = TIME_NEVER;
	g->lease_until = TIME_NEVER;
	g->evict_at = TIME_NEVER;
	if (!config->lease_ns)
		g->config.lease_ns = FAR_LEASE_NS;
	/* Nobody but rank 0 ends a lease in the store that it hosts. */
	if (url->dynamic && !group_hosts_store(g) && config->lease)
		g->lease_ns = g->config.lease_ns;
	g->members = calloc(world, sizeof *g->members);
	g->peers = calloc(world, sizeof *g->peers);
	if (!g->members || !g->peers) {
		group_destroy(g);
		return -ENOMEM;
	}
	for (int r = 0; r < url->world; r++) {
		/* A free slot of a dynamic group has a shard: a call that races with the end of a member selects it. */
		g->members[r] = (struct ctl_member){.name = "", .rank = r, .shards = url->dynamic};
		g->peers[r] = (struct peer){.group = g, .rank = r};
	}
	g->rejoining = url->dynamic; /* no member waits for another */
	member_set(&g->members[url->rank], g->name, config->shards);
	g->members[url->rank].incarnation = config->incarnation;
	g->members[url->rank].message_bytes_max = config->message_bytes_max;
	for (unsigned i = 0; i < config->ports_n; i++) {
		g->ports[i] = (struct group_port){.group = g, .index = i, .next = TIME_NEVER};
		transport_migration_callback(config->ports[i], session_migrated, &g->ports[i]);
	}
	return 0;
}

void group_close(struct group *g)
{
	store_client_destroy(g->client);
	g->client = NULL;
	store_server_destroy(g->server);
	g->server = NULL;
	key_auto_end(&g->key_auto);
	host_watch_end(g);
	g->store_next = TIME_NEVER;
}

void group_destroy(struct group *g)
{
	group_close(g);
	session_free(g);
	store_copy_free(&g->copy);
	for (int r = 0; g->peers && g->members && r < g->url.world; r++) {
		route_free(&g->peers[r]);
		free(g->peers[r].info);
		free(g->peers[r].name);
	}
	auth_erase(&g->key, sizeof g->key);
	auth_erase(&g->config.key, sizeof g->config.key);
	free(g->members);
	free(g->peers);
	g->members = NULL;
	g->peers = NULL;
}

enum ctl_state group_state(const struct group *g)
{
	if (g->away)
		return CTL_READY;
	switch (g->phase) {
	case PHASE_READY:
		return CTL_READY;
	case PHASE_DRAIN:
	case PHASE_BYE:
	case PHASE_LATE:
	case PHASE_CLOSE:
		return CTL_LEAVING;
	case PHASE_LEFT:
		return CTL_LEFT;
	case PHASE_FAILED:
		return CTL_FAILED;
	default:
		return CTL_JOINING;
	}
}

/* `done` of the abort key. If another member's failure is stored already, a lost connection of this one is most likely
 * its consequence: that failure becomes the result. */
static void abort_stored(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	g->notifying = false;
	g->busy = true;
	if (result || reply->status != STORE_DIFFERS || g->phase != PHASE_FAILING)
		return;
	if (g->err.status == FAR_UNREACHABLE || g->err.status == FAR_PEER_LOST)
		group_abort_read(g, reply);
}

void group_abort_read(struct group *g, const struct store_msg *reply)
{
	if (reply->value_len < 2 || reply->value[0] == FAR_OK || reply->value[0] >= FAR_STATUS_COUNT)
		err_set(&g->err, FAR_PROTOCOL, "the store at %s holds a malformed \"abort\"", g->store);
	else
		err_set(&g->err, (enum far_status)reply->value[0], "%.*s (reported by another member)",
			(int)reply->value_len - 1, (const char *)reply->value + 1);
}

/* The first failure is kept: CAS against a missing key. */
static void abort_publish(struct group *g)
{
	uint8_t value[1 + FAR_ERR_TEXT_MAX];
	size_t len = strlen(g->err.text);
	value[0] = (uint8_t)g->err.status;
	memcpy(value + 1, g->err.text, len);
	g->notifying = true;
	group_submit(g, store_request(STORE_CAS, value, 1 + len), "abort", -1, g->grace, abort_stored, g);
}

void group_fail(struct group *g, bool publish, enum far_status status, const char *format, ...)
{
	va_list args;
	if (!group_joining(g))
		return;
	va_start(args, format);
	err_setv(&g->err, status, format, args);
	va_end(args);
	snprintf(g->err.origin, sizeof g->err.origin, "%s", g->name);
	g->phase = PHASE_FAILING;
	g->busy = true;
	g->grace = time_after(g->now, GRACE_NS);
	/* A running group does not end because a member failed to rejoin it. */
	publish &= !g->rejoining;
	if (publish && g->client && store_client_connection(g->client) == STORE_CONNECTED)
		abort_publish(g);
}

void group_submit(struct group *g, struct store_msg request, const char *what, int rank, uint64_t deadline,
		  store_done_fn *done, void *user)
{
	char key[FAR_STORE_KEY_MAX + 1];
	int len = rank < 0 ? snprintf(key, sizeof key, "%s/%s", g->group, what)
			   : snprintf(key, sizeof key, "%s/%s/%d", g->group, what, rank);
	request.key = (const uint8_t *)key;
	request.key_len = (size_t)len;
	int rc = g->client ? store_client_submit(g->client, &request, g->now, deadline, done, user) : -ENOTCONN;
	g->busy = true;
	if (rc == 0)
		return;
	g->notifying = false;
	if (rc == -ENOTCONN)
		g->store_lost = true;
	else
		group_fail(g, false, FAR_RESOURCE, "a request to the store at %s failed: %s", g->store, strerror(-rc));
}

void group_request(struct group *g, enum store_op op, const char *what, int rank, uint64_t deadline,
		   store_done_fn *done, void *user)
{
	group_submit(g, store_request(op, NULL, 0), what, rank, deadline, done, user);
}

void group_ignore_reply(void *user, int result, const struct store_msg *reply)
{
	(void)result;
	(void)reply;
	((struct group *)user)->busy = true;
}

static void failing_step(struct group *g)
{
	if (g->away) {
		lease_join_failed(g);
		return;
	}
	bool lost = !g->client || store_client_connection(g->client) == STORE_LOST;
	bool waits = (g->notifying && !lost) || (g->server && store_server_clients(g->server));
	/* A worker without ports keeps its store until all other members have read the reason, within `grace`. */
	if (g->is_refused && g->server && !g->url.dynamic)
		waits |= store_server_gone(g->server) + 1 < (uint64_t)g->url.world;
	if (waits && g->now < g->grace)
		return;
	group_close(g);
	g->phase = PHASE_FAILED;
}

/* Logs that the store cannot accept connections. A join fails by that (join.c); later it only keeps members from
 * rejoining. */
static void warn_accepting(struct group *g)
{
	int error = store_server_accept_error(g->server);
	if (error && !g->accept_warned && g->phase >= PHASE_READY)
		log_line(FAR_LOG_ERROR,
			 "worker \"%s\" (rank 0): the store at %s cannot accept connections: %s; a member that is "
			 "started "
			 "again cannot come back meanwhile (`ulimit -n`, LimitNOFILE=)",
			 g->name, g->store, strerror(-error));
	g->accept_warned = error != 0;
}

static uint64_t store_step(struct group *g)
{
	uint64_t next = TIME_NEVER, at;
	if (g->server) {
		next = store_server_step(g->server, g->now, &g->busy);
		warn_accepting(g);
	}
	if (g->client) {
		at = store_client_step(g->client, g->now, &g->busy);
		next = at < next ? at : next;
		if (store_client_connection(g->client) == STORE_LOST && !g->store_lost) {
			g->store_lost = true;
			group_report(g, NULL, "the store is lost", store_client_why(g->client));
			g->busy = true;
		}
	}
	return next;
}

static uint64_t pass(struct group *g)
{
	uint64_t next = store_step(g), at;
	host_watch_step(g);
	at = session_step(g);
	next = at < next ? at : next;
	at = lease_step(g);
	next = at < next ? at : next;
	at = incarnation_evict(g);
	next = at < next ? at : next;
	if (g->phase == PHASE_START)
		return next; /* away, and not joining yet */
	if (group_joining(g)) {
		join_step(g);
		at = g->phase == PHASE_CONNECT && g->diagnose_at < g->init_deadline ? g->diagnose_at : g->init_deadline;
		at = g->introduced_by < at ? g->introduced_by : at;
		at = g->report_at < at ? g->report_at : at;
	} else if (g->phase == PHASE_FAILING) {
		failing_step(g);
		at = g->phase == PHASE_FAILING ? g->grace : TIME_NEVER;
	} else {
		if (g->phase == PHASE_READY && leave_due(g))
			leave_begin(g);
		at = leave_step(g);
	}
	return at < next ? at : next;
}

uint64_t group_step(struct group *g, uint64_t now)
{
	g->now = now;
	if (g->phase == PHASE_START && !g->away)
		join_start(g);
	uint64_t key_at = key_auto_step(&g->key_auto, &g->config.key.key, now);
	for (int i = 0; i < PASSES_MAX; i++) {
		enum group_phase before = g->phase;
		g->busy = false;
		uint64_t next = pass(g);
		if (!g->busy && g->phase == before)
			return key_at < next ? key_at : next;
	}
	return now;
}
