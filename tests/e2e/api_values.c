/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 4. Main thread of each process; handlers on shard threads. */
/**
 * Values of every kind over real workers. Every worker calls the next one, all at once; each function is one
 * behaviour that users of torch.distributed.rpc rely on and is named for it.
 */
#include "api_calls.h"

#include <math.h>

/* ---- a custom type ---- */

struct polygon {
	size_t n;
	double (*points)[2];
};

static _Atomic int polygons_alive; /* decoded and not ended */

static size_t polygon_size(const void *object, void *user)
{
	const struct polygon *p = object;
	return p->points ? p->n * sizeof p->points[0] : SIZE_MAX;
}

static void polygon_encode(const void *object, void *dst, size_t len, void *user)
{
	const struct polygon *p = object;
	CHECK(len == p->n * sizeof p->points[0]);
	memcpy(dst, p->points, len);
}

/* Three corners at least. */
static enum far_status polygon_decode(const void *src, size_t len, void **object, void *user)
{
	if (len % 16 != 0 || len < 48)
		return FAR_INVALID;
	struct polygon *p = malloc(sizeof *p);
	CHECK(p && (p->points = malloc(len)));
	memcpy(p->points, src, len);
	p->n = len / 16;
	polygons_alive++;
	*object = p;
	return FAR_OK;
}

static void polygon_destroy(void *object, void *user)
{
	struct polygon *p = object;
	polygons_alive--;
	free(p->points);
	free(p);
}

static const struct far_custom_type types[] = {
	{"geo::Polygon", polygon_size, polygon_encode, polygon_decode, polygon_destroy, NULL},
};
/* Its name is known to no worker. */
static const struct far_custom_type unregistered = {"geo::Unregistered", polygon_size,    polygon_encode,
						    polygon_decode,      polygon_destroy, NULL};

/* ---- functions ---- */

static enum far_status echo(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(n == 1);
	return far_return(req, &args[0]);
}

static enum far_status area(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct polygon *p = args[0].u.custom.object;
	double twice = 0;
	CHECK(args[0].type == FAR_TYPE_CUSTOM && strcmp(args[0].u.custom.type->name, "geo::Polygon") == 0);
	for (size_t i = 0; i < p->n; i++) {
		const double *a = p->points[i], *b = p->points[(i + 1) % p->n];
		twice += a[0] * b[1] - b[0] * a[1];
	}
	struct far_val v = far_float(twice / 2);
	return far_return(req, &v);
}

/* The sum of all tensors of f32 in a tree. */
static double sum_of(const struct far_val *v)
{
	double sum = 0;
	for (size_t i = 0; v->type == FAR_TYPE_LIST && i < far_len(v); i++)
		sum += sum_of(far_list_get(v, i));
	for (size_t i = 0; v->type == FAR_TYPE_DICT && i < far_len(v); i++)
		sum += sum_of(&v->u.dict.entries[i].value);
	for (size_t i = 0; v->type == FAR_TYPE_TENSOR && i < far_len(v); i++)
		sum += (double)((const float *)v->u.t.data)[i];
	return sum;
}

static enum far_status sum_all(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_float(sum_of(&args[0]));
	return far_return(req, &v);
}

/* Two tensors of the list given, their sum and difference by name: results are trees, and part of the arguments. */
static enum far_status both(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_tensor *a = &far_list_get(&args[0], 0)->u.t, *b = &far_list_get(&args[0], 1)->u.t;
	float sum[4], difference[4];
	for (int i = 0; i < 4; i++) {
		sum[i] = ((const float *)a->data)[i] + ((const float *)b->data)[i];
		difference[i] = ((const float *)a->data)[i] - ((const float *)b->data)[i];
	}
	struct far_tensor s = far_tensor_1d(FAR_F32, sum, 4), d = far_tensor_1d(FAR_F32, difference, 4);
	struct far_val v = FAR_DICT(FAR_ENTRY("sum", &s), FAR_ENTRY("difference", &d), FAR_ENTRY("of", args[0]));
	return far_return(req, &v);
}

/* Handlers that answer with what they must not. */
static enum far_status wrong_result(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct polygon two = {2, (double[2][2]){{0, 0}, {1, 1}}};
	struct far_val bad = far_custom(&types[0], &two), nan = FAR_DICT(FAR_ENTRY((double)NAN, 1)),
		       v = far_list(&bad, 1);
	return far_return(req, args[0].u.i == 0 ? &v : args[0].u.i == 1 ? &nan : &bad);
}

static const struct far_function functions[] = {
	{"v::echo(Any x) -> Any", FAR_KIND_INLINE, echo, NULL},
	{"v::sum(List|Dict x) -> float", FAR_KIND_INLINE, sum_all, NULL},
	{"v::both(List x) -> Dict", FAR_KIND_FIBER, both, NULL},
	{"v::wrong(int which) -> List|Dict", FAR_KIND_INLINE, wrong_result, NULL},
	{"geo::area(geo::Polygon p) -> float", FAR_KIND_BLOCKING, area, NULL},
};

/* ---- calling ---- */

static void expect_floats(const struct far_val *v, unsigned ndim, const float *want, size_t n)
{
	CHECK(v && v->type == FAR_TYPE_TENSOR && v->u.t.dtype == FAR_F32 && v->u.t.ndim == ndim && !v->u.t.strides);
	CHECK(far_tensor_count(&v->u.t) == n && (n == 0 || memcmp(v->u.t.data, want, n * sizeof *want) == 0));
}

/* ---- calls of operators with plain values ---- */

static void add(void)
{
	float ones[4] = {1, 1, 1, 1}, twos[4] = {2, 2, 2, 2};
	struct far_tensor t = far_tensor_2d(FAR_F32, ones, 2, 2);
	struct far_val out;
	CHECK_STATUS(call("far::add", FAR_ARGS(&t, &t), &out), FAR_OK, &err);
	expect_floats(&out, 2, twos, 4);
	far_val_fini(&out);
	CHECK_STATUS(call("far::add", FAR_ARGS(&t, &t, FAR_KW("alpha", 2.0)), &out), FAR_OK, &err);
	expect_floats(&out, 2, (const float[]){3, 3, 3, 3}, 4);
	far_val_fini(&out);
	CHECK_STATUS(call("far::sub", FAR_ARGS(FAR_KW("b", &t), FAR_KW("alpha", 3), FAR_KW("a", &t)), &out), FAR_OK,
		     &err);
	expect_floats(&out, 2, (const float[]){-2, -2, -2, -2}, 4);
	far_val_fini(&out);
}

static void scalar_add(void)
{
	float ones[3] = {1, 1, 1};
	struct far_tensor t = far_tensor_1d(FAR_F32, ones, 3);
	struct far_val out;
	CHECK_STATUS(call("far::add", FAR_ARGS(&t, rank), &out), FAR_OK, &err);
	float want = 1 + (float)rank;
	expect_floats(&out, 1, (const float[]){want, want, want}, 3);
	far_val_fini(&out);
	CHECK_STATUS(call("far::add", FAR_ARGS(2, 3, FAR_KW("alpha", 2)), &out), FAR_OK, &err);
	CHECK(out.type == FAR_TYPE_INT && out.u.i == 8);
}

static void async_add(void)
{
	float ones[4] = {1, 1, 1, 1};
	struct far_tensor t = far_tensor_1d(FAR_F32, ones, 4);
	struct far_future *f = NULL;
	struct far_val out, same;
	CHECK_STATUS(far_rpc_async(agent, to, "far::add", FAR_ARGS(&t, &t), NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, &out, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, &same, &err), FAR_OK, &err);
	far_future_free(f);
	expect_floats(&out, 1, (const float[]){2, 2, 2, 2}, 4);
	expect_floats(&same, 1, (const float[]){2, 2, 2, 2}, 4);
	far_val_fini(&out);
	far_val_fini(&same);
}

static void nonzero(void)
{
	float x[4] = {0, 1, 2, 0};
	int64_t want[4] = {0, 1, 1, 0};
	struct far_tensor t = far_tensor_2d(FAR_F32, x, 2, 2);
	struct far_val out;
	CHECK_STATUS(call("far::nonzero", FAR_ARGS(&t), &out), FAR_OK, &err);
	CHECK(out.u.t.dtype == FAR_I64 && out.u.t.ndim == 2 && out.u.t.shape[0] == 2 && out.u.t.shape[1] == 2);
	CHECK(memcmp(out.u.t.data, want, sizeof want) == 0);
	far_val_fini(&out);
}

static void multi_rpc(void)
{
	for (int i = 0; i < 20; i++) {
		float x[9], want[9];
		int n = i % 9 + 1;
		for (int k = 0; k < n; k++)
			x[k] = (float)(i + k), want[k] = 2 * x[k];
		struct far_tensor t = far_tensor_1d(FAR_F32, x, (size_t)n);
		struct far_val out;
		CHECK_STATUS(call("far::add", FAR_ARGS(&t, &t), &out), FAR_OK, &err);
		expect_floats(&out, 1, want, (size_t)n);
		far_val_fini(&out);
	}
}

static void op_with_invalid_args(void)
{
	float x[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, x, 2);
	expect_mistake(
		"far::add", FAR_ARGS(&t), FAR_BAD_ARGS, "far::add",
		"fit none of its overloads: far::add(Tensor|Scalar a, Tensor|Scalar b) -> Tensor|Scalar; far::add(");
	expect_mistake("far::add", FAR_ARGS(&t, "text"), FAR_BAD_ARGS, "far::add", "(tensor, string)");
	expect_mistake("far::nonzero", FAR_ARGS(1), FAR_BAD_ARGS, "argument 1 (x) is an int, wanted Tensor",
		       "far::nonzero(Tensor x) -> Tensor");
	expect_mistake("far::mul", FAR_ARGS(&t, &t, FAR_KW("alpha", 2)), FAR_BAD_ARGS, "no parameter 'alpha'",
		       "far::mul(");
}

/* ---- containers, views, custom types ---- */

static void tensors_in_container(void)
{
	float x[4] = {1, 2, 3, 4}, y[4] = {10, 20, 30, 40};
	struct far_tensor a = far_tensor_1d(FAR_F32, x, 4), b = far_tensor_2d(FAR_F32, y, 2, 2);
	struct far_val out, part;
	CHECK_STATUS(
		call("v::sum", FAR_ARGS(FAR_LIST(&a, FAR_DICT(FAR_ENTRY("b", &b), FAR_ENTRY(3, FAR_LIST(&a))))), &out),
		FAR_OK, &err);
	CHECK(out.u.f == 120);
	CHECK_STATUS(call("v::both", FAR_ARGS(FAR_LIST(&a, &b)), &out), FAR_OK, &err);
	expect_floats(far_dict_get(&out, "sum"), 1, (const float[]){11, 22, 33, 44}, 4);
	expect_floats(far_dict_get(&out, "difference"), 1, (const float[]){-9, -18, -27, -36}, 4);
	expect_floats(far_list_get(far_dict_get(&out, "of"), 1), 2, y, 4);
	/* A part outlives the whole when it is copied. */
	CHECK_STATUS(far_val_dup(far_dict_get(&out, "of"), &part, &err), FAR_OK, &err);
	far_val_fini(&out);
	expect_floats(far_list_get(&part, 0), 1, x, 4);
	far_val_fini(&part);
}

static void nested_values(void)
{
	struct far_val out, deep = far_int(7);
	struct far_val level[FAR_DEPTH_MAX];
	for (int i = 0; i < FAR_DEPTH_MAX; i++) {
		level[i] = deep;
		deep = far_list(&level[i], 1);
	}
	CHECK_STATUS(call("v::echo", &deep, 1, &out), FAR_OK, &err);
	const struct far_val *v = &out;
	for (int i = 0; i < FAR_DEPTH_MAX; i++)
		CHECK((v = far_list_get(v, 0)));
	CHECK(v->u.i == 7);
	far_val_fini(&out);
	CHECK_STATUS(
		call("v::echo",
		     FAR_ARGS(FAR_DICT(FAR_ENTRY("b", far_none()), FAR_ENTRY("a", FAR_LIST(1.5, "two", far_bool(true))),
				       FAR_ENTRY(-1, far_bytes("xyz", 3)))),
		     &out),
		FAR_OK, &err);
	CHECK(far_len(&out) == 3 && strcmp(out.u.dict.entries[0].key.u.s.data, "b") == 0);
	CHECK(far_len(far_dict_get(&out, "a")) == 3 && far_list_get(far_dict_get(&out, "a"), 2)->u.b);
	CHECK(memcmp(far_dict_get_int(&out, -1)->u.s.data, "xyz", 3) == 0);
	far_val_fini(&out);
	deep = far_list(&deep, 1);
	expect_mistake("v::echo", &deep, 1, FAR_TOO_LARGE, "argument 1, inside it", "32 deep");
	CHECK_STATUS(call("v::echo", FAR_ARGS(far_list(NULL, 0)), &out), FAR_OK, &err);
	CHECK(out.type == FAR_TYPE_LIST && far_len(&out) == 0);
	far_val_fini(&out);
}

static void many_items(void)
{
	static struct far_val items[FAR_ITEMS_MAX];
	static struct far_dict_entry entries[FAR_DICT_MAX];
	struct far_val out;
	for (size_t i = 0; i < FAR_ITEMS_MAX; i++)
		items[i] = far_int((int64_t)i);
	CHECK_STATUS(call("v::echo", FAR_ARGS(far_list(items, FAR_ITEMS_MAX)), &out), FAR_OK, &err);
	CHECK(far_list_get(&out, FAR_ITEMS_MAX - 1)->u.i == FAR_ITEMS_MAX - 1);
	far_val_fini(&out);
	for (size_t i = 0; i < FAR_DICT_MAX; i++)
		entries[i] = far_entry(far_int((int64_t)i), far_float((double)i));
	CHECK_STATUS(call("v::echo", FAR_ARGS(far_dict(entries, FAR_DICT_MAX)), &out), FAR_OK, &err);
	CHECK(far_dict_get_int(&out, 1000)->u.f == 1000);
	far_val_fini(&out);
}

/* A result is read anew by each wait, and outlives its future and the other readings. */
static void a_tree_is_read_twice(void)
{
	struct far_future *f = NULL;
	struct far_val a, b;
	struct polygon p = {3, (double[3][2]){{0, 0}, {4, 0}, {0, 3}}};
	CHECK_STATUS(far_rpc_async(agent, to, "v::echo", FAR_ARGS(FAR_LIST(1, far_custom(&types[0], &p), "text")), NULL,
				   &f, &err),
		     FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, &a, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, &b, &err), FAR_OK, &err);
	far_future_free(f);
	CHECK(far_list_get(&a, 1)->u.custom.object != far_list_get(&b, 1)->u.custom.object);
	far_val_fini(&a);
	const struct polygon *same = far_list_get(&b, 1)->u.custom.object;
	CHECK(same->n == 3 && same->points[1][0] == 4.0);
	CHECK(strcmp(far_list_get(&b, 2)->u.s.data, "text") == 0);
	far_val_fini(&b);
}

static void non_cont_tensors(void)
{
	float cube[3][3][3], want[6];
	for (int i = 0; i < 27; i++)
		cube[i / 9][i / 3 % 3][i % 3] = (float)i;
	/* cube[:, ::-1, 1][0:3, 0:2] */
	uint64_t shape[2] = {3, 2};
	int64_t strides[2] = {9, -3};
	for (int i = 0; i < 6; i++)
		want[i] = cube[i / 2][2 - i % 2][1];
	struct far_tensor t = far_tensor_nd(FAR_F32, &cube[0][2][1], 2, shape, strides);
	struct far_counters before, after;
	struct far_val out;
	far_counters_read(agent, &before);
	CHECK_STATUS(call("v::echo", FAR_ARGS(&t), &out), FAR_OK, &err);
	far_counters_read(agent, &after);
	CHECK(after.bytes_sent > before.bytes_sent);
	expect_floats(&out, 2, want, 6);
	far_val_fini(&out);
	CHECK_STATUS(call("far::add", FAR_ARGS(&t, &t), &out), FAR_OK, &err);
	for (int i = 0; i < 6; i++)
		want[i] *= 2;
	expect_floats(&out, 2, want, 6);
	far_val_fini(&out);
}

static void halves(void)
{
	static const enum far_dtype dtypes[2] = {FAR_BF16, FAR_F16};
	static const uint16_t ones[2] = {0x3f80, 0x3c00}, twos[2] = {0x4000, 0x4000};
	for (int d = 0; d < 2; d++) {
		struct far_tensor t = far_tensor_1d(dtypes[d], &ones[d], 1);
		struct far_val out;
		CHECK_STATUS(call("far::add", FAR_ARGS(&t, &t), &out), FAR_OK, &err);
		CHECK(out.u.t.dtype == dtypes[d] && *(const uint16_t *)out.u.t.data == twos[d]);
		far_val_fini(&out);
	}
}

static void custom_types(void)
{
	struct polygon p = {4, (double[4][2]){{0, 0}, {2, 0}, {2, 3}, {0, 3}}}, line = {2, p.points}, none = {1, NULL};
	struct far_val out;
	CHECK_STATUS(call("geo::area", FAR_ARGS(far_custom(&types[0], &p)), &out), FAR_OK, &err);
	CHECK(out.u.f == 6);
	CHECK_STATUS(call("v::echo", FAR_ARGS(FAR_DICT(FAR_ENTRY("p", far_custom(&types[0], &p)))), &out), FAR_OK,
		     &err);
	const struct polygon *back = far_dict_get(&out, "p")->u.custom.object;
	CHECK(back->n == 4 && memcmp(back->points, p.points, 64) == 0);
	far_val_fini(&out);
	CHECK_STATUS(call("geo::area", FAR_ARGS(far_custom(&types[0], &line)), &out), FAR_BAD_ARGS, &err);
	CHECK_TEXT(&err, "type geo::Polygon refused to decode 32 bytes");
	CHECK(err.executed == FAR_EXECUTED_NO && strcmp(err.origin, to) == 0);
	expect_mistake("geo::area", FAR_ARGS(far_custom(&types[0], &none)), FAR_INVALID, "geo::Polygon",
		       "cannot be sent");
	expect_mistake("geo::area", FAR_ARGS(far_custom(&unregistered, &p)), FAR_BAD_ARGS,
		       "is a geo::Unregistered, wanted", "geo::area(geo::Polygon p) -> float");
	expect_mistake("v::echo", FAR_ARGS(FAR_LIST(far_custom(&unregistered, &p))), FAR_BAD_ARGS, "geo::Unregistered",
		       "far_register_type");
	expect_mistake("geo::area", FAR_ARGS(1), FAR_BAD_ARGS, "is an int, wanted geo::Polygon", "geo::area(");
	/* What handlers were given has ended. */
	CHECK_STATUS(call("v::wrong", FAR_ARGS(0), &out), FAR_BAD_ARGS, &err);
	CHECK_TEXT(&err, "the result holds type geo::Polygon refused to decode 32 bytes");
	CHECK(err.executed == FAR_EXECUTED_YES);
	CHECK_STATUS(call("v::wrong", FAR_ARGS(1), &out), FAR_INVALID, &err);
	CHECK_TEXT(&err, "NaN");
	CHECK_STATUS(call("v::wrong", FAR_ARGS(2), &out), FAR_SIGNATURE, &err);
	CHECK_TEXT(&err, "v::wrong(int)->List|Dict returned a custom");
}

/* Only the first worker registers it: the others do not take it, and say so. */
static void a_type_that_the_callee_lacks(void)
{
	static const struct far_custom_type mine = {"geo::Mine",    polygon_size,    polygon_encode,
						    polygon_decode, polygon_destroy, NULL};
	struct polygon p = {3, (double[3][2]){{0, 0}, {4, 0}, {0, 3}}};
	struct far_val out;
	if (rank != 0)
		return;
	CHECK_STATUS(far_register_type(agent, &mine, &err), FAR_OK, &err);
	CHECK_STATUS(far_register_type(agent, &mine, &err), FAR_INVALID, &err);
	CHECK_STATUS(call("v::echo", FAR_ARGS(FAR_LIST(far_custom(&mine, &p))), &out), FAR_UNSUPPORTED, &err);
	CHECK_TEXT(&err, "not registered there");
	CHECK(err.executed == FAR_EXECUTED_NO && strcmp(err.origin, to) == 0);
}

static void run_all(void)
{
	static void (*const tests[])(void) = {
		add,
		scalar_add,
		async_add,
		nonzero,
		multi_rpc,
		op_with_invalid_args,
		tensors_in_container,
		nested_values,
		many_items,
		a_tree_is_read_twice,
		non_cont_tensors,
		halves,
		custom_types,
		a_type_that_the_callee_lacks,
	};
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
		tests[i]();
}

int main(void)
{
	struct far_opts opts = {.functions = functions,
				.functions_n = sizeof functions / sizeof functions[0],
				.types = types,
				.types_n = 1};
	calls_begin(&opts);
	run_all();
	calls_to_self();
	add();
	tensors_in_container();
	custom_types();
	check_leave(agent);
	CHECK(polygons_alive == 0);
	return 0;
}
