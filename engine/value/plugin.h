/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a plugin has registered, as the registry sees it, and gates that count who is inside the plugin's code. Any
 * thread; a gate is opened and closed under the lock of api/plugin.c.
 */
#ifndef FAR_VALUE_PLUGIN_H
#define FAR_VALUE_PLUGIN_H

#include <farcall/object.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define GATE_CALL   UINT64_C(1)         /* a call that ends soon: closing waits for it */
#define GATE_LIVE   (UINT64_C(1) << 32) /* a fiber, an object, a value: refuses closing */
#define GATE_CLOSED (UINT64_C(1) << 63)

/** Sum of the GATE_* of those inside. Entering acquires what opening released, closing acquires what leaving did. */
struct gate {
	_Atomic uint64_t word;
};

/** false: the gate is closed. */
static inline bool gate_enter(struct gate *g, uint64_t unit)
{
	uint64_t w = atomic_load_explicit(&g->word, memory_order_relaxed);
	do
		if (w & GATE_CLOSED)
			return false;
	while (!atomic_compare_exchange_weak_explicit(&g->word, &w, w + unit, memory_order_acquire,
						      memory_order_relaxed));
	return true;
}

/** The same for an object, which a call may make while the gate closes. false: closed, and no call is inside. */
static inline bool gate_enter_object(struct gate *g)
{
	uint64_t w = atomic_load_explicit(&g->word, memory_order_relaxed);
	do
		if (w & GATE_CLOSED && w % GATE_LIVE == 0)
			return false;
	while (!atomic_compare_exchange_weak_explicit(&g->word, &w, w + GATE_LIVE, memory_order_acquire,
						      memory_order_relaxed));
	return true;
}

static inline void gate_leave(struct gate *g, uint64_t unit)
{
	atomic_fetch_sub_explicit(&g->word, unit, memory_order_release);
}

/** Number of GATE_LIVE inside. */
static inline uint64_t gate_live(struct gate *g)
{
	return (atomic_load_explicit(&g->word, memory_order_acquire) & ~GATE_CLOSED) / GATE_LIVE;
}

/** True while a GATE_CALL is inside. From false on, nothing enters a closed gate. */
static inline bool gate_called(struct gate *g)
{
	return atomic_load_explicit(&g->word, memory_order_acquire) % GATE_LIVE != 0;
}

static inline void gate_open(struct gate *g)
{
	atomic_fetch_and_explicit(&g->word, ~GATE_CLOSED, memory_order_release);
}

/** Closes the gate to those who enter. false: a GATE_LIVE is inside, and the gate stays open. */
static inline bool gate_close(struct gate *g)
{
	uint64_t w = atomic_load_explicit(&g->word, memory_order_relaxed);
	do
		if (w / GATE_LIVE)
			return false;
	while (!atomic_compare_exchange_weak_explicit(&g->word, &w, w | GATE_CLOSED, memory_order_acquire,
						      memory_order_relaxed));
	return true;
}

/** The owner of registered functions and classes. Not freed before the registry. */
struct plugin {
	struct gate gate;          /* of functions, methods and objects */
	far_fn *run;               /* calls function.code; its `user` is the struct function */
	far_method_fn *run_method; /* calls function.method_code, with the same `user` */
};

/* ---- Custom types of plugins, of the process: plugin_type.c ---- */

/**
 * Takes a plugin's type into use and fills `counted`, the type to be registered in its place, which counts the decoded
 * values. Agents of one process share it. Errors: INVALID (a function is missing, or the type is in use with other
 * functions), RESOURCE.
 */
enum far_status plugin_type_use(const struct far_custom_type *type, struct far_custom_type *counted,
				struct far_err *err);
/** Gives it back. false: this was its last user and values exist, whose number is *values: nothing has changed. */
bool plugin_type_drop(const char *name, uint64_t *values);

#endif
