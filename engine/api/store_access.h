/* SPDX-License-Identifier: BSD-3-Clause */
/** A connection of far_store_*() to a store, and its thread. Application threads; the thread steps the client, under a
 * lock that application threads take to submit a request. */
#ifndef FAR_API_STORE_ACCESS_H
#define FAR_API_STORE_ACCESS_H

#include "control/key_auto.h"
#include "control/store.h"
#include "control/url.h"

#include <farcall/store.h>
#include <pthread.h>

/* A key of the application is "/KEY/" in the store: no record of a group begins with '/', and no key that ends with one
 * is taken for a record of a rank. */
#define STORE_MARK_BYTES 2

/** A connection and its thread. */
struct access {
	struct url url;
	struct key_choice key;
	struct key_location key_location; /* KEY_AUTO */
	struct far_err key_err;           /* why the key cannot be read */
	struct ctl_net *net;
	pthread_t thread;
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t ended; /* a request has ended, or a watch has a change */
	struct store_client *client;
	char why[FAR_ERR_TEXT_MAX]; /* store_client_why() of the last request that failed */
	bool stop;
};

struct far_store {
	struct access access;
};

/** A request of an application thread, on its stack. */
struct request {
	struct access *access;
	bool done;
	int result; /* of store_done_fn */
	enum store_status status;
	int64_t number;
	struct far_store_value *value; /* NULL: not wanted */
};

/** Starts the thread of an access with URL and key. On failure nothing stays but the memory of `a`. */
enum far_status access_start(struct access *a, struct far_err *err);
void access_end(struct access *a);
/** Submits a request and waits for its end. A lost connection is made anew first. */
enum far_status access_request(struct access *a, const struct store_msg *m, uint64_t timeout_ns, struct request *r,
			       struct far_err *err);
/** Waits for the first answer: an empty key of the application, which never exists. */
enum far_status access_check(struct access *a, uint64_t timeout_ns, struct far_err *err);
/** The status of a request that the store did not answer. `connected`: it was sent, or may have been. */
enum far_status access_unanswered(const struct access *a, int result, int error, bool connected, struct far_err *err);

/** Marks a key; -1: too long, or empty where it must not be. */
int store_key_mark(const char *key, bool prefix, char out[FAR_STORE_KEY_MAX + 1]);
void store_value_set(struct far_store_value *v, bool found, const struct store_msg *m);
/** 0: FAR_STORE_TIMEOUT_NS after `now`. */
uint64_t store_deadline(uint64_t now, uint64_t timeout_ns);

#endif
