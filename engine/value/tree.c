/* SPDX-License-Identifier: BSD-3-Clause */
/** Trees: values with memory besides their payload. Any thread. */
#include "value/tree.h"

#include "base/error.h"
#include "base/must.h"
#include "base/rref.h"
#include "value/types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdalign.h>

/* Header of each buffer in an arena's list `held`. */
struct held {
	alignas(64) struct far_buf *next;
};

/* Data of a buffer of kind BUF_TREE. */
struct tree {
	struct far_buf *payload; /* a reference; NULL: none */
	struct far_buf *held;    /* the arena's list; NULL: none */
	struct far_val root;     /* its `own` is not used */
};

void *tree_more(struct values_arena *arena, size_t bytes)
{
	struct far_buf *b = buf_alloc(sizeof(struct held) + bytes);
	if (!b)
		return NULL;
	struct held *h = buf_data(b);
	h->next = arena->held;
	arena->held = b;
	return h + 1;
}

static void release_list(struct far_buf *b)
{
	while (b) {
		struct far_buf *next = ((struct held *)buf_data(b))->next;
		buf_unref(b);
		b = next;
	}
}

/* ---- customs ---- */

/* Destroys the decoded customs, those with a type. */
static void destroy_all(struct far_val *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (v[i].type == FAR_TYPE_LIST) {
			destroy_all((struct far_val *)(uintptr_t)v[i].u.list.items, v[i].u.list.n);
		} else if (v[i].type == FAR_TYPE_DICT) {
			destroy_all((struct far_val *)(uintptr_t)v[i].u.dict.entries, 2 * v[i].u.dict.n);
		} else if (v[i].type == FAR_TYPE_CUSTOM && v[i].u.custom.type) {
			const struct far_custom_type *t = v[i].u.custom.type;
			t->destroy(v[i].u.custom.object, t->user);
			v[i].u.custom.type = NULL;
		}
	}
}

/* Parameters of tree_decode(). */
struct decoding {
	bool (*known)(const void *ctx, uint32_t type);
	const void *ctx;
	char *text;
};

static enum far_status decode_one(const struct decoding *d, struct far_val *v)
{
	const struct custom_type *t = types_find(v->u.custom.hash);
	void *object = NULL;
	if (!t || (d->known && !d->known(d->ctx, t->index))) {
		static const char remedy[] = "which is not registered there; register it with far_register_type on "
					     "both sides";
		if (t)
			snprintf(d->text, FAR_ERR_TEXT_MAX, "a value of type %s, %s", t->type.name, remedy);
		else
			snprintf(d->text, FAR_ERR_TEXT_MAX, "a value of a custom type (hash %016" PRIx64 "), %s",
				 v->u.custom.hash, remedy);
		return FAR_UNSUPPORTED;
	}
	enum far_status status = t->type.decode(v->u.custom.object, v->u.custom.len, &object, t->type.user);
	if (status) {
		snprintf(d->text, FAR_ERR_TEXT_MAX, "type %s refused to decode %zu bytes: %s", t->type.name,
			 v->u.custom.len, far_status_text(status));
		return FAR_BAD_ARGS;
	}
	v->u.custom.type = &t->type;
	v->u.custom.object = object;
	return FAR_OK;
}

static enum far_status decode_all(const struct decoding *d, struct far_val *v, size_t n)
{
	enum far_status status = FAR_OK;
	for (size_t i = 0; i < n && !status; i++) {
		if (v[i].type == FAR_TYPE_LIST)
			status = decode_all(d, (struct far_val *)(uintptr_t)v[i].u.list.items, v[i].u.list.n);
		else if (v[i].type == FAR_TYPE_DICT)
			status = decode_all(d, (struct far_val *)(uintptr_t)v[i].u.dict.entries, 2 * v[i].u.dict.n);
		else if (v[i].type == FAR_TYPE_CUSTOM)
			status = decode_one(d, &v[i]);
	}
	return status;
}

enum far_status tree_decode(struct far_val *v, size_t n, bool (*known)(const void *ctx, uint32_t type), const void *ctx,
			    char *text)
{
	struct decoding d = {known, ctx, text};
	enum far_status status = decode_all(&d, v, n);
	if (status)
		destroy_all(v, n);
	return status;
}

void tree_release(struct far_val *v, size_t n, struct values_arena *arena)
{
	destroy_all(v, n);
	tree_release_memory(arena);
}

void tree_release_memory(struct values_arena *arena)
{
	release_list(arena->held);
	arena->held = NULL;
}

/* ---- results ---- */

static enum far_status read_failed(int error, struct far_err *err)
{
	if (error == -ENOMEM)
		return err_set(err, FAR_RESOURCE, "no memory for the items of a value");
	return err_set(err, FAR_PROTOCOL, "the reply is malformed");
}

enum far_status tree_read_with(const void *src, size_t size, struct far_buf *payload, struct values_arena *arena,
			       struct far_val *out, struct far_err *err)
{
	char text[FAR_ERR_TEXT_MAX];
	size_t n = 0;
	int error = values_read(src, size, out, 1, &n, arena);
	struct far_buf *b = error || n != 1 ? NULL : buf_alloc(sizeof(struct tree));
	enum far_status status = FAR_OK;
	if (!b)
		status = read_failed(error || n != 1 ? error : -ENOMEM, err);
	else if ((status = tree_decode(out, 1, NULL, NULL, text)))
		err_set(err, status, "the result holds %s", text);
	if (status) {
		buf_unref(b);
		tree_release_memory(arena);
		*out = far_none();
		return status;
	}
	struct tree *tree = buf_data(b);
	tree->payload = payload;
	tree->held = arena->held;
	tree->root = *out;
	buf_ref(payload);
	b->kind |= BUF_TREE;
	out->own = b;
	return FAR_OK;
}

enum far_status tree_read(const void *src, size_t size, struct far_buf *payload, struct far_val *out,
			  struct far_err *err)
{
	struct values_arena arena = {.more = tree_more};
	return tree_read_with(src, size, payload, &arena, out, err);
}

struct far_buf *tree_of(const struct far_val *v, struct far_buf *payload)
{
	struct far_buf *b = buf_alloc(sizeof(struct tree));
	if (!b)
		return NULL;
	struct tree *tree = buf_data(b);
	tree->payload = payload;
	tree->held = NULL;
	tree->root = *v;
	if (payload)
		buf_ref(payload);
	b->kind |= BUF_TREE;
	return b;
}

void tree_end(struct far_buf *b)
{
	destroy_all(&((struct tree *)buf_data(b))->root, 1);
}

struct far_val tree_root(struct far_buf *b)
{
	return ((const struct tree *)buf_data(b))->root;
}

/* References of an arena: data of a held buffer of kind BUF_RREFS, behind struct held. */
struct references {
	size_t n;
	struct rref_base *at[(((size_t)1 << BUF_CLASS_MIN) - sizeof(struct held)) / sizeof(void *) - 1];
};

static struct references *references_of(struct far_buf *b)
{
	return (struct references *)(void *)((struct held *)buf_data(b) + 1);
}

static void references_fini(struct far_buf *b)
{
	struct references *list = references_of(b);
	for (size_t i = 0; i < list->n; i++)
		rref_unref(list->at[i]);
}

void tree_fini(struct far_buf *b)
{
	if (b->kind & BUF_RREFS) {
		references_fini(b);
		return;
	}
	struct tree *tree = buf_data(b);
	destroy_all(&tree->root, 1);
	release_list(tree->held);
	buf_unref(tree->payload);
}

/* ---- references ---- */

int tree_hold(struct values_arena *arena, struct rref_base *r)
{
	struct far_buf *b = arena->held;
	if (!b || !(b->kind & BUF_RREFS) || references_of(b)->n == sizeof references_of(b)->at / sizeof(void *)) {
		struct references *list = tree_more(arena, sizeof *list);
		if (!list)
			return -ENOMEM;
		list->n = 0;
		b = arena->held;
		b->kind |= BUF_RREFS;
	}
	struct references *list = references_of(b);
	list->at[list->n++] = r;
	return 0;
}

/* Only this process reads such a payload. */
static void tree_put_address(void *ctx, const struct far_rref *rref, uint8_t *dst)
{
	(void)ctx;
	memset(dst, 0, RREF_WIRE_BYTES);
	memcpy(dst, &rref, sizeof rref);
}

int tree_take_address(struct values_arena *arena, const uint8_t *src, struct far_val *v)
{
	memcpy(&v->u.rref, src, sizeof v->u.rref);
	struct rref_base *r = (struct rref_base *)(void *)v->u.rref;
	rref_ref(r);
	int error = tree_hold(arena, r);
	if (error)
		rref_unref(r);
	return error;
}

enum far_status far_val_dup(const struct far_val *v, struct far_val *out, struct far_err *err)
{
	struct values_plan plan;
	struct far_val one = *v;
	size_t n;
	one.kw = NULL;
	size_t size = values_size(&one, 1, &plan, err);
	if (size == SIZE_MAX)
		return err ? err->status : FAR_INVALID;
	struct far_buf *b = buf_alloc(size);
	if (!b)
		return err_set(err, FAR_RESOURCE, "no memory for a copy of %zu bytes", size);
	plan.put_rref = tree_put_address;
	values_write(&one, 1, &plan, buf_data(b));
	struct far_val copy;
	if (values_read(buf_data(b), size, &copy, 1, &n, NULL) == 0) {
		copy.own = b;
		*out = copy;
		return FAR_OK;
	}
	struct values_arena arena = {.more = tree_more, .rref = tree_take_address};
	enum far_status status = tree_read_with(buf_data(b), size, b, &arena, &copy, err);
	buf_unref(b);
	if (!status)
		*out = copy;
	return status;
}
