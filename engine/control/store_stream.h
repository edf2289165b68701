/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Where the frames of a store's client go: a stream of bytes to a server, or a backend in this process that answers
 * frames itself. Stepped; nothing blocks but name resolution, and the file system in store_stream_file(). Control
 * thread.
 */
#ifndef FAR_CONTROL_STORE_STREAM_H
#define FAR_CONTROL_STORE_STREAM_H

#include "control/net.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_server;
struct store_stream;
struct url;

struct store_stream_ops {
	/** Begins an attempt: 0 or -errno. Called when there is none. */
	int (*open)(struct store_stream *s);
	/** Ends the attempt, if there is one. */
	void (*close)(struct store_stream *s);
	/** Results as of send and recv of struct ctl_net. */
	long (*send)(struct store_stream *s, const void *data, size_t len);
	long (*recv)(struct store_stream *s, void *data, size_t len);
	/** As unacknowledged of struct ctl_net. NULL: the stream does not show it. */
	long (*unacknowledged)(struct store_stream *s);
	/** Sets whether room to send ends a wait(). */
	void (*want)(struct store_stream *s, bool write);
	/** Does all that is ready within an attempt, as store_client_step(). */
	uint64_t (*step)(struct store_stream *s, uint64_t now, bool *busy);
	/** Why the store does not answer, with the remedy; "": nothing to add to the error. NULL: as "". */
	const char *(*why)(const struct store_stream *s);
	void (*destroy)(struct store_stream *s);
};

struct store_stream {
	const struct store_stream_ops *ops;
	uint64_t absent_at; /* when the store was last found not to exist; 0: never */
	/* Of a store that has leases of its own; all 0 else. Times are absolute, in ns. */
	uint64_t lease_ns;   /* requested for the client's keys; 0: its default */
	uint64_t own_ns;     /* how long the client may serve after it has sent a renewal */
	uint64_t kept_at;    /* when the last acknowledged renewal was sent; 0: none */
	uint64_t arrived_at; /* when the last one was sent that the store's host has received; 0: none */
	uint64_t lost_at;    /* since when the lease is over and its keys are not held anew; 0: it is not */
};

/** A stream to the server at host:port. NULL: no memory. */
struct store_stream *store_stream_tcp(struct ctl_net *net, const char *host, uint16_t port);
/** A stream to the server in this process, which outlives it. NULL: no memory. */
struct store_stream *store_stream_local(struct store_server *server);
/** A store in the file `path`, shared by all processes that open it (store_file.c). `net` wakes the thread when the
 * file changes. NULL: no memory. */
struct store_stream *store_stream_file(struct ctl_net *net, const char *path);
/** The same on a thread of its own, since the file system may hang (store_thread.c). */
struct store_stream *store_stream_threaded_file(struct ctl_net *net, const char *path);

/** A store in etcd, at "host:port[,host:port…]" (store_etcd.c). NULL: no memory. */
struct store_stream *store_stream_etcd(struct ctl_net *net, const char *endpoints);
/** True if etcd authenticates readers and encrypts connections: a store for secrets. */
bool store_etcd_is_private(void);
/** The stream of a URL. NULL: no memory. */
struct store_stream *store_stream_of(struct ctl_net *net, const struct url *url);

#endif
