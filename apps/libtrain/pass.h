/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A pass from roots to leaves. It is begun, learns all edges that will deliver, then runs: at once
 * (far_grads_backward()), or in parts as gradients arrive from other workers. One thread at a time.
 *
 * The pass first counts, for each node that it can reach, the edges that lead to it. A node runs its derivative once
 * all of them have delivered; the gradients that arrive meanwhile are summed in the node's slots. A leaf is the end of
 * such edges: its hooks run, then the sum goes to the far_grads. Leaves run before nodes.
 */
#ifndef FAR_LIBTRAIN_PASS_H
#define FAR_LIBTRAIN_PASS_H

#include "grads.h"

#include <pthread.h>

/* A node or leaf of the pass. */
struct entry {
	const void *key;        /* the node or the leaf */
	struct node *node;      /* NULL: a leaf */
	struct far_var *leaf;   /* NULL: a node */
	struct gradient *slots; /* one for each output */
	uint64_t edges;         /* that lead to it, as far as they are known */
	uint64_t pending;       /* of these: that have not delivered */
	uint32_t next;          /* entry + 1, of leaves that are ready; 0: the last */
	bool open;              /* variables of it are elsewhere that may get a gradient yet */
	bool ready;             /* all have, and it runs next */
	bool run;               /* it has run */
};

#define PASS_FEW       4  /* nodes and leaves */
#define PASS_FEW_TABLE 16 /* a power of two, at least twice as many */

/* The graph keeps nodes and leaves while the pass runs: the caller has the roots. */
struct pass {
	struct far_pool *pool;
	struct far_grads *grads;
	struct far_backward_opts opts;
	/** Takes the sum of a leaf, which may be unset (zero), if `*taken`; else it goes to the far_grads. NULL: none.
	 */
	enum far_status (*leaf)(void *user, struct far_var *leaf, struct gradient *sum, bool *taken,
				struct far_err *err);
	/** May a leaf run before all edges of the graph are known. NULL: no. */
	bool (*early)(void *user, uint32_t entry);
	/** Sends what `leaf` has taken, before a computation delays it. With the lock, which it drops meanwhile. NULL:
	 * nothing to call. */
	enum far_status (*flush)(void *user, struct far_err *err);
	void *user; /* of `leaf` and `flush` */
	/* Held by the caller of each function. pass_run() drops it while a pass that is not light computes: code of
	 * the application may wait. NULL: none. */
	pthread_mutex_t *lock;
	bool ended; /* by another thread, while the lock was dropped */
	bool known; /* all edges to entries are known; false: those that `open` entries do not have */
	bool runs;  /* what becomes ready does run: in pass_early(), and after pass_start() */
	bool started;
	struct entry *entries;
	size_t n, capacity;
	size_t left;     /* entries that have not run */
	uint64_t weight; /* elements of the operators' values, and of what else they cost */
	bool user_code;  /* functions or hooks of the application are in it */
	uint32_t *table; /* entry + 1, by key; 0: free */
	size_t table_capacity;
	uint32_t *ready; /* a stack of nodes */
	size_t ready_n, ready_capacity;
	uint32_t leaves;  /* entry + 1, of leaves that are ready */
	uint64_t delayed; /* weight of what has run since flush() */
	/* Memory for the first ones: a short pass takes none from the pool. */
	struct entry few_entries[PASS_FEW];
	struct gradient few_slots[PASS_FEW]; /* of entries with one output */
	uint32_t few_table[PASS_FEW_TABLE], few_ready[PASS_FEW];
};

/** Errors of roots[0, n): see far_grads_backward(). */
enum far_status pass_check_roots(struct far_var *const *roots, size_t n, struct far_err *err);
/** Begins at a root, whose derivative is one. */
enum far_status pass_root(struct pass *p, const struct far_var *root, struct far_err *err);
/** One more pass_deliver() to `var` will come. */
enum far_status pass_expect(struct pass *p, struct far_var *var, struct far_err *err);
/** Follows the graph from what is new, and counts edges. */
enum far_status pass_discover(struct pass *p, struct far_err *err);
/** What is discovered has little to compute, and runs no code of the application. */
bool pass_is_light(const struct pass *p);
/** The entry of a variable's node or leaf. NULL: the pass has none. */
struct entry *pass_entry(const struct pass *p, const struct far_var *var);
/** Has an entry no edges but the known ones, though those of others may be unknown. */
bool pass_is_closed(const struct pass *p, const struct entry *entry);
/** Runs entries, before others are known, to which no unknown edge can lead. The pass is light. */
enum far_status pass_early(struct pass *p, struct far_err *err);
/** All edges are known: makes entries ready that have all of their gradients. Once. */
enum far_status pass_start(struct pass *p, struct far_err *err);
/** Delivers `g` (none: zero). INVALID: nothing was expected. */
enum far_status pass_deliver(struct pass *p, struct far_var *var, struct gradient *g, struct far_err *err);
static inline bool pass_is_ready(const struct pass *p)
{
	return p->ready_n > 0 || p->leaves > 0;
}
/** Runs what is ready, and what that makes ready. One thread at a time. INVALID: the pass has `ended`. */
enum far_status pass_run(struct pass *p, struct far_err *err);
/** Frees the memory of the pass. */
void pass_end(struct pass *p);

#endif
