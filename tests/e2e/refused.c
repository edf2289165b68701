/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `refused CASE`: makes a request that the library must refuse and prints its answer. Exit status 1 when it refused, 0
 * when it did not. The address of the group comes from the environment. Main thread of each process.
 */
#include <farcall/farcall.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INIT_NS (20 * FAR_SEC) /* a join takes less on a busy machine */

struct refused_case {
	const char *name;
	const char *worker; /* NULL: worker<rank> */
	struct far_opts opts;
	const char *to, *function; /* a call, when not NULL */
};

static const struct refused_case cases[] = {
	{"key", NULL, {.key_file = "/nonexistent/farcall.key"}, NULL, NULL},
	{"patient", NULL, {.init_timeout_ns = 30 * FAR_SEC}, NULL, NULL},
	{"impatient", NULL, {.init_timeout_ns = 3 * FAR_SEC, .nic = "udp"}, NULL, NULL},
	{"nic", NULL, {.nic = "carrier-pigeon"}, NULL, NULL},
	{"security", NULL, {.security = "some"}, NULL, NULL},
	{"shards", NULL, {.shards = 17}, NULL, NULL},
	{"scheme", NULL, {.init_method = "http://127.0.0.1:1"}, NULL, NULL},
	{"any-address", NULL, {.init_method = "tcp://0.0.0.0:29517"}, NULL, NULL},
	{"same-name", "twin", {.nic = NULL}, NULL, NULL},
	{"bad-name", "not a name", {.nic = NULL}, NULL, NULL},
	{"join", NULL, {.nic = NULL}, NULL, NULL},
	{"join-in-vain", NULL, {.init_timeout_ns = 3 * FAR_SEC}, NULL, NULL},
	{"patient-join", NULL, {.init_timeout_ns = 60 * FAR_SEC}, NULL, NULL},
	{"open-join", NULL, {.init_timeout_ns = 60 * FAR_SEC, .security = "none"}, NULL, NULL},
	{"open-twice", NULL, {.security = "none"}, NULL, NULL}, /* joins, leaves, and does so again */
	{"unknown-worker", NULL, {.nic = NULL}, "nobody", "far::identity"},
	{"unknown-function", NULL, {.nic = NULL}, "worker0", "far::no_such"},
	{"bad-arguments", NULL, {.nic = NULL}, "worker0", "far::zeros"},
};

static enum far_status call(const struct refused_case *c, struct far_agent *agent, struct far_err *err)
{
	struct far_err late;
	enum far_status status = FAR_OK;
	if (c->to)
		status = far_rpc_sync(agent, c->to, c->function, FAR_ARGS("text", 1, 2, 3), NULL, NULL, err);
	if (far_shutdown(agent, c->opts.init_timeout_ns ? c->opts.init_timeout_ns : INIT_NS, &late) != FAR_OK) {
		fprintf(stderr, "refused: the shutdown failed: ");
		far_err_print(stderr, &late);
	}
	return status;
}

int main(int argc, char **argv)
{
	const struct refused_case *c = NULL;
	for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
		if (strcmp(cases[i].name, argv[1]) == 0)
			c = &cases[i];
	if (c == NULL) {
		fprintf(stderr, "usage: refused CASE, one of the table in its source\n");
		return 2;
	}
	const char *rank = getenv("RANK");
	char name[32];
	struct far_opts opts = c->opts;
	struct far_agent *agent = NULL;
	struct far_err err;
	snprintf(name, sizeof name, "worker%s", rank ? rank : "");
	if (!opts.init_timeout_ns)
		opts.init_timeout_ns = INIT_NS;
	enum far_status status = FAR_OK;
	int times = strcmp(c->name, "open-twice") == 0 ? 2 : 1;
	for (int i = 0; i < times && status == FAR_OK; i++) {
		status = far_init_rpc(c->worker ? c->worker : name, FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err);
		if (status == FAR_OK)
			status = call(c, agent, &err);
	}
	if (status == FAR_OK)
		return 0;
	far_err_print(stderr, &err);
	return 1;
}
