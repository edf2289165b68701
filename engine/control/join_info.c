/* SPDX-License-Identifier: BSD-3-Clause */
/* The infos of a join: publishes this worker's, checks and keeps those of the members. Control thread. */
#include "base/hash.h"
#include "control/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Every member checks, so that both owners of a name fail with this reason, in any order. */
static bool names_unique(struct group *g)
{
	uint32_t slots = 4;
	while (slots < 2 * (uint32_t)g->url.world)
		slots *= 2;
	uint16_t *by_name = calloc(slots, sizeof *by_name); /* rank + 1 */
	int a = 0, b = 0;
	for (; by_name && b < g->url.world; b++) {
		uint32_t i = (uint32_t)hash64(g->members[b].name, strlen(g->members[b].name)) & (slots - 1);
		for (; (a = by_name[i]); i = (i + 1) & (slots - 1))
			if (strcmp(g->members[a - 1].name, g->members[b].name) == 0)
				break;
		if (a)
			break;
		by_name[i] = (uint16_t)(b + 1);
	}
	if (!by_name)
		group_fail(g, true, FAR_RESOURCE, "no memory for the table of members");
	else if (b < g->url.world)
		group_fail(g, true, FAR_NOT_UNIQUE, "RPC worker name \"%s\" is not unique: ranks %d and %d share it",
			   g->members[b].name, a - 1, b);
	free(by_name);
	return group_joining(g);
}

void join_gathered(struct group *g)
{
	if (!g->url.dynamic && !names_unique(g))
		return;
	/* All members decide by the same infos, hence alike. */
	if (g->shards_max * g->shards_all > FAR_SESSIONS_EAGER_MAX)
		g->lazy = true;
	/* A rejoin waits for no other member. */
	g->eager_rejoin = g->rejoining && !g->lazy && !g->url.dynamic;
	g->lazy |= g->rejoining;
	g->phase = PHASE_CONNECT;
	if (!g->url.dynamic) {
		incarnation_watch_claims(g, true);
		incarnation_watch_infos(g);
	}
	session_begin(g);
	if (g->away)
		lease_gathered(g);
	if (g->url.dynamic)
		dynamic_introduce(g);
}

int join_info_decode(const struct group *g, int rank, const uint8_t *value, size_t value_len, struct info *out)
{
	if (g->config.key.kind != KEY_NONE && !info_is_sealed(value, value_len, &g->key, rank))
		return -EKEYREJECTED;
	return info_decode(value, value_len, out);
}

int join_info_store(struct peer *p, const struct info *info, const uint8_t *value, size_t value_len)
{
	struct group *g = p->group;
	struct ctl_member *m = &g->members[p->rank];
	uint8_t *copy = malloc(value_len);
	char *name = p->name && strcmp(p->name, info->name) == 0 ? p->name : strdup(info->name);
	if (!copy || !name) {
		free(copy);
		if (name != p->name)
			free(name);
		return -ENOMEM;
	}
	memcpy(copy, value, value_len);
	/* A name that other threads read in place stays: in a static group it never changes. */
	if (name != p->name || m->shards != info->shards)
		member_set(m, name, info->shards);
	free(p->info);
	if (name != p->name)
		free(p->name);
	p->info = copy;
	p->name = name;
	p->bytes = (uint16_t)value_len;
	atomic_store_explicit(&m->incarnation, info->incarnation, memory_order_relaxed);
	atomic_store_explicit(&m->message_bytes_max, info->message_bytes_max, memory_order_relaxed);
	session_set_info(p, info);
	host_watch_due(g);
	g->known_n += !p->known;
	p->known = true;
	g->lazy |= info->lazy;
	g->shards_all += info->shards;
	g->shards_max = info->shards > g->shards_max ? info->shards : g->shards_max;
	return 0;
}

void join_info_take(struct peer *p, const uint8_t *value, size_t value_len)
{
	struct group *g = p->group;
	struct info info;
	int rc = join_info_decode(g, p->rank, value, value_len, &info);
	if (rc == -EKEYREJECTED) {
		group_fail(g, true, FAR_DENIED,
			   "the info of rank %d does not prove the group's key: the record in the store at %s was "
			   "changed by another client, or that member runs another version",
			   p->rank, g->store);
		return;
	}
	if (rc || ctl_check_name(info.name, NULL) != FAR_OK) {
		group_fail(g, true, FAR_PROTOCOL,
			   "the info of rank %d is malformed; run one version of the library in all members", p->rank);
		return;
	}
	if (p->rank == g->url.rank && info.incarnation != g->config.incarnation) {
		group_fail(g, true, FAR_NOT_UNIQUE, "rank %d was published by another worker", p->rank);
		return;
	}
	if (join_info_store(p, &info, value, value_len)) {
		group_fail(g, true, FAR_RESOURCE, "no memory for the table of members");
		return;
	}
	if (g->url.dynamic || g->known_n < g->url.world)
		return;
	if (list_used(g) && g->url.rank == 0)
		list_publish(g);
	join_gathered(g);
}

void join_info_read(void *user, int result, const struct store_msg *reply)
{
	struct peer *p = user;
	if (join_reply_counts(p->group, result, reply) && reply->status == STORE_OK && !p->known)
		join_info_take(p, reply->value, reply->value_len);
}

static void info_set(void *user, int result, const struct store_msg *reply)
{
	join_reply_counts(user, result, reply);
}

void join_info_publish(struct group *g)
{
	uint8_t value[FAR_STORE_VALUE_MAX];
	struct info info = {.incarnation = g->config.incarnation,
			    .shards = g->config.shards,
			    .lazy = g->config.lazy,
			    .message_bytes_max = g->config.message_bytes_max};
	memcpy(info.name, g->name, sizeof info.name);
	for (unsigned i = 0; i + g->config.private_n < g->config.ports_n; i++) {
		const struct nic_port *port = g->config.ports[i];
		port->ops->address(port, &info.addrs[info.addrs_n++]);
	}
	size_t len = info_encode(&info, value);
	if (g->config.key.kind != KEY_NONE)
		info_seal(value, len, &g->key, g->url.rank);
	host_watch_listen(g); /* before others can read the info */
	group_submit(g, store_request(g->url.dynamic ? STORE_HOLD : STORE_SET, value, len), "info", g->url.rank,
		     g->init_deadline, info_set, g);
}
