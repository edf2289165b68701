/* SPDX-License-Identifier: BSD-3-Clause */
/** The type far::Var: a variable on its way between workers. Any thread. */
#ifndef FAR_LIBTRAIN_WIRE_H
#define FAR_LIBTRAIN_WIRE_H

#include "variable.h"

#include <farcall/rpc.h>

/* An object of the type. Reference-counted: a received one may be memory of a variable. */
struct wire {
	_Atomic unsigned refs;
	uint64_t context;        /* id */
	uint64_t id;             /* number that the sender gave it in the context, from 1; 0: no gradient is wanted */
	int32_t rank;            /* of the sender */
	int32_t answer_to;       /* rank that gets it as a result, and nobody else does; WIRE_ANYONE */
	_Atomic unsigned copies; /* of the sender: written to messages, or read here */
	uint64_t forwards;       /* received: wire_forwards() before */
	struct far_tensor t;
	struct far_var *var; /* of the sender; NULL: received */
};

#define WIRE_ANYONE (-1)

extern const struct far_custom_type wire_type;

/** Received objects that this process has sent on, so far. */
uint64_t wire_forwards(void);

/**
 * Received objects are memory of a pool of the process, as the type is one for all its agents. wire_start() makes it
 * and counts; the last wire_stop() returns its memory to the system, once the objects are gone. False: no memory.
 */
bool wire_start(void);
void wire_stop(void);

/** An object for `var`, which it keeps. NULL: no memory. */
struct wire *wire_new(struct far_var *var);
void wire_unref(void *wire);
/** A variable in the memory of a received value. NULL: no memory. */
struct far_var *wire_var(struct far_pool *pool, struct wire *wire, bool requires_grad, struct far_err *err);
/** The object of a value. NULL: not of this type. */
struct wire *wire_of(const struct far_val *v);

#endif
