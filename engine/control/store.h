/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The store: a key/value server on rank 0's control thread, and its clients, one on each member's control thread. Both
 * are stepped and never block. store_wire.h defines the frames. Control thread.
 */
#ifndef FAR_CONTROL_STORE_H
#define FAR_CONTROL_STORE_H

#include "base/clock.h"
#include "control/net.h"
#include "control/store_copy.h"
#include "control/store_proof.h"
#include "control/store_stream.h"
#include "control/store_wire.h"

/* ---- server ---- */

struct store_server;

/** Why a client was dropped. */
enum store_drop {
	STORE_DROP_CLOSED,    /* it closed, or its connection broke: the ordinary end */
	STORE_DROP_MALFORMED, /* not a frame, a reply, or a request before LOGIN */
	STORE_DROP_VERSION,
	STORE_DROP_LENGTH,          /* key or value out of range */
	STORE_DROP_REQUESTS,        /* more pending WAITs than STORE_REQUESTS_MAX, or the most of FAR_STORE_WAITS_MAX */
	STORE_DROP_BACKLOG,         /* does not read its replies: FAR_STORE_OUT_BYTES, _ALL, FAR_STORE_STALLED_NS */
	STORE_DROP_CLIENTS,         /* more than FAR_STORE_CLIENTS_MAX members, or others */
	STORE_DROP_UNAUTHENTICATED, /* no LOGIN in FAR_STORE_LOGIN_NS, or the oldest of FAR_STORE_UNAUTHENTICATED_MAX */
	STORE_DROP_DENIED,          /* its proof of the key is wrong */
	STORE_DROP_SHUT,            /* not admitted when store_server_shut() was called */
	STORE_DROP_SILENT,          /* did not answer a PING while another client requested a key that it holds */
	STORE_DROP_LEASE,           /* has not renewed the lease of its holds */
	STORE_DROP_COUNT
};

/** Creates a server for the connections of `listener`, a handle of `net` that it takes over; −1: only the local client.
 * NULL: no memory. */
struct store_server *store_server_create(struct ctl_net *net, int listener);
/** Sets the key that clients have to prove; NULL (the default): security=none. Copied; `random` outlives the server. */
void store_server_set_key(struct store_server *s, const struct auth_key *key, const struct random_source *random);
/** Sets the clock by which renewals are stamped after they were read: the process may have stood still since the step
 * began. `clock` outlives the server. NULL (the default): they have the time of the step. */
void store_server_set_clock(struct store_server *s, const struct clock_source *clock);
void store_server_destroy(struct store_server *s);
/** Has requests for keys of the application wait until members of the same group have reported what a former store had
 * (store_backup.c). Before the first step, of a dynamic group whose leases last `lease_ns`. */
void store_server_rebuild(struct store_server *s, uint64_t now, uint64_t lease_ns);
/** Reserves keys for what the members of a group, ranks [0, world), write about themselves, beyond FAR_STORE_KEYS_MAX.
 */
void store_server_reserve(struct store_server *s, const char *group, int world);
/** Does all that is ready; sets `*busy` if there was anything. Returns the absolute time of the next call at the
 * latest. */
uint64_t store_server_step(struct store_server *s, uint64_t now, bool *busy);
/** Accepts no clients any more: closes the listener and drops connections that are not admitted. From then on only the
 * local client's watches report deleted keys: in a leaving group every client would receive the end of every other. */
void store_server_shut(struct store_server *s);
/** Remote connections, those that are not admitted included. */
unsigned store_server_clients(const struct store_server *s);
/** Admitted clients whose connections have ended, since the start. */
uint64_t store_server_gone(const struct store_server *s);
/** True if a remote client holds a key, as members do. */
bool store_server_held(const struct store_server *s);
/** -errno of the last accept(), which is retried; 0: no error. */
int store_server_accept_error(const struct store_server *s);
/** Bytes in the send buffers of remote clients; at most FAR_STORE_OUT_BYTES_ALL. */
size_t store_server_out_bytes(const struct store_server *s);
/** Clients dropped for this reason. */
uint64_t store_server_drops(const struct store_server *s, enum store_drop reason);

/** The byte stream of the client in this process; results as of send and recv of struct ctl_net. */
long store_server_local_send(struct store_server *s, const void *data, size_t len);
long store_server_local_recv(struct store_server *s, void *data, size_t len);

/* ---- client ---- */

struct store_client;

/** Identity and key of a client. */
struct store_login {
	struct store_identity who;
	const struct random_source *random;
	/**
	 * Returns the key, which may differ from the last call's: 0; -ENOKEY: there is none yet; another -errno ends
	 * the client. Called by store_client_step() on a challenge of the server. NULL: security=none.
	 */
	int (*key)(void *ctx, struct auth_key *out);
	void *ctx;
	uint64_t lease_ns;       /* of the client's holds, which it renews; 0: they last as long as its connection */
	struct store_copy *copy; /* that it holds as the store's backup; NULL: it is none. Outlives the client */
	bool patient;            /* a missing or wrong key is retried, since rank 0 may not have made it yet */
};

/** CONNECTING → CONNECTED → LOST, or CONNECTING → LOST. */
enum store_connection {
	STORE_CONNECTING, /* attempts repeat until one succeeds or fails for good */
	STORE_CONNECTED,
	STORE_LOST /* final; store_client_error() has the reason */
};

/**
 * A request has ended: result 0 with the reply (borrowed), -ETIMEDOUT, or the error of the lost connection. For a
 * watch, called once for each reply; the watch ends with its deadline, the connection, or a status other than OK and
 * MISSING. Called by store_client_step() only; may submit, must not destroy the client.
 */
typedef void store_done_fn(void *user, int result, const struct store_msg *reply);

/** Creates a client that connects at its first step. Takes the stream over, on failure too; NULL (no memory) is
 * accepted. NULL: no memory. */
struct store_client *store_client_create(struct store_stream *stream);
/** Sets identity and key before the first step; by default the client is no member and has no key. Copied; `random` and
 * `ctx` outlive the client. */
void store_client_login(struct store_client *c, const struct store_login *login);
/** Closes the connection; outstanding requests end without a callback. */
void store_client_destroy(struct store_client *c);
/** As store_server_step(). */
uint64_t store_client_step(struct store_client *c, uint64_t now, bool *busy);
enum store_connection store_client_connection(const struct store_client *c);
/** True from CONNECTED on, when LOST, too: requests may have been sent. */
bool store_client_was_connected(const struct store_client *c);
/** The last error of the connection, -errno, or 0. -EKEYREJECTED: the keys of both ends differ; -ENOKEY: this end has
 * none; -EKEYREVOKED: the server has none. */
int store_client_error(const struct store_client *c);
/** Why the store does not answer, with the remedy, if the stream knows more than the error; else "". Valid until the
 * next step. */
const char *store_client_why(const struct store_client *c);
/** When the last acknowledged renewal of the lease was sent; 0: none was acknowledged in this connection. */
uint64_t store_client_kept(const struct store_client *c);
/**
 * When the last renewal was sent that has arrived at the store's host, without a reply of its process: that process is
 * stopped or hangs, and reads the renewal before it ends the lease, if the lease was not over when this was seen. 0:
 * none.
 */
uint64_t store_client_arrived(const struct store_client *c);
/** In a store that has leases of its own: how long this client may serve after a renewal; 0: as long as the lease. */
uint64_t store_client_own_lease(const struct store_client *c);
/** Likewise: since when the lease is over and its keys are not held anew; 0: it is not. */
uint64_t store_client_lease_lost(const struct store_client *c);
/** When the last attempt began that has shown that there is no store: its host refuses connections, its file is not
 * there. 0: none. */
uint64_t store_client_refused(const struct store_client *c);
/** Sends the client's copy, which the store has requested by its reply to REPORT. */
void store_client_send_copy(struct store_client *c);
/**
 * Sends a request, with id and timeout filled in, that ends by the absolute time `deadline`. 0, or -errno and no
 * callback: -EINVAL, -EMSGSIZE (limits of key and value), -ENOBUFS (STORE_REQUESTS_MAX outstanding), -ENOTCONN (lost),
 * -ENOMEM.
 */
int store_client_submit(struct store_client *c, const struct store_msg *request, uint64_t now, uint64_t deadline,
			store_done_fn *done, void *user);

#endif
