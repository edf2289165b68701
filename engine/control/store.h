/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The store: a key/value server in rank 0's control core, and its clients. Both are stepped, never block, and live on
 * one control core each. The frames are in store_wire.h.
 */
#ifndef FAR_CONTROL_STORE_H
#define FAR_CONTROL_STORE_H

#include "base/clock.h"
#include "control/net.h"
#include "control/store_proof.h"
#include "control/store_wire.h"

/* ---- server ---- */

struct store_server;

/** Why a client was dropped. */
enum store_drop {
	STORE_DROP_CLOSED,    /* it closed, or its connection broke: the ordinary end */
	STORE_DROP_MALFORMED, /* not a frame, a reply, or a request before HELLO */
	STORE_DROP_VERSION,
	STORE_DROP_LENGTH,   /* key or value out of range */
	STORE_DROP_REQUESTS, /* more parked waits than STORE_REQUESTS_MAX, or the most of FAR_STORE_WAITS_MAX */
	STORE_DROP_BACKLOG,  /* does not read its replies: FAR_STORE_OUT_BYTES, _ALL, FAR_STORE_STALLED_NS */
	STORE_DROP_CLIENTS,  /* more than FAR_STORE_CLIENTS_MAX */
	STORE_DROP_STRANGER, /* no HELLO in FAR_STORE_HELLO_NS, or the oldest of FAR_STORE_STRANGERS_MAX */
	STORE_DROP_DENIED,   /* its proof of the key is wrong */
	STORE_DROP_SHUT,     /* not greeted when the door was shut */
	STORE_DROP_SILENT,   /* gave no sign of life when somebody else wanted a key that it held */
	STORE_DROP_COUNT
};

/** Serves the connections of `listener`, a handle of `net` that it takes over; −1: only the local client. */
struct store_server *store_server_create(struct ctl_net *net, int listener);
/** Clients prove this key from now on; NULL (the default): security=none. Both are copied; `random` outlives it. */
void store_server_guard(struct store_server *s, const struct auth_key *key, const struct random_source *random);
void store_server_destroy(struct store_server *s);
/** Keeps room in a full table for what the members of a group, ranks [0, world), write about themselves. */
void store_server_reserve(struct store_server *s, const char *group, int world);
/** Does all that is ready; `*busy` becomes true when anything was. Returns when to be called again at the latest. */
uint64_t store_server_step(struct store_server *s, uint64_t now, bool *busy);
/** No new clients from now on: the listener is closed and who has not said HELLO is dropped. That clients go is told to
 * the one in this process only: when a group leaves, each would be told of each. */
void store_server_shut(struct store_server *s);
/** Remote connections, those without a HELLO included. */
unsigned store_server_clients(const struct store_server *s);
/** Clients that were greeted and have gone. */
uint64_t store_server_gone(const struct store_server *s);
/** Does one of them hold a key, as members do. */
bool store_server_held(const struct store_server *s);
/** Why no more are accepted, -errno; 0: they are, as far as is known. Tried again all the time. */
int store_server_accept_error(const struct store_server *s);
/** Bytes that wait for them to read; at most FAR_STORE_OUT_BYTES_ALL. */
size_t store_server_out_bytes(const struct store_server *s);
uint64_t store_server_drops(const struct store_server *s, enum store_drop reason);

/** The byte stream of the client in the same process; as the operations of struct ctl_net. */
long store_server_local_send(struct store_server *s, const void *data, size_t len);
long store_server_local_recv(struct store_server *s, void *data, size_t len);

/* ---- client ---- */

struct store_client;

/** How a client begins. */
struct store_login {
	struct store_who who;
	const struct random_source *random;
	/**
	 * Gives the key, which may have changed since the last time: 0; -ENOKEY, there is none yet; or another -errno,
	 * which ends the client. Asked by store_client_step() when the server has proven to have one. NULL:
	 * security=none.
	 */
	int (*key)(void *ctx, struct auth_key *out);
	void *ctx;
	bool patient; /* a key that is missing, or is not the server's, may come yet: tries again and again */
};

enum store_link {
	STORE_CONNECTING, /* tries again and again until it is destroyed */
	STORE_CONNECTED,
	STORE_LOST /* for good; store_client_error() tells why */
};

/**
 * A request has ended: result 0 with the reply (borrowed), -ETIMEDOUT, or the error that the connection was lost with.
 * Of a watch, once for each reply: it ends with its deadline, the connection, or a status other than OK and MISSING.
 * Called from store_client_step() only; may submit, must not destroy the client.
 */
typedef void store_done_fn(void *user, int result, const struct store_msg *reply);

/** Begins to connect at the first step. `local` (may be NULL) is the server in this process, used instead of `net`. */
struct store_client *store_client_create(struct ctl_net *net, const char *host, uint16_t port,
					 struct store_server *local);
/** Before the first step; without it the client is no member and has no key. Copied; `random` and `ctx` outlive it. */
void store_client_login(struct store_client *c, const struct store_login *login);
/** Closes the connection; outstanding requests end without a callback. */
void store_client_destroy(struct store_client *c);
/** As store_server_step(). */
uint64_t store_client_step(struct store_client *c, uint64_t now, bool *busy);
enum store_link store_client_link(const struct store_client *c);
/** The last error of the connection, -errno, or 0. -EKEYREJECTED: the keys of both ends differ; -ENOKEY: this end has
 * none; -EKEYREVOKED: the server has none. */
int store_client_error(const struct store_client *c);
/**
 * Sends a request (id and timeout are filled in here) that ends by the absolute time `deadline`. 0, or -errno and no
 * callback: -EINVAL, -EMSGSIZE (limits of key and value), -ENOBUFS (STORE_REQUESTS_MAX outstanding), -ENOTCONN (lost),
 * -ENOMEM.
 */
int store_client_submit(struct store_client *c, const struct store_msg *request, uint64_t now, uint64_t deadline,
			store_done_fn *done, void *user);

#endif
