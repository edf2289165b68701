/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What can be called on this worker. Append-only: application threads add under a lock, shards look up without one. An
 * entry is immutable once its index is published (release; the readers' acquire pairs with it).
 */
#ifndef FAR_XCORE_REGISTRY_H
#define FAR_XCORE_REGISTRY_H

#include "base/signature.h"

#include <farcall/agent.h>
#include <pthread.h>
#include <stdatomic.h>

struct function {
	struct signature signature;
	far_fn *fn;
	enum far_kind kind;
	void *user;
	uint32_t index;
};

struct message_handler {
	far_msg_fn *fn;
	enum far_kind kind;
	void *user;
	char name[16]; /* "message 17", for errors */
};

#define REGISTRY_BUCKETS (2 * FAR_FUNCTIONS_MAX) /* open addressing, half full at most */

struct registry {
	_Atomic uint32_t functions_n;
	_Atomic(struct function *) functions[FAR_FUNCTIONS_MAX];
	_Atomic uint32_t by_name[REGISTRY_BUCKETS]; /* index + 1; linear probing from the name's hash */
	_Atomic(struct message_handler *) messages[FAR_MSG_HANDLERS_MAX];
	pthread_mutex_t lock; /* writers */
};

void registry_init(struct registry *r);
void registry_fini(struct registry *r);

enum far_status registry_add(struct registry *r, const struct far_function *f, struct far_err *err);
enum far_status registry_add_message(struct registry *r, const struct far_msg_handler *m, struct far_err *err);

/** By qualified name, by hash, by index; NULL when there is none. Any thread, no lock. */
const struct function *registry_find(const struct registry *r, const char *name);
const struct function *registry_find_hash(const struct registry *r, uint64_t name_hash);

static inline const struct function *registry_at(const struct registry *r, uint32_t index)
{
	return index < FAR_FUNCTIONS_MAX ? atomic_load_explicit(&r->functions[index], memory_order_acquire) : NULL;
}

static inline const struct message_handler *registry_message(const struct registry *r, uint32_t id)
{
	return id < FAR_MSG_HANDLERS_MAX ? atomic_load_explicit(&r->messages[id], memory_order_acquire) : NULL;
}

#endif
