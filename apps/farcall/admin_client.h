/* SPDX-License-Identifier: BSD-3-Clause */
/** Requests to the admin sockets of this user's workers on this host (control/admin.h), and fields of their answers.
 * Main thread. */
#ifndef FARCALL_ADMIN_CLIENT_H
#define FARCALL_ADMIN_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#define ADMIN_WORKERS_MAX 1024u
#define ADMIN_ANSWER_NS   UINT64_C(1500000000) /* a worker that has not answered by then is stuck */
#define ADMIN_ANSWER_MAX  ((size_t)16 << 20)

/** A worker's socket, and what it answered last. */
struct admin_worker {
	struct sockaddr_un at;
	char *text;    /* the answer with a NUL; NULL: none */
	char why[128]; /* then: why */
	bool gone;     /* no process listens there */
	/* of the request under way */
	int fd;
	char *in;
	size_t len, cap;
};

struct admin_workers {
	struct admin_worker *of;
	unsigned n;
	char dir[sizeof((struct sockaddr_un *)0)->sun_path]; /* the runtime directory */
};

/** Finds the sockets. 0, or −1 with a message on stderr that begins with `name`. */
int admin_find(struct admin_workers *w, const char *name);
/** Sends a request, without its newline, to all at once and reads the answers, for ADMIN_ANSWER_NS at most. Sockets
 * without a process are marked `gone`. */
void admin_request(struct admin_workers *w, const char *request);
void admin_free(struct admin_workers *w);

/** First member `name` of a JSON object in `text`: its number, or its string in out[0, cap). Texts of this version's
 * workers only. False: there is none. */
bool admin_number(const char *text, const char *name, uint64_t *out);
bool admin_string(const char *text, const char *name, char *out, size_t cap);

#endif
