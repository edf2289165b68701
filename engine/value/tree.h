/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory of lists, dicts, references and objects of custom types, besides their payload. Any thread.
 *
 * Arguments of a request use buffers of the request's arena, until the handler has returned. A result has a buffer of
 * its own, the tree, which the outermost value owns. The tree has references to the buffer of the payload and to those
 * of the arena.
 */
#ifndef FAR_VALUE_TREE_H
#define FAR_VALUE_TREE_H

#include "base/rref.h"
#include "memory/buf.h"
#include "value/encoding.h"

/** values_arena.more: allocates from the pool of buffers and adds the buffer to `held`. */
void *tree_more(struct values_arena *arena, size_t bytes);

/**
 * Decodes the customs among values that were read with the arena. `known` returns whether type number `type` may be
 * decoded; NULL: all types of the process. On failure the decoded ones are destroyed again, and `text`
 * (FAR_ERR_TEXT_MAX bytes) has the reason.
 */
enum far_status tree_decode(struct far_val *v, size_t n, bool (*known)(const void *ctx, uint32_t type), const void *ctx,
			    char *text);

/** Destroys decoded customs, then tree_release_memory(). */
void tree_release(struct far_val *v, size_t n, struct values_arena *arena);

/**
 * Reads the value of a private payload in buffer `payload`, a value that needs further memory. On FAR_OK `out` owns a
 * tree, which has a reference to `payload`. Errors: PROTOCOL, RESOURCE, UNSUPPORTED, BAD_ARGS.
 */
enum far_status tree_read(const void *src, size_t size, struct far_buf *payload, struct far_val *out,
			  struct far_err *err);

/** tree_read() with an arena of the caller, for payloads with references. */
enum far_status tree_read_with(const void *src, size_t size, struct far_buf *payload, struct values_arena *arena,
			       struct far_val *out, struct far_err *err);
/** Makes a tree of a value in place, with a reference to `payload` (NULL: none), where its bytes are. The last
 * reference of a tree destroys its customs. NULL: no memory. */
struct far_buf *tree_of(const struct far_val *v, struct far_buf *payload);
/** Destroys the customs of a tree now; later calls and the end of the tree do not. */
void tree_end(struct far_buf *tree);
/** The value of a tree, borrowed. */
struct far_val tree_root(struct far_buf *tree);
/** Frees the buffers of an arena and its references, not the decoded customs. */
void tree_release_memory(struct values_arena *arena);

/** Moves the caller's reference to `r` to the arena. Returns 0, or -ENOMEM: still the caller's. */
int tree_hold(struct values_arena *arena, struct rref_base *r);
int tree_take_address(struct values_arena *arena, const uint8_t *src, struct far_val *v);

/** For memory/buf.c: the end of a buffer of kind BUF_TREE or BUF_RREFS. */
void tree_fini(struct far_buf *tree);

#endif
