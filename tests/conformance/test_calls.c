/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls with plain values, user's functions, arguments of all shapes: B1, B3, B4.
 * Main thread of each process; handlers on shard threads. */
#include "functions.h"

#include <string.h>

CONFORM(B1, add)
{
	double n = rank + 1;
	IS_FULL(CALL(peer(1), "far::add", FAR_ARGS(full(2, 2, n), full(2, 2, n))), 2, 2, 2 * n);
}

CONFORM(B1, scalar_add)
{
	int n = rank + 1;
	IS_FULL(CALL(peer(1), "far::add", FAR_ARGS(full(4, 4, n), n)), 4, 4, 2 * n);
}

CONFORM(B1, async_add)
{
	double n = rank + 1;
	struct far_future *f = ASYNC(peer(1), "far::add", FAR_ARGS(full(2, 2, n), full(2, 2, n)));
	IS_FULL(TAKE(f), 2, 2, 2 * n);
}

CONFORM(B1, nonzero)
{
	static const float x[16] = {[0] = 1, [5] = -2, [6] = 3, [15] = 4};
	static const int64_t want[] = {0, 0, 1, 1, 1, 2, 3, 3};
	struct far_tensor t = far_tensor_2d(FAR_F32, x, 4, 4);
	struct far_val v = CALL(peer(1), "far::nonzero", FAR_ARGS(&t));
	HOLDS(v.type == FAR_TYPE_TENSOR && v.u.t.dtype == FAR_I64 && far_tensor_bytes(&v.u.t) == sizeof want);
	HOLDS(v.u.t.ndim == 2 && v.u.t.shape[0] == 4 && v.u.t.shape[1] == 2);
	HOLDS(memcmp(v.u.t.data, want, sizeof want) == 0);
	far_val_fini(&v);
}

static void multi_rpc(const struct operands *o)
{
	for (int i = 0; i < 20; i++) {
		double n = i + rank + 1;
		o->is(HERE, CALL(peer(1), "c::add", FAR_ARGS(o->make(n), o->make(n))), 2 * n);
	}
}

CONFORM(B1, multi_rpc)
{
	multi_rpc(&dense);
}

CONFORM(X5, multi_rpc_sparse)
{
	multi_rpc(&sparse);
}

/* The caller's own table reports it; nothing is sent. */
CONFORM(B1, op_with_invalid_args)
{
	struct far_counters before, after;
	far_counters_read(agent, &before);
	CALL_FAILS(FAR_BAD_ARGS, peer(1), "far::add", FAR_NOARGS);
	SAYS("far::add");
	CALL_FAILS(FAR_BAD_ARGS, peer(1), "far::add", FAR_ARGS("a", "b"));
	HOLDS(err.executed == FAR_EXECUTED_NO && !err.origin[0]);
	far_counters_read(agent, &after);
	HOLDS(after.calls_sent == before.calls_sent);
}

CONFORM(X5, send_to_rank_sparse)
{
	struct far_to to = {peer_rank(1), -1};
	struct far_val v, one = sparse.make(1);
	struct far_rref *r;
	OK(far_rpc_sync_to(agent, to, "c::add", FAR_ARGS(one, one), NULL, &v, &err));
	sparse.is(HERE, v, 2);
	OK(far_remote_to(agent, to, "c::add", FAR_ARGS(one, one), NULL, &r, &err));
	sparse.is(HERE, FETCH_LAST(r), 2);
	to.worker = WORLD + 1;
	FAILS(FAR_UNKNOWN_WORKER, far_rpc_sync_to(agent, to, "c::add", FAR_ARGS(one, one), NULL, &v, &err));
}

/* ---- B3 ---- */

CONFORM(B3, py_built_in)
{
	int n = rank + 2;
	IS_INT(CALL(peer(1), "far::min", FAR_ARGS(n, n + 1)), n);
	IS_INT(CALL(peer(1), "far::max", FAR_ARGS(n, n + 1)), n + 1);
}

CONFORM(B3, py_user_defined)
{
	int n = rank + 1;
	IS_INT(CALL(peer(1), "c::my_function", FAR_ARGS(n, FAR_KW("b", n + 2), FAR_KW("c", n + 3))), 3 * n + 5);
}

CONFORM(B3, py_class_constructor)
{
	struct far_val v = CALL(peer(1), "c::Box_new", FAR_ARGS(rank + 7));
	HOLDS(v.type == FAR_TYPE_CUSTOM && strcmp(v.u.custom.type->name, "c::Box") == 0);
	HOLDS(((const struct box *)v.u.custom.object)->a == rank + 7);
	far_val_fini(&v);
}

CONFORM(B3, py_class_instance_method)
{
	struct box b = {2};
	IS_INT(CALL(peer(1), "c::Box_add", FAR_ARGS(far_custom(&conform_box, &b), rank)), 2 + rank);
}

CONFORM(B3, py_class_method)
{
	IS_INT(CALL(peer(1), "c::Box_class_add", FAR_ARGS(rank)), 1000 + rank);
}

CONFORM(B3, py_class_static_method)
{
	IS_INT(CALL(peer(1), "c::Box_static_add", FAR_ARGS(rank, 10)), rank + 10);
}

CONFORM(B3, py_multi_async_call)
{
	struct box b = {rank + 1};
	struct far_future *f[2] = {ASYNC(peer(1), "c::Box_static_add", FAR_ARGS(rank + 1, 10)),
				   ASYNC(peer(1), "c::Box_add", FAR_ARGS(far_custom(&conform_box, &b), 10))};
	IS_INT(TAKE(f[0]), rank + 11);
	IS_INT(TAKE(f[1]), rank + 11);
}

CONFORM(B3, py_no_return_result)
{
	IS_NONE(CALL(peer(1), "c::no_result", FAR_NOARGS));
}

/* ---- B4 ---- */

CONFORM(B4, py_tensors)
{
	double n = rank + 1;
	IS_FULL(CALL(peer(1), "c::add", FAR_ARGS(full(n, n, 1), full(n, n, 1))), n, n, 2);
}

CONFORM(B4, py_tensors_multi_async_call)
{
	enum { N = 100 };
	struct far_future *f[N];
	for (int i = 0; i < N; i++)
		f[i] = ASYNC(peer(1), "c::add", FAR_ARGS(full(2, 2, i), full(2, 2, i)));
	for (int i = 0; i < N; i++)
		IS_FULL(TAKE(f[i]), 2, 2, 2 * i);
}

/* Of tensors and numbers, in both directions. */
static void container(const struct operands *o)
{
	double n = rank + 1;
	struct far_val v = CALL(peer(1), "far::identity",
				FAR_ARGS(FAR_DICT(FAR_ENTRY("a", FAR_LIST(o->make(n), rank, "text")),
						  FAR_ENTRY(7, FAR_DICT(FAR_ENTRY(true, o->make(n + 1)))))));
	const struct far_val *list = far_dict_get(&v, "a"), *inner = far_dict_get_int(&v, 7);
	struct far_val copy;
	HOLDS(far_len(&v) == 2 && far_len(list) == 3 && far_len(inner) == 1);
	OK(far_val_dup(far_list_get(list, 0), &copy, &err));
	o->is(HERE, copy, n);
	HOLDS(far_list_get(list, 1)->u.i == rank);
	HOLDS(strcmp(far_list_get(list, 2)->u.s.data, "text") == 0);
	OK(far_val_dup(&inner->u.dict.entries[0].value, &copy, &err));
	o->is(HERE, copy, n + 1);
	far_val_fini(&v);
}

CONFORM(B4, py_tensors_in_container)
{
	struct far_val v = CALL(peer(1), "c::sum_nested",
				FAR_ARGS(FAR_LIST(FAR_LIST(full(2, 2, 1), full(2, 2, 2)), FAR_LIST(full(3, 3, 3)))));
	HOLDS(v.type == FAR_TYPE_FLOAT && v.u.f == 4 + 8 + 27);
	container(&dense);
}

CONFORM(X5, py_sparse_tensors_in_container)
{
	container(&sparse);
}

/* ---- a codec whose bytes are a call: a function by its name and two matrices, run when they are decoded ---- */

struct promise {
	float a[4], b[4], sum[4]; /* `sum`: of one that was decoded */
};

static float plus_of(float a, float b)
{
	return a + b;
}

static const struct {
	char name[8];
	float (*fn)(float a, float b);
} callable[] = {{"plus", plus_of}};

static size_t promise_size(const void *object, void *user)
{
	return sizeof callable[0].name + 2 * sizeof(float[4]);
}

static void promise_encode(const void *object, void *dst, size_t len, void *user)
{
	const struct promise *p = object;
	char *at = dst;
	memcpy(at, callable[0].name, sizeof callable[0].name);
	memcpy(at + sizeof callable[0].name, p->a, sizeof p->a);
	memcpy(at + sizeof callable[0].name + sizeof p->a, p->b, sizeof p->b);
}

static enum far_status promise_decode(const void *src, size_t len, void **object, void *user)
{
	struct promise *p = len == promise_size(NULL, user) ? calloc(1, sizeof *p) : NULL;
	const char *at = src;
	if (!p || strncmp(at, callable[0].name, sizeof callable[0].name) != 0) {
		free(p);
		return FAR_BAD_ARGS;
	}
	memcpy(p->a, at + sizeof callable[0].name, sizeof p->a);
	memcpy(p->b, at + sizeof callable[0].name + sizeof p->a, sizeof p->b);
	for (int i = 0; i < 4; i++)
		p->sum[i] = callable[0].fn(p->a[i], p->b[i]);
	*object = p;
	return FAR_OK;
}

static void promise_destroy(void *object, void *user)
{
	free(object);
}

/* The matrix that decoding has made, and the other argument. */
static HANDLER(run_nested_pickle)
{
	const struct promise *p = args[0].u.custom.object;
	uint64_t shape[] = {2, 2};
	void *data;
	enum far_status status =
		far_tensor_count(&args[1].u.t) == 4 ? far_return_tensor(req, FAR_F32, 2, shape, &data) : FAR_BAD_ARGS;
	for (int i = 0; i < 4 && !status; i++)
		((float *)data)[i] = p->sum[i] + ((const float *)args[1].u.t.data)[i];
	return status;
}

/* Kills: an argument, or an element of a list, whose decoder is not run: the handler gets the encoded bytes. */
CONFORM(B4, py_nested_pickle)
{
	static const struct far_custom_type type = {"c::Promise",   promise_size,    promise_encode,
						    promise_decode, promise_destroy, NULL};
	static const struct far_function fn = {"c::run_nested_pickle(c::Promise p, Tensor t) -> Tensor",
					       FAR_KIND_INLINE, run_nested_pickle, NULL};
	struct promise p = {.a = {1, 1, 1, 1}, .b = {1, 1, 1, 1}};
	OK(far_register_type(agent, &type, &err));
	OK(far_register_function(agent, &fn, &err));
	OK(far_barrier(agent, NULL, 0, 0, &err));
	IS_FULL(CALL(peer(1), "c::run_nested_pickle", FAR_ARGS(far_custom(&type, &p), full(2, 2, 1))), 2, 2, 3);
	/* And deep within other values. */
	struct far_val v =
		CALL(peer(1), "far::identity", FAR_ARGS(FAR_DICT(FAR_ENTRY("x", FAR_LIST(far_custom(&type, &p), 3)))));
	const struct far_val *list = far_dict_get(&v, "x");
	HOLDS(far_len(list) == 2 && far_list_get(list, 0)->type == FAR_TYPE_CUSTOM);
	HOLDS(((const struct promise *)far_list_get(list, 0)->u.custom.object)->sum[3] == 2);
	far_val_fini(&v);
}

/* A codec of the application's own is what encodes and decodes its values, once each way. */
CONFORM(B4, use_rpc_pickler)
{
	struct box b = {1};
	OK(far_barrier(agent, NULL, 0, 0, &err));
	IS_INT(CALL(peer(1), "c::Box_add", FAR_ARGS(far_custom(&conform_box, &b), 1)), 2);
	OK(far_barrier(agent, NULL, 0, 0, &err));
	HOLDS(boxes_encoded == 1 && boxes_decoded == 1); /* one sent, one taken */
	OK(far_barrier(agent, NULL, 0, 0, &err));
	struct far_val v = CALL(peer(1), "c::Box_new", FAR_ARGS(4));
	HOLDS(((const struct box *)v.u.custom.object)->a == 4);
	far_val_fini(&v);
	HOLDS(boxes_decoded == 2);
	CALL_FAILS(FAR_INVALID, peer(1), "c::Box_add", FAR_ARGS(far_custom(&conform_box, NULL), 1));
	SAYS("c::Box cannot be sent");
	HOLDS(err.executed == FAR_EXECUTED_NO);
}

/* Every second row and column of a matrix, and its transpose. */
CONFORM(B4, non_cont_tensors)
{
	float x[16];
	const uint64_t shape[] = {2, 2};
	const int64_t every_second[] = {8, 2}, transposed[] = {1, 4};
	for (int i = 0; i < 16; i++)
		x[i] = (float)i;
	struct far_tensor t = far_tensor_nd(FAR_F32, x, 2, shape, every_second);
	struct far_val v = CALL(peer(1), "far::identity", FAR_ARGS(&t));
	HOLDS(far_tensor_bytes(&v.u.t) == 4 * sizeof(float) && !v.u.t.strides);
	HOLDS(memcmp(v.u.t.data, (float[]){0, 2, 8, 10}, 4 * sizeof(float)) == 0);
	far_val_fini(&v);
	t = far_tensor_nd(FAR_F32, x, 2, shape, transposed);
	v = CALL(peer(1), "far::identity", FAR_ARGS(&t));
	HOLDS(memcmp(v.u.t.data, (float[]){0, 4, 1, 5}, 4 * sizeof(float)) == 0);
	far_val_fini(&v);
}
