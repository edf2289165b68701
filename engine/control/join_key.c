/* SPDX-License-Identifier: BSD-3-Clause */
/* The group's key in a join: rank 0 makes or sets it, the others find it, all prove it to the store. Control thread. */
#include "control/group.h"

#include <errno.h>
#include <string.h>

/* store_login.key: the present key. */
static int key_provide(void *ctx, struct auth_key *out)
{
	struct group *g = ctx;
	enum far_status status = FAR_OK;
	if (g->config.key.kind == KEY_AUTO && g->url.rank != 0)
		status = key_auto_find(&g->key_location, &g->config.key.key, &g->key_err);
	*out = g->config.key.key;
	return status == FAR_PENDING ? -ENOKEY : status ? -EACCES : 0;
}

static const struct random_source *random_of(const struct group *g)
{
	return g->config.random ? g->config.random : &random_kernel;
}

bool join_key_begin(struct group *g)
{
	enum far_status status = FAR_OK;
	if (g->config.key.kind == KEY_AUTO) {
		g->key_auto.at = g->key_location;
		g->key_auto.again = g->url.dynamic;
		status = key_auto_make(&g->key_auto, random_of(g), &g->config.key.key, &g->key_err);
		/* Without inotify steps check the file: key_auto_step(). */
		if (g->key_auto.watch >= 0)
			g->config.net->ops->watch(g->config.net, g->key_auto.watch);
	}
	if (status)
		group_fail(g, false, status, "%s", g->key_err.text);
	else if (g->config.key.kind != KEY_NONE)
		store_server_set_key(g->server, &g->config.key.key, random_of(g));
	return !status;
}

void join_login(struct group *g)
{
	struct store_login login = {.who = {.rank = g->url.rank, .incarnation = g->config.incarnation},
				    .random = random_of(g),
				    .lease_ns = g->url.scheme == URL_ETCD ? 0 : g->lease_ns, /* it renews its own */
				    .copy = g->lease_ns && g->url.scheme == URL_TCP ? &g->copy : NULL,
				    .key = g->config.key.kind == KEY_NONE || g->url.scheme != URL_TCP ? NULL
												      : key_provide,
				    .ctx = g,
				    .patient = g->config.key.kind == KEY_AUTO};
	memcpy(login.who.group, g->group, sizeof login.who.group);
	memcpy(login.who.name, g->name, sizeof login.who.name);
	store_client_login(g->client, &login);
}

void join_key_proven(struct group *g)
{
	struct group_key *shared = g->config.group_key;
	auth_derive(&g->key, &g->config.key.key, "group", g->group);
	if (shared && g->config.key.kind == KEY_AUTO && !group_key_get(shared))
		group_key_set(shared, &g->config.key.key, g->group);
}

/* `done` of the CAS for the key of a group whose store no member hosts: the first member's key is everybody's. */
static void key_agreed(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	char text[KEY_TEXT_BYTES + 1] = "";
	if (!join_reply_counts(g, result, reply))
		return;
	if (reply->status == STORE_DIFFERS && reply->value_len == KEY_TEXT_BYTES)
		memcpy(text, reply->value, KEY_TEXT_BYTES);
	if (reply->status == STORE_DIFFERS && !key_parse(text, KEY_TEXT_BYTES, &g->config.key.key))
		group_fail(g, true, FAR_PROTOCOL, "the key of group \"%s\" in the store at %s is malformed", g->group,
			   g->store);
	auth_erase(text, sizeof text);
	if (group_joining(g))
		join_claim(g);
}

void join_key_agree(struct group *g)
{
	char text[KEY_TEXT_BYTES + 1];
	auth_random(g->config.key.key.bytes, sizeof g->config.key.key.bytes, random_of(g));
	key_print(&g->config.key.key, text);
	group_submit(g, store_request(STORE_CAS, text, KEY_TEXT_BYTES), "key", -1, g->init_deadline, key_agreed, g);
	auth_erase(text, sizeof text);
}
