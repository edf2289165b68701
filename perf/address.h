/* SPDX-License-Identifier: BSD-3-Clause */
/** HOST:PORT of a command line. Main thread of each process. */
#ifndef PERF_ADDRESS_H
#define PERF_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define ADDRESS_HOST_MAX 254 /* the longest DNS name is 253 */
#define ADDRESS_TEXT_MAX 320 /* bytes of an error text with its NUL, and of an init_method */

struct address {
	char host[ADDRESS_HOST_MAX]; /* without brackets */
	uint16_t port;
};

/** Reads "host:port" or "[v6]:port". `zero`: port 0 is fine. 0, or -EINVAL with the mistake and the remedy in `text`.
 */
int address_parse(const char *s, bool zero, struct address *out, char text[ADDRESS_TEXT_MAX]);

/** The init_method that leads there. */
void address_url(const struct address *a, char url[ADDRESS_TEXT_MAX]);

/**
 * Listens there, and puts the port into `a` when it was 0. Only loopback unless `any`. The descriptor; or -1, with the
 * mistake and the remedy in `text`.
 */
int address_listen(struct address *a, bool any, char text[ADDRESS_TEXT_MAX]);

#endif
