/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A cache of strings on two servers. One server dies and is started again without its keys; the client puts a key again
 * when it misses it. Main thread of each worker; handlers run on shard threads.
 *
 *	farcall run -n 3 --max-restarts 1 -- ./cache
 */
#include "args.h"

#include <farcall/farcall.h>
#include <unistd.h>

#define SERVERS 2
#define KEYS    1000
#define SLOTS   4096 /* of a server's table; more than it is given keys */

/* ---- servers: a table by open addressing, which the shard thread alone uses ---- */

static struct {
	char key[24], value[24];
} table[SLOTS];

static size_t slot_of(const char *key)
{
	uint32_t hash = 2166136261u;
	for (const char *c = key; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619u;
	size_t i = hash % SLOTS;
	while (table[i].key[0] && strcmp(table[i].key, key) != 0)
		i = (i + 1) % SLOTS;
	return i;
}

FAR_HANDLER(put)
{
	size_t i = slot_of(args[0].u.s.data);
	snprintf(table[i].key, sizeof table[i].key, "%s", (const char *)args[0].u.s.data);
	snprintf(table[i].value, sizeof table[i].value, "%s", (const char *)args[1].u.s.data);
	return far_return_none(req);
}

/* None: the key is not here. */
FAR_HANDLER(get)
{
	size_t i = slot_of(args[0].u.s.data);
	return table[i].key[0] ? far_return_str(req, table[i].value) : far_return_none(req);
}

FAR_HANDLER(die)
{
	_exit(3);
}

static const struct far_function functions[] = {
	{"cache::put(str key, str value) -> none", FAR_KIND_INLINE, put, NULL, 0},
	{"cache::get(str key) -> Any", FAR_KIND_INLINE, get, NULL, 0},
	{"cache::die() -> none", FAR_KIND_INLINE, die, NULL, 0},
};

/* ---- the client, worker0 ---- */

static const char *server_of(int key)
{
	return key % SERVERS ? "worker2" : "worker1";
}

static void key_text(int key, char text[24])
{
	snprintf(text, 24, "user:%d", key);
}

static enum far_status put_key(struct far_agent *agent, int key, struct far_err *err)
{
	char name[24], value[24];
	key_text(key, name);
	snprintf(value, sizeof value, "value %d", key);
	return far_rpc_sync(agent, server_of(key), "cache::put", FAR_ARGS(name, value), NULL, NULL, err);
}

/* Reads all keys, and puts those that are missing. Sets the number of hits. */
static enum far_status read_all(struct far_agent *agent, int *hits, struct far_err *err)
{
	*hits = 0;
	for (int key = 0; key < KEYS; key++) {
		char name[24];
		struct far_val value;
		key_text(key, name);
		if (far_rpc_sync(agent, server_of(key), "cache::get", FAR_ARGS(name), NULL, &value, err))
			return err->status;
		bool hit = value.type != FAR_TYPE_NONE;
		far_val_fini(&value);
		*hits += hit;
		if (!hit && put_key(agent, key, err))
			return err->status;
	}
	return FAR_OK;
}

/* Calls end with PEER_LOST until the next process of the worker has joined. */
static enum far_status await_restart(struct far_agent *agent, const char *worker, struct far_err *err)
{
	while (far_rpc_sync(agent, worker, "cache::get", FAR_ARGS(""), NULL, NULL, err)) {
		if (err->status != FAR_PEER_LOST)
			return err->status;
		usleep(10000);
	}
	return FAR_OK;
}

static enum far_status client(struct far_agent *agent, struct far_err *err)
{
	int hits;
	for (int round = 0; round < 4; round++) {
		if (round == 2) {
			if (far_rpc_sync(agent, "worker1", "cache::die", FAR_NOARGS, NULL, NULL, err) != FAR_PEER_LOST)
				return err->status;
			printf("worker1 dies: %s, executed %s\n", far_status_name(err->status),
			       far_executed_name(err->executed));
			if (await_restart(agent, "worker1", err))
				return err->status;
		}
		if (read_all(agent, &hits, err))
			return err->status;
		printf("%d hits of %d%s\n", hits, KEYS, round == 2 ? ", after its restart" : "");
	}
	return FAR_OK;
}

int main(int argc, char **argv)
{
	struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof *functions};
	struct far_agent *agent;
	struct far_err err = {0};
	args_read(argc, argv, "farcall run -n 3 --max-restarts 1 -- ", "A cache, and a server that dies.", NULL, 0);
	if (far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	if (far_world_size(agent) != 1 + SERVERS) {
		fprintf(stderr, "cache: it needs three workers: farcall run -n 3 --max-restarts 1 -- ./cache\n");
		return 2;
	}
	bool failed = far_self(agent).worker == 0 ? client(agent, &err) : far_serve(agent, 0, &err);
	if (failed)
		far_err_print(stderr, &err);
	return far_shutdown(agent, 0, &err) || failed;
}
