/* SPDX-License-Identifier: BSD-3-Clause */
/* Recognises launchers by the variables that they set, and translates these. Any thread. */
#include "control/launcher.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum part { RANK, WORLD, ADDR, PORT, PARTS };

static const char *from_env(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

/* Copies `len` bytes; NULL when they do not fit. */
static const char *copy(char text[LAUNCHER_TEXT_MAX], const char *s, size_t len)
{
	if (len >= LAUNCHER_TEXT_MAX)
		return NULL;
	memcpy(text, s, len);
	text[len] = 0;
	return text;
}

/* First host of a list such as "a[03-07,9]x,b": "a03x". */
static const char *first_host(const char *list, char text[LAUNCHER_TEXT_MAX])
{
	size_t n = 0;
	bool skip = false, range = false; /* what follows the first number of a range; inside brackets */
	for (; list && *list && (range || *list != ','); list++) {
		if (*list == '[' || *list == ']') {
			range = *list == '[';
			skip = false;
			continue;
		}
		skip |= range && (*list == '-' || *list == ',');
		if (!skip && n < LAUNCHER_TEXT_MAX - 1)
			text[n++] = *list;
	}
	text[n] = 0;
	return n ? text : NULL;
}

/* A step: the batch script itself has a rank, too, and is no worker. */
static const char *slurm(enum part part, char text[LAUNCHER_TEXT_MAX])
{
	const char *hosts = from_env("SLURM_STEP_NODELIST");
	if (!hosts)
		return NULL;
	switch (part) {
	case RANK:
		return from_env("SLURM_PROCID");
	case WORLD:
		return from_env("SLURM_STEP_NUM_TASKS");
	case ADDR:
		return first_host(hosts, text);
	default:
		return NULL;
	}
}

static const char *open_mpi(enum part part, char text[LAUNCHER_TEXT_MAX])
{
	const char *world = from_env("OMPI_COMM_WORLD_SIZE"), *here = from_env("OMPI_COMM_WORLD_LOCAL_SIZE");
	(void)text;
	switch (part) {
	case RANK:
		return from_env("OMPI_COMM_WORLD_RANK");
	case WORLD:
		return world;
	case ADDR: /* of no host but this one */
		return world && here && strcmp(world, here) == 0 ? "127.0.0.1" : NULL;
	default:
		return NULL;
	}
}

static const char *pmix(enum part part, char text[LAUNCHER_TEXT_MAX])
{
	(void)text;
	return part == RANK ? from_env("PMIX_RANK") : NULL;
}

static const char *paddle(enum part part, char text[LAUNCHER_TEXT_MAX])
{
	const char *endpoint = from_env("PADDLE_MASTER_ENDPOINT");
	if (!endpoint)
		endpoint = from_env("PADDLE_MASTER");
	const char *colon = endpoint ? strrchr(endpoint, ':') : NULL;
	switch (part) {
	case RANK:
		return from_env("PADDLE_TRAINER_ID");
	case WORLD:
		return from_env("PADDLE_TRAINERS_NUM");
	case ADDR:
		return colon ? copy(text, endpoint, (size_t)(colon - endpoint)) : NULL;
	case PORT:
		return colon ? colon + 1 : NULL;
	default:
		return NULL;
	}
}

static const char *kubernetes(enum part part, char text[LAUNCHER_TEXT_MAX])
{
	(void)text;
	return part == RANK ? from_env("JOB_COMPLETION_INDEX") : NULL;
}

/* The first one that has a rank. Slurm starts steps with PMIx, too, and Kubernetes mpirun: who knows more comes first.
 */
static const struct launcher {
	const char *name;
	const char *(*part)(enum part part, char text[LAUNCHER_TEXT_MAX]);
} launchers[] = {
	{"Paddle", paddle}, {"Open MPI", open_mpi}, {"Slurm", slurm}, {"PMIx", pmix}, {"Kubernetes", kubernetes}};

static const struct launcher *find(void)
{
	char text[LAUNCHER_TEXT_MAX];
	if (from_env("RANK"))
		return NULL;
	for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
		if (launchers[i].part(RANK, text))
			return &launchers[i];
	return NULL;
}

const char *launcher_name(void)
{
	const struct launcher *l = find();
	return l ? l->name : from_env("RANK") && from_env("TORCHELASTIC_RUN_ID") ? "torchrun" : NULL;
}

/* Unless its rendezvous has a port of its own, torchrun hosts a store of torch at MASTER_PORT, and sets this. */
static bool torch_has_port(void)
{
	const char *agent_store = from_env("TORCHELASTIC_USE_AGENT_STORE");
	return from_env("RANK") && agent_store && strcmp(agent_store, "True") == 0;
}

/* The port after `port`, before it for the last one; what is no port is left as it is. */
static const char *port_beside(const char *port, char text[LAUNCHER_TEXT_MAX])
{
	char *end;
	unsigned long n = strtoul(port, &end, 10);
	if (*end || n == 0 || n > UINT16_MAX)
		return port;
	snprintf(text, LAUNCHER_TEXT_MAX, "%lu", n == UINT16_MAX ? n - 1 : n + 1);
	return text;
}

const char *launcher_env(const char *name, char text[LAUNCHER_TEXT_MAX])
{
	static const char *const names[PARTS] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
	const char *value = from_env(name);
	const struct launcher *l = value ? NULL : find();
	if (value && strcmp(name, names[PORT]) == 0 && torch_has_port())
		return port_beside(value, text);
	for (unsigned i = 0; l && !value && i < PARTS; i++)
		if (strcmp(names[i], name) == 0)
			value = l->part((enum part)i, text);
	return l && !value && strcmp(name, names[PORT]) == 0 ? LAUNCHER_PORT : value;
}
