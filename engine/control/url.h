/* SPDX-License-Identifier: BSD-3-Clause */
/** Address of the store, rank and world size, from init_method, environment and arguments. Any thread. */
#ifndef FAR_CONTROL_URL_H
#define FAR_CONTROL_URL_H

#include <farcall/status.h>
#include <stdbool.h>
#include <stdint.h>

#define URL_HOST_MAX 256 /* bytes of a host name with its NUL: the longest DNS name is 253 */

#define URL_PATH_MAX 512 /* bytes of a path with its NUL */
#define URL_TEXT_MAX (URL_PATH_MAX + 16)

#define RANK_OPEN (-2)

enum url_scheme {
	URL_TCP,  /* rank 0 hosts the store at host:port */
	URL_FILE, /* the store is the file `path` */
	URL_ETCD  /* the store is in etcd, at the endpoints `path` */
};

struct url {
	enum url_scheme scheme;
	char host[URL_HOST_MAX]; /* name or numeric address, without brackets */
	char path[URL_PATH_MAX]; /* absolute; endpoints: host:port[,host:port…] */
	uint16_t port;
	int rank;     /* [0, world); RANK_OPEN: any free one of a dynamic group */
	int world;    /* [1, FAR_WORLD_MAX]; of a dynamic group 0: url_bound() sets the bound */
	bool dynamic; /* members come and go */
};

/**
 * Parses `init_method` (NULL: "env://") and takes missing parts from the environment: MASTER_ADDR, MASTER_PORT, RANK,
 * WORLD_SIZE, or what a launcher sets in their place (launcher.h). `rank` FAR_RANK_ENV and `world` FAR_WORLD_ENV: not
 * given as argument. A world size of "dynamic" or FAR_WORLD_DYNAMIC: a dynamic group, whose members need no rank.
 * Error: INVALID with the part and the remedy.
 */
enum far_status url_parse(const char *init_method, int rank, int world, struct url *out, struct far_err *err);
/** Sets the most members of a dynamic group and checks the rank against it. */
enum far_status url_bound(struct url *url, unsigned members_max, struct far_err *err);
/** Writes the address for messages: "host:port", "file://path" or "etcd://endpoints". */
void url_text(const struct url *url, char out[URL_TEXT_MAX]);

#endif
