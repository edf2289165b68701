/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall claim`: gives a program a rank that nobody else has, for members that do not know their own, such as the
 * replicas of a container. The store counts who has come; then the program takes this one's place. With tcp:// rank 0
 * hosts it; with file:// and etcd:// rank 0 has joined before anyone is counted, since it begins the group anew.
 * Main thread.
 */
#include "apps/cli/options.h"
#include "base/clock.h"
#include "base/random.h"
#include "commands.h"
#include "control/control.h"
#include "control/key_auto.h"
#include "control/net.h"
#include "control/store.h"
#include "control/url.h"
#include <errno.h>
#include <farcall/agent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME               "farcall claim"
#define EXIT_NOT_FOUND     127
#define EXIT_NOT_STARTABLE 126
#define RETRY_NS           UINT64_C(200000000) /* between looks for a host whose name is not known yet */
#define TIMEOUT_NS         (60 * FAR_SEC)
#define KEY_MAX            (FAR_NAME_MAX + 32)
#define KEY_REMEDY                                                                                                     \
	"run this and rank 0 as one user of this host, with one runtime directory (FAR_RUNTIME_DIR), or give both "    \
	"one "                                                                                                         \
	"key (FAR_KEY_FILE)"

struct claim {
	struct url url;
	uint64_t first, count, world, timeout_ns;
	const char *init_method;
	const char *group;
	char store[URL_TEXT_MAX], why[FAR_ERR_TEXT_MAX];
	struct key_choice key;
	struct key_location key_location; /* of a key that rank 0 makes */
	struct far_err key_err;
	struct ctl_net *net;
	uint64_t deadline;
	bool answered;
	int result; /* of the request */
	enum store_status status;
	int64_t place; /* from 1 */
};

static void answered(void *user, int result, const struct store_msg *reply)
{
	struct claim *c = user;
	c->answered = true;
	c->result = result;
	if (result)
		return;
	c->status = reply->status;
	c->place = reply->number;
}

static int complain(const struct claim *c, const char *what, const char *remedy)
{
	fprintf(stderr, NAME ": the store at %s: %s; %s\n", c->store, what, remedy);
	return 1;
}

/* The key as it is now, for the store's client. */
static int key_give(void *ctx, struct auth_key *out)
{
	struct claim *c = ctx;
	enum far_status status = FAR_OK;
	if (c->key.kind == KEY_AUTO)
		status = key_auto_find(&c->key_location, &c->key.key, &c->key_err);
	*out = c->key.key;
	return status == FAR_PENDING ? -ENOKEY : status ? -EACCES : 0;
}

/* 0 or -errno. */
static int request(struct claim *c, struct store_client *client, struct store_msg m, const char *key)
{
	m.key = (const uint8_t *)key;
	m.key_len = strlen(key);
	int rc = store_client_submit(client, &m, clock_now(&clock_monotonic), c->deadline, answered, c);
	c->answered = false;
	while (rc == 0 && !c->answered) {
		bool busy = false;
		uint64_t next = store_client_step(client, clock_now(&clock_monotonic), &busy);
		if (!busy && !c->answered)
			c->net->ops->wait(c->net, next < c->deadline ? next : c->deadline);
	}
	rc = rc ? rc : c->result;
	return rc == 0 && c->status == STORE_TIMEOUT ? -ETIMEDOUT : rc;
}

static int count(struct claim *c, struct store_client *client)
{
	const struct store_msg wait = {.op = STORE_WAIT}, add = {.op = STORE_ADD, .number = 1};
	char key[KEY_MAX];
	if (c->url.scheme == URL_TCP) {
		snprintf(key, sizeof key, ":claim:%d:%d", (int)c->first, (int)c->count);
		return request(c, client, add, key);
	}
	snprintf(key, sizeof key, "%s/rank/0", c->group);
	int rc = request(c, client, wait, key);
	snprintf(key, sizeof key, "%s/claim/%d:%d", c->group, (int)c->first, (int)c->count);
	return rc ? rc : request(c, client, add, key);
}

/* One connection, until it answers or is lost. 0 or -errno. */
static int try_once(struct claim *c)
{
	struct store_client *client = store_client_create(store_stream_of(c->net, &c->url));
	const struct store_login login = {.who = {.rank = STORE_RANK_NONE},
					  .random = &random_kernel,
					  .key = c->key.kind == KEY_NONE || c->url.scheme != URL_TCP ? NULL : key_give,
					  .ctx = c,
					  .patient = c->key.kind == KEY_AUTO};
	if (!client)
		return -ENOMEM;
	store_client_login(client, &login);
	int rc = count(c, client);
	/* The reason of the failed connection is more useful than the timeout. */
	if (rc == -ETIMEDOUT && store_client_connection(client) == STORE_CONNECTING && store_client_error(client))
		rc = store_client_error(client);
	snprintf(c->why, sizeof c->why, "%s", rc ? store_client_why(client) : "");
	store_client_destroy(client);
	return rc;
}

/* Rank 0 may start later, and its name be known later still. 0 or an exit status after a message. */
static int find_place(struct claim *c)
{
	int rc;
	for (;;) {
		rc = try_once(c);
		uint64_t now = clock_now(&clock_monotonic);
		if (rc != -ENXIO || now >= c->deadline)
			break;
		c->net->ops->wait(c->net, now + RETRY_NS < c->deadline ? now + RETRY_NS : c->deadline);
	}
	if (c->why[0]) {
		fprintf(stderr, NAME ": the store at %s: %s\n", c->store, c->why);
		return 1;
	}
	if (rc == -ETIMEDOUT && c->url.scheme != URL_TCP)
		return complain(c, "rank 0 has not joined", "start it, with the same store and group (FAR_GROUP)");
	if (rc && c->url.scheme == URL_FILE)
		return complain(c, strerror(-rc), "give a file, or a directory, that belongs to this user alone");
	if (rc == -ENXIO)
		return complain(c, "its name did not resolve in time", "correct MASTER_ADDR, or start rank 0 there");
	if (rc == -EHOSTUNREACH) /* also the sockets' error of a name service without an answer */
		return complain(c, "its name is not known now, or no way leads there",
				"start rank 0 there, or correct MASTER_ADDR");
	if (rc == -EACCES && c->key_err.status)
		return complain(c, "its key cannot be read", c->key_err.text);
	if (rc == -ENOKEY && c->key.kind == KEY_AUTO)
		return complain(c, "has a key, which is not found here", KEY_REMEDY);
	if (rc == -EKEYREJECTED)
		return complain(c, "has another key than the one here",
				c->key.kind == KEY_AUTO ? KEY_REMEDY : "give rank 0 and this member the same key file");
	if (rc == -ENOKEY)
		return complain(c, "requires its group's key", "leave --security none out and set FAR_KEY_FILE");
	if (rc == -EKEYREVOKED)
		return complain(c, "has no key (security=none)", "give rank 0 the key, too (FAR_KEY_FILE)");
	if (rc)
		return complain(c, strerror(-rc), "start rank 0 there, or correct MASTER_ADDR and MASTER_PORT");
	if (c->status != STORE_OK)
		return complain(c, "does not count claims", "is it another program's?");
	if (c->place >= 1 && (uint64_t)c->place <= c->count)
		return 0;
	fprintf(stderr,
		NAME ": ranks %d to %d are all claimed: this is number %lld; start %d such members, and the "
		     "whole group again when one has died\n",
		(int)c->first, (int)(c->first + c->count - 1), (long long)c->place, (int)c->count);
	return 1;
}

/* The rule of far_init_rpc(). */
static int check_permitted(struct claim *c)
{
	if (c->key.kind != KEY_AUTO || c->url.scheme != URL_TCP || c->net->ops->loopback(c->net, c->url.host, -1) != 0)
		return 0;
	return complain(
		c, "is beyond loopback, where there is no group key to keep non-members out",
		"give a key to every member (FAR_KEY_FILE; `farcall key` makes one), or pass --security none when "
		"the network is private");
}

static int resolve(struct claim *c)
{
	struct far_err err;
	const char *method = getenv("FAR_INIT_METHOD");
	if (!c->init_method && method && *method)
		c->init_method = method;
	/* The rank is what is looked for: any that fits stands for it. */
	if (url_parse(c->init_method, (int)c->first, c->world ? (int)c->world : FAR_WORLD_ENV, &c->url, &err) !=
	    FAR_OK) {
		fprintf(stderr, NAME ": %s\n", err.text);
		return OPTIONS_EXIT_USAGE;
	}
	url_text(&c->url, c->store);
	if (ctl_check_name(c->group, NULL) != FAR_OK)
		return options_wrong(NAME, "FAR_GROUP is no group's name");
	if (c->first + c->count > (uint64_t)c->url.world)
		return options_wrong(NAME, "ranks %d to %d are not in a group of %d; correct --first and --count",
				     (int)c->first, (int)(c->first + c->count - 1), c->url.world);
	c->net = ctl_net_os_create();
	if (!c->net) {
		fprintf(stderr, NAME ": cannot make sockets: %s\n", strerror(errno));
		return 1;
	}
	if (c->url.scheme == URL_TCP)
		key_location(&c->key_location, c->url.host, c->url.port);
	int status = check_permitted(c);
	c->deadline = clock_now(&clock_monotonic) + c->timeout_ns;
	if (status == 0)
		status = find_place(c);
	c->net->ops->destroy(c->net);
	return status;
}

static void env_int(const char *name, int value)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	setenv(name, text, 1);
}

static int become(const struct claim *c, char **argv)
{
	env_int("RANK", (int)c->first + (int)c->place - 1);
	env_int("WORLD_SIZE", c->url.world);
	if (c->url.scheme == URL_TCP) {
		env_int("MASTER_PORT", c->url.port);
		unsetenv("TORCHELASTIC_USE_AGENT_STORE"); /* that port is ours, not torchrun's */
		setenv("MASTER_ADDR", c->url.host, 1);
	} else {
		setenv("FAR_INIT_METHOD", c->init_method, 1);
	}
	unsetenv("FAR_STORE_FD"); /* rank 0's */
	fflush(NULL);
	execvp(argv[0], argv);
	int error = errno;
	fprintf(stderr, NAME ": cannot start %s: %s\n", argv[0], strerror(error));
	return error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_STARTABLE;
}

int cmd_claim(int argc, char **argv)
{
	static const char *security_words[] = {"default", "none", NULL};
	int security = 0;
	const char *group = getenv("FAR_GROUP");
	struct claim c = {.timeout_ns = TIMEOUT_NS, .group = group && *group ? group : "default"};
	const struct option_spec specs[] = {
		{"first", 0, OPTION_COUNT, &c.first, 1, FAR_WORLD_MAX - 1, "N", "first rank of the range", NULL},
		{"count", 0, OPTION_COUNT, &c.count, 1, FAR_WORLD_MAX - 1, "N", "number of ranks", NULL},
		{"world-size", 0, OPTION_COUNT, &c.world, 2, FAR_WORLD_MAX, "N",
		 "members of the group (default: WORLD_SIZE)", NULL},
		{"init-method", 0, OPTION_TEXT, &c.init_method, 0, 0, "URL",
		 "store of the group: tcp://, file://, etcd://, or env:// (default: FAR_INIT_METHOD, else env://)",
		 NULL},
		{"security", 0, OPTION_CHOICE, &security, 0, 0, "WORD",
		 "none: the group has no key (default: FAR_KEY_FILE or FAR_KEY, else the key that rank 0 makes)",
		 security_words},
		{"timeout", 0, OPTION_DURATION, &c.timeout_ns, FAR_MS, 3600 * FAR_SEC, "TIME",
		 "how long to wait for rank 0 (default 60s)", NULL},
		{.name = ""}};
	const struct option_command command = {
		NAME, "--first N --count N [OPTIONS] -- PROGRAM [ARGS...]",
		"Claims a free rank, for a replica of a container for example, and executes the program with RANK,\n"
		"WORLD_SIZE, and MASTER_ADDR and MASTER_PORT, or FAR_INIT_METHOD, in its environment. The store gives\n"
		"each rank once, in the order of requests; rank 0 itself is started with its rank. Waits for rank 0 "
		"and\n"
		"for its name to resolve.",
		specs};
	int rest;
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (c.first == 0 || c.count == 0)
		return options_wrong(NAME, "--first and --count define the range of ranks to claim; give both");
	if (rest == argc)
		return options_wrong(NAME, "the program is missing; give it behind --, as in: " NAME
					   " --first 1 --count 2 -- ./app");
	struct far_err err;
	if (key_choose(NULL, security == 1 ? "none" : NULL, true, &c.key, &err)) {
		fprintf(stderr, NAME ": %s\n", err.text);
		return 1;
	}
	int status = resolve(&c);
	auth_erase(&c.key.key, sizeof c.key.key);
	return status ? status : become(&c, argv + rest);
}
