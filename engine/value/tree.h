/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Values that hold others, and objects of custom types: the memory beside the payload that they need, from arrival to
 * their end.
 *
 * Arguments of a request live as long as its handler runs, in buffers that the request's arena holds. A result lives as
 * long as its value: in one buffer, the tree, which the outermost value owns. It refers to the buffer of the payload
 * and to those of the arena.
 */
#ifndef FAR_VALUE_TREE_H
#define FAR_VALUE_TREE_H

#include "base/rref.h"
#include "memory/buf.h"
#include "value/encoding.h"

/** `more` of an arena: from the pool of buffers, held by the arena. */
void *tree_more(struct values_arena *arena, size_t bytes);

/**
 * Decodes the customs among values that were read with the arena. `known` says whether a type may be decoded here;
 * NULL: all types of the process. Other than FAR_OK: what was decoded is ended, `text` (of FAR_ERR_TEXT_MAX) says why.
 */
enum far_status tree_decode(struct far_val *v, size_t n, bool (*known)(const void *ctx, uint32_t type), const void *ctx,
			    char *text);

/** Ends decoded customs, and lets go of what the arena holds. */
void tree_release(struct far_val *v, size_t n, struct values_arena *arena);

/**
 * Reads the one value of a private payload that needs more than itself, `payload` being the buffer that it lies in. On
 * FAR_OK `out` owns a tree, which has taken a reference to `payload`. PROTOCOL, RESOURCE, UNSUPPORTED, BAD_ARGS.
 */
enum far_status tree_read(const void *src, size_t size, struct far_buf *payload, struct far_val *out,
			  struct far_err *err);

/** The same with an arena that knows references. */
enum far_status tree_read_with(const void *src, size_t size, struct far_buf *payload, struct values_arena *arena,
			       struct far_val *out, struct far_err *err);
/** A tree whose value is a custom of the caller's, which it ends with its last reference; NULL: no memory. */
struct far_buf *tree_of(const struct far_val *custom);
/** Ends the customs of a tree now, once. */
void tree_end(struct far_buf *tree);
/** The value of a tree, which owns nothing itself. */
struct far_val tree_root(struct far_buf *tree);
/** Lets go of what an arena holds, references included, but not of decoded customs. */
void tree_let_go(struct values_arena *arena);

/** The arena takes the caller's hold on a reference over, to end it with the rest. 0, or -ENOMEM: it has not. */
int tree_hold(struct values_arena *arena, struct rref_base *r);
/** `put_rref` and `rref` for payloads that do not leave the process: the address, and another hold on it. */
void tree_put_address(void *ctx, const struct far_rref *rref, uint8_t *dst);
int tree_take_address(struct values_arena *arena, const uint8_t *src, struct far_val *v);

/** For buf.c: ends what a tree, or a buffer of references, holds. */
void tree_fini(struct far_buf *tree);

#endif
