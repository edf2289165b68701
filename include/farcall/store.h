/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The store: keys and values that processes share. A group has one (`init_method`), and a process that belongs to no
 * group can open it by its address. Keys of the application and records of the engine do not collide.
 *
 * With tcp:// the store is in rank 0. In a dynamic group another member has a copy of the application's keys, and calls
 * return after both have a change. When rank 0 dies, calls under way end with PEER_LOST, and later ones wait for the
 * next rank 0, which has the keys from the copy. In a static group the store ends with rank 0. With file:// and etcd://
 * it is in the file, or in etcd (far_init_rpc() has its settings), until its keys are deleted.
 *
 * `timeout_ns` is the time for the whole call; 0: FAR_STORE_TIMEOUT_NS; FAR_FOREVER: no limit. Several threads may use
 * one store, and wait in it, at once. Each call copies its arguments.
 *
 * Errors of each: INVALID (a key or value too long, an argument NULL), TIMEOUT, PEER_LOST (the connection ended during
 * the call; the next call connects again), UNREACHABLE, DENIED (another key), PROTOCOL (no store of this version),
 * RESOURCE (memory, or more than 65536 keys), BUSY (2080 calls of one store are pending), SYSTEM. `executed` of TIMEOUT
 * and PEER_LOST is MAYBE: the store may have made the change.
 */
#ifndef FARCALL_STORE_H
#define FARCALL_STORE_H

#include <farcall/agent.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define FAR_STORE_KEY_BYTES   250                   /* longest key, [1, 250] bytes, without its NUL */
#define FAR_STORE_VALUE_BYTES 4096                  /* longest value, [0, 4096] bytes */
#define FAR_STORE_TIMEOUT_NS  UINT64_C(60000000000) /* default of every `timeout_ns`, in ns */

/** A connection to a store, with a thread of its own. */
struct far_store;
/** A watch, with a connection and a thread of its own. */
struct far_store_watcher;

/** Options of far_store_open(). A zeroed field has its default. */
struct far_store_opts {
	const char *key_file; /* as in struct far_opts; default: FAR_KEY_FILE, FAR_KEY, or the key of this host */
	const char *security; /* as in struct far_opts */
	uint64_t reserved[4]; /* 0 */
};

/** A value that a key has, or had. */
struct far_store_value {
	uint32_t found; /* 1: the key exists; 0: it does not, and `bytes` is 0 */
	uint32_t bytes; /* of `data` */
	uint8_t data[FAR_STORE_VALUE_BYTES];
};

/** A change that a watch reports: the key and its present value. */
struct far_store_change {
	char key[FAR_STORE_KEY_BYTES + 1];
	struct far_store_value value; /* found 0: the key was deleted */
};

/* ---- Any thread but inline and fiber handlers and callbacks; these block the thread ---- */

/**
 * Opens the store at `url`: "tcp://host:port", "file:///path", "etcd://host:port[,host:port]", or "env://"
 * (MASTER_ADDR, MASTER_PORT; NULL: FAR_INIT_METHOD or this). Waits until it answers. `opts` may be NULL. On FAR_OK
 * `*store` is the caller's until far_store_close().
 */
enum far_status far_store_open(const char *url, const struct far_store_opts *opts, uint64_t timeout_ns,
			       struct far_store **store, struct far_err *err);
/** Opens the store of the agent's group, by a connection of its own: it may be closed before or after the agent. */
enum far_status far_store_of(struct far_agent *agent, uint64_t timeout_ns, struct far_store **store,
			     struct far_err *err);
/** Closes the connection; no other thread may be in a call of it. NULL is accepted. Watches stay open. */
void far_store_close(struct far_store *store);

/** Makes `key` hold the value. */
enum far_status far_store_set(struct far_store *store, const char *key, const void *value, size_t bytes,
			      uint64_t timeout_ns, struct far_err *err);
/** Reads the value; a key that does not exist is no error: `value->found` is 0. */
enum far_status far_store_get(struct far_store *store, const char *key, uint64_t timeout_ns,
			      struct far_store_value *value, struct far_err *err);
/** Waits until the key exists, and reads its value. `value` may be NULL. */
enum far_status far_store_wait(struct far_store *store, const char *key, uint64_t timeout_ns,
			       struct far_store_value *value, struct far_err *err);
/**
 * Adds to a decimal number, kept as text, that is 0 while the key does not exist. `*sum` (may be NULL): the sum.
 * INVALID also: the value is no number, or the sum has no room in 64 bits.
 */
enum far_status far_store_add(struct far_store *store, const char *key, int64_t addend, uint64_t timeout_ns,
			      int64_t *sum, struct far_err *err);
/**
 * Sets the value if the key holds `expected`, or if it does not exist and `expected_bytes` is 0; an empty value is
 * never replaced. `*set` (may be NULL): 1 if so, else 0. `held` (may be NULL): what the key holds after the call.
 */
enum far_status far_store_compare_set(struct far_store *store, const char *key, const void *expected,
				      size_t expected_bytes, const void *value, size_t bytes, uint64_t timeout_ns,
				      int *set, struct far_store_value *held, struct far_err *err);
/** Deletes the key. `*deleted` (may be NULL): 1 if it existed, else 0. */
enum far_status far_store_delete(struct far_store *store, const char *key, uint64_t timeout_ns, int *deleted,
				 struct far_err *err);

/**
 * Begins to watch all keys that begin with `prefix` ("": all). The keys that exist are the first changes. On FAR_OK
 * `*watch` is the caller's until far_store_watch_end(). A watch remembers the keys that it has reported.
 */
enum far_status far_store_watch(struct far_store *store, const char *prefix, uint64_t timeout_ns,
				struct far_store_watcher **watch, struct far_err *err);
/**
 * Waits for a change and returns it. Changes come in the order of the last change of each key: of several changes of
 * one key the last one. One thread at a time. TIMEOUT: none came. PEER_LOST: the watch has ended, for good.
 */
enum far_status far_store_watch_next(struct far_store_watcher *watch, uint64_t timeout_ns,
				     struct far_store_change *change, struct far_err *err);
/** Ends a watch. NULL is accepted. */
void far_store_watch_end(struct far_store_watcher *watch);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
