/* SPDX-License-Identifier: BSD-3-Clause */
/** What every worker offers to the others: the functions of the reference's tests, in C.
 * Handlers: shard threads, fibers and threads of the agent. */
#include "functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sums of whatever the tests compute with ---- */

static enum far_status add_tensors(struct far_val *out, const struct far_tensor *a, const struct far_tensor *b)
{
	size_t n = far_tensor_count(a);
	if (a->dtype != FAR_F32 || b->dtype != FAR_F32 || n != far_tensor_count(b))
		return FAR_BAD_ARGS;
	float *data = malloc(n * sizeof *data + 1);
	if (!data)
		return FAR_RESOURCE;
	for (size_t i = 0; i < n; i++)
		data[i] = ((const float *)a->data)[i] + ((const float *)b->data)[i];
	*out = far_tensor_val(a);
	out->u.t.data = data;
	return FAR_OK;
}

/* A sparse one is a list of places, values, shape; the places of both must be the same. `items` is memory for 3. */
static enum far_status add_sparse(struct far_val *out, const struct far_val *a, const struct far_val *b,
				  struct far_val *items)
{
	const struct far_tensor *p = &far_list_get(a, 0)->u.t, *q = &far_list_get(b, 0)->u.t;
	for (size_t i = 0; i < 3; i++)
		if (far_list_get(a, i)->type != FAR_TYPE_TENSOR || far_list_get(b, i)->type != FAR_TYPE_TENSOR)
			return FAR_BAD_ARGS;
	if (far_tensor_bytes(p) != far_tensor_bytes(q) || memcmp(p->data, q->data, far_tensor_bytes(p)) != 0)
		return FAR_BAD_ARGS;
	memcpy(items, a->u.list.items, 3 * sizeof *items);
	enum far_status status = add_tensors(&items[1], &far_list_get(a, 1)->u.t, &far_list_get(b, 1)->u.t);
	if (!status)
		*out = far_list(items, 3);
	return status;
}

enum far_status sum_of(struct sum *s, const struct far_val *a, const struct far_val *b)
{
	struct far_val *out = &s->value;
	*s = (struct sum){0};
	if (a->type == FAR_TYPE_INT && b->type == FAR_TYPE_INT) {
		*out = far_int(a->u.i + b->u.i);
		return FAR_OK;
	}
	if (a->type == FAR_TYPE_TENSOR && b->type == FAR_TYPE_TENSOR)
		return add_tensors(out, &a->u.t, &b->u.t);
	if (far_len(a) == 3 && far_len(b) == 3 && a->type == FAR_TYPE_LIST && b->type == FAR_TYPE_LIST)
		return add_sparse(out, a, b, s->items);
	return FAR_BAD_ARGS;
}

void sum_fini(struct sum *s)
{
	if (s->value.type == FAR_TYPE_TENSOR)
		free(s->value.u.t.data);
	else if (s->value.type == FAR_TYPE_LIST)
		free(s->items[1].u.t.data);
}

enum far_status answer_sum(struct far_req *req, const struct far_val *a, const struct far_val *b)
{
	struct sum s;
	if (sum_of(&s, a, b))
		return far_fail(req, FAR_BAD_ARGS, 0, "a %s and a %s have no sum", far_type_name(a->type),
				far_type_name(b->type));
	enum far_status status = far_return(req, &s.value);
	sum_fini(&s);
	return status;
}

HANDLER(add)
{
	return answer_sum(req, &args[0], &args[1]);
}

/* a + b + c */
HANDLER(my_function)
{
	struct sum ab;
	if (sum_of(&ab, &args[0], &args[1]))
		return far_fail(req, FAR_BAD_ARGS, 0, "no sum of these");
	enum far_status status = answer_sum(req, &ab.value, &args[2]);
	sum_fini(&ab);
	return status;
}

/* The sum of all: of a list of lists of tensors, say. */
HANDLER(sum_nested)
{
	double sum = 0;
	for (size_t i = 0; i < far_len(&args[0]); i++) {
		const struct far_val *inner = far_list_get(&args[0], i);
		for (size_t k = 0; k < far_len(inner); k++) {
			const struct far_tensor *t = &far_list_get(inner, k)->u.t;
			for (size_t e = 0; e < far_tensor_count(t); e++)
				sum += ((const float *)t->data)[e];
		}
	}
	struct far_val v = far_float(sum);
	return far_return(req, &v);
}

HANDLER(no_result)
{
	return far_return(req, NULL);
}

HANDLER(raise_error)
{
	return far_fail(req, FAR_REMOTE, 17, "%s", (const char *)args[0].u.s.data);
}

enum far_status functions_park(uint64_t ns)
{
	struct far_future *never;
	if (far_future_create(&never, NULL))
		return FAR_RESOURCE;
	enum far_status status = far_future_wait(never, ns, NULL, NULL);
	far_future_free(never);
	return status == FAR_PENDING ? FAR_OK : status;
}

/* Parks for `ms`, then returns the sum. */
HANDLER(slow_add)
{
	enum far_status status = functions_park((uint64_t)args[2].u.i * FAR_MS);
	return status ? status : answer_sum(req, &args[0], &args[1]);
}

/* ---- who calls, and what it left here ---- */

static struct far_future *_Atomic set_by_caller;

struct far_future *functions_wait_for_value(void)
{
	struct far_future *f = atomic_load(&set_by_caller), *made;
	if (f)
		return f;
	if (far_future_create(&made, NULL))
		return NULL;
	if (!atomic_compare_exchange_strong(&set_by_caller, &f, made)) {
		far_future_free(made);
		return f;
	}
	return made;
}

/* The worker that runs it. */
HANDLER(where)
{
	struct far_val v = far_int(functions_rank(req));
	return far_return(req, &v);
}

/* The caller's rank, which it says as well, is what the worker's body waits for. */
HANDLER(set_value)
{
	if (far_req_from(req).worker != args[0].u.i)
		return far_fail(req, FAR_REMOTE, 0, "worker %lld is called %d here", (long long)args[0].u.i,
				far_req_from(req).worker);
	struct far_future *f = functions_wait_for_value();
	return f && far_future_set_value(f, &args[0], NULL) == FAR_OK ? far_return(req, NULL) : FAR_REMOTE;
}

static _Atomic int64_t counted;

HANDLER(count)
{
	struct far_val v = far_int(atomic_fetch_add(&counted, args[0].u.i) + args[0].u.i);
	return far_return(req, &v);
}

void functions_count(void)
{
	atomic_fetch_add(&counted, 1);
}

int64_t functions_counted(void)
{
	return atomic_load(&counted);
}

/* ---- an object of a class that travels ---- */

_Atomic int boxes_encoded, boxes_decoded;

static size_t box_size(const void *object, void *user)
{
	return object ? sizeof(struct box) : SIZE_MAX;
}

static void box_encode(const void *object, void *dst, size_t len, void *user)
{
	memcpy(dst, object, len);
	atomic_fetch_add(&boxes_encoded, 1);
}

static enum far_status box_decode(const void *src, size_t len, void **object, void *user)
{
	struct box *b = len == sizeof *b ? malloc(sizeof *b) : NULL;
	if (!b)
		return FAR_BAD_ARGS;
	memcpy(b, src, len);
	atomic_fetch_add(&boxes_decoded, 1);
	*object = b;
	return FAR_OK;
}

static void box_destroy(void *object, void *user)
{
	free(object);
}

const struct far_custom_type conform_box = {"c::Box", box_size, box_encode, box_decode, box_destroy, NULL};

HANDLER(box_make)
{
	struct box b = {args[0].u.i};
	struct far_val v = far_custom(&conform_box, &b);
	return far_return(req, &v);
}

/* An instance method: the object comes first. */
HANDLER(box_add)
{
	const struct box *b = args[0].u.custom.object;
	struct far_val v = far_int(b->a + args[1].u.i);
	return far_return(req, &v);
}

/* A method of the class: what all of its objects share is behind the user pointer. */
static const int64_t box_class = 1000;

HANDLER(box_class_add)
{
	struct far_val v = far_int(*(const int64_t *)user + args[0].u.i);
	return far_return(req, &v);
}

const struct far_function conform_functions[] = {
	{"c::add(Any a, Any b) -> Any", FAR_KIND_INLINE, add, NULL},
	{"c::my_function(Any a, Any b, Any c) -> Any", FAR_KIND_INLINE, my_function, NULL},
	{"c::sum_nested(List x) -> float", FAR_KIND_INLINE, sum_nested, NULL},
	{"c::no_result() -> none", FAR_KIND_INLINE, no_result, NULL},
	{"c::raise(str why) -> int", FAR_KIND_INLINE, raise_error, NULL},
	{"c::raise_fiber(str why) -> int", FAR_KIND_FIBER, raise_error, NULL},
	{"c::raise_blocking(str why) -> int", FAR_KIND_BLOCKING, raise_error, NULL},
	{"c::slow_add(Any a, Any b, int ms=40) -> Any", FAR_KIND_FIBER, slow_add, NULL},
	{"c::where() -> int", FAR_KIND_INLINE, where, NULL},
	{"c::set_value(int rank) -> none", FAR_KIND_INLINE, set_value, NULL},
	{"c::count(int by) -> int", FAR_KIND_INLINE, count, NULL},
	{"c::Box_new(int a) -> c::Box", FAR_KIND_INLINE, box_make, NULL},
	{"c::Box_add(c::Box self, int b) -> int", FAR_KIND_INLINE, box_add, NULL},
	{"c::Box_class_add(int b) -> int", FAR_KIND_INLINE, box_class_add, (void *)(uintptr_t)&box_class},
	{"c::Box_static_add(int a, int b) -> int", FAR_KIND_INLINE, add, NULL},
	/* calls in handlers: functions_nested.c */
	{"c::nested_rpc(str to, Any a, Any b) -> Any", FAR_KIND_FIBER, nested_rpc, NULL},
	{"c::nested_rpc_blocking(str to, Any a, Any b) -> Any", FAR_KIND_BLOCKING, nested_rpc, NULL},
	{"c::nested_raise(str to, str why) -> int", FAR_KIND_FIBER, nested_raise, NULL},
	{"c::nested_nothing(str to) -> int", FAR_KIND_FIBER, nested_nothing, NULL},
	{"c::nested_within(str to, int ms, int slow_ms) -> int", FAR_KIND_FIBER, nested_within, NULL},
	{"c::to_here_within(rref r, int ms) -> Any", FAR_KIND_FIBER, to_here_within, NULL},
	{"c::multi_layer(int to, int ttl, int ms) -> none", FAR_KIND_FIBER, multi_layer, NULL},
	{"c::future_in_rpc(str to, Any a, Any b) -> Any", FAR_KIND_FIBER, future_in_rpc, NULL},
	{"c::callback_in_rpc(str to, Any a, Any b) -> Any", FAR_KIND_FIBER, callback_in_rpc, NULL},
	{"c::return_future() -> Any", FAR_KIND_INLINE, return_future, NULL},
	{"c::heavy(Tensor x) -> Tensor", FAR_KIND_BLOCKING, heavy, NULL},
	/* references: functions_rref.c */
	{"c::rref_sum(rref a, rref b) -> Any", FAR_KIND_FIBER, rref_sum, NULL},
	{"c::rref_sum_blocking(rref a, rref b) -> Any", FAR_KIND_BLOCKING, rref_sum, NULL},
	{"c::to_here(rref r) -> Any", FAR_KIND_FIBER, to_here, NULL},
	{"c::local(rref r) -> Any", FAR_KIND_FIBER, local, NULL},
	{"c::confirmed(rref r) -> bool", FAR_KIND_INLINE, confirmed, NULL},
	{"c::is_owner(rref r) -> bool", FAR_KIND_INLINE, is_owner, NULL},
	{"c::nested_remote(str to, Any a, Any b) -> Any", FAR_KIND_FIBER, nested_remote, NULL},
	{"c::nested_rref(str to, Any x, Any a, Any b) -> List", FAR_KIND_FIBER, nested_rref, NULL},
	{"c::remote_there(str to, Any a, Any b) -> rref", FAR_KIND_FIBER, remote_there, NULL},
	{"c::forward_chain(int to, rref r, int ttl) -> Any", FAR_KIND_FIBER, forward_chain, NULL},
	{"c::local_rrefs(int n) -> List", FAR_KIND_FIBER, local_rrefs, NULL},
	{"c::fetch_all(List rrefs) -> int", FAR_KIND_FIBER, fetch_all, NULL},
	{"c::keep_global(rref r) -> none", FAR_KIND_INLINE, keep_global, NULL},
	{"c::clear_global() -> none", FAR_KIND_INLINE, clear_global, NULL},
	/* answered later: functions_async.c */
	{"c::async_add(str to, Any a, Any b) -> Any", FAR_KIND_INLINE, async_add, NULL},
	{"c::async_add_ctor(str to, Any a, Any b, Any c) -> Any", FAR_KIND_INLINE, async_add_ctor, NULL},
	{"c::async_add_chained(str to, Any a, Any b, Any c) -> Any", FAR_KIND_INLINE, async_add_chained, NULL},
	{"c::async_class_add(str to, Any a, Any b, Any c) -> Any", FAR_KIND_INLINE, async_class_add,
	 (void *)(uintptr_t)&box_class},
	{"c::async_static_add(str to, Any a, Any b, Any c) -> Any", FAR_KIND_INLINE, async_static_add, NULL},
	{"c::async_add_nested(str to, Any a, Any b, Any c) -> Any", FAR_KIND_INLINE, async_add_nested, NULL},
	{"c::async_add_multi_chained(str to, int x, int num, int step) -> int", FAR_KIND_INLINE, async_multi_chained,
	 NULL},
	{"c::async_add_multi_fanout(str to, int x, int num, int step) -> List", FAR_KIND_INLINE, async_multi_fanout,
	 NULL},
	{"c::async_raise() -> int", FAR_KIND_INLINE, async_raise, NULL},
	{"c::async_raise_later() -> int", FAR_KIND_INLINE, async_raise_later, NULL},
	{"c::async_no_answer() -> int", FAR_KIND_INLINE, async_no_answer, NULL},
	{"c::async_other_type() -> int", FAR_KIND_INLINE, async_other_type, NULL},
	/* profiled: functions_profile.c */
	{"c::ops(bool forward=false) -> int", FAR_KIND_INLINE, ops, NULL},
	{"c::op_add(Any a, Any b) -> Any", FAR_KIND_INLINE, op_add, NULL},
	{"c::op_sub(Any a, Any b) -> Any", FAR_KIND_INLINE, op_sub, NULL},
	{"c::async_op_add(str to, Any a, Any b) -> Any", FAR_KIND_INLINE, async_op_add, NULL},
	{"c::server_enter() -> int", FAR_KIND_INLINE, server_enter, NULL},
	{"c::server_exit(int profile) -> none", FAR_KIND_INLINE, server_exit, NULL},
	{"c::server_events(int profile) -> List", FAR_KIND_INLINE, server_events, NULL},
	/* workloads: functions_work.c */
	{"c::ps_push(Any gradient, int trainers) -> Any", FAR_KIND_BLOCKING, ps_push, NULL},
	{"c::ps_train(str kind, int rounds) -> int", FAR_KIND_BLOCKING, ps_train, NULL},
	{"c::assorted(int i, str s, float f, int i_kw=2, str s_kw=\"str_kwarg\", float f_kw=0.5) -> List",
	 FAR_KIND_INLINE, assorted, NULL},
};
const size_t conform_functions_n = sizeof conform_functions / sizeof conform_functions[0];
