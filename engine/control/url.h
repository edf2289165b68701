/* SPDX-License-Identifier: BSD-3-Clause */
/** Where the group meets: init_method, the environment and the arguments made one. Anyone. */
#ifndef FAR_CONTROL_URL_H
#define FAR_CONTROL_URL_H

#include <farcall/status.h>
#include <stdint.h>

#define URL_HOST_MAX 256 /* bytes of a host name with its NUL: the longest DNS name is 253 */

struct url {
	char host[URL_HOST_MAX]; /* name or numeric address, without brackets */
	uint16_t port;
	int rank;  /* [0, world) */
	int world; /* [1, FAR_WORLD_MAX] */
};

/**
 * Reads `init_method` (NULL: "env://") and fills in what is left to the environment: MASTER_ADDR, MASTER_PORT, RANK,
 * WORLD_SIZE. `rank` FAR_RANK_ENV and `world` FAR_WORLD_ENV mean "not given here". Errors: INVALID naming the part and
 * the remedy, UNSUPPORTED for a scheme that is known and not there yet.
 */
enum far_status url_parse(const char *init_method, int rank, int world, struct url *out, struct far_err *err);

#endif
