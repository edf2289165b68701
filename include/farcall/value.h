/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Typed values: what a typed call takes and returns.
 *
 * A value either borrows its bytes (all builders below do: `own` is NULL and the memory stays the application's) or
 * owns a reference to a received buffer, which far_val_fini() gives back. Copying the struct copies the borrow, not the
 * reference: finish exactly one of the copies.
 */
#ifndef FARCALL_VALUE_H
#define FARCALL_VALUE_H

#include <farcall/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
#include <initializer_list>
#include <type_traits>
extern "C" {
#endif

#define FAR_DIMS_MAX 8  /* dimensions of a tensor */
#define FAR_ARGS_MAX 16 /* arguments of a call */

enum far_type {
	FAR_TYPE_NONE,
	FAR_TYPE_BOOL,
	FAR_TYPE_INT,
	FAR_TYPE_FLOAT,
	FAR_TYPE_STRING,
	FAR_TYPE_BYTES,
	FAR_TYPE_TENSOR,
	FAR_TYPE_COUNT
};

/* Name, bytes of an element, text in signatures and messages. The order is the wire's, starting at 1. */
#define FAR_DTYPE_LIST(X)                                                                                              \
	X(F32, 4, "f32")                                                                                               \
	X(F64, 8, "f64")                                                                                               \
	X(I8, 1, "i8")                                                                                                 \
	X(I16, 2, "i16")                                                                                               \
	X(I32, 4, "i32")                                                                                               \
	X(I64, 8, "i64")                                                                                               \
	X(U8, 1, "u8")                                                                                                 \
	X(U64, 8, "u64")                                                                                               \
	X(BOOL, 1, "bool")

enum far_dtype {
	FAR_DTYPE_NONE,
#define FAR_DTYPE_ENUM(name, bytes, text) FAR_##name,
	FAR_DTYPE_LIST(FAR_DTYPE_ENUM)
#undef FAR_DTYPE_ENUM
		FAR_DTYPE_COUNT
};

/**
 * A dense row-major array. ndim 0 is a scalar of one element; a dimension may be 0.
 * Elements of BOOL are bytes 0 or 1.
 */
struct far_tensor {
	void *data;                   /* element-aligned; may be NULL when there is no element */
	uint8_t dtype;                /* enum far_dtype */
	uint8_t ndim;                 /* [0, FAR_DIMS_MAX] */
	uint8_t domain;               /* memory domain: 0, host memory, is the only one */
	uint64_t shape[FAR_DIMS_MAX]; /* elements along each dimension; entries past ndim are ignored */
};

struct far_buf; /* a received buffer, counted by reference */

struct far_val {
	uint8_t type;        /* enum far_type */
	const char *kw;      /* NULL: positional (the only form yet) */
	struct far_buf *own; /* reference that far_val_fini() drops, or NULL */
	union {
		bool b;
		int64_t i;
		double f;
		struct {
			const void *data; /* string: UTF-8 by convention, NUL-terminated beyond len */
			size_t len;
		} s; /* string and bytes */
		struct far_tensor t;
	} u;
};

/** Bytes of one element; 0 for an unknown dtype. Name as in "f32"; "?" for an unknown one. */
size_t far_dtype_size(enum far_dtype dtype);
const char *far_dtype_name(enum far_dtype dtype);
const char *far_type_name(enum far_type type);

/** Elements / bytes of a tensor; SIZE_MAX when the product overflows. */
size_t far_tensor_count(const struct far_tensor *t);
size_t far_tensor_bytes(const struct far_tensor *t);

/** Drops what a value owns and makes it none. Any thread; never blocks. A zeroed or borrowed value is fine. */
void far_val_fini(struct far_val *v);

/** Prints a value, at most a few elements of a tensor, without a newline. */
void far_val_print(FILE *f, const struct far_val *v);

static inline struct far_val far_none(void)
{
	struct far_val v;
	memset(&v, 0, sizeof v);
	return v;
}

static inline struct far_val far_bool(bool b)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_BOOL;
	v.u.b = b;
	return v;
}

static inline struct far_val far_int(int64_t i)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_INT;
	v.u.i = i;
	return v;
}

static inline struct far_val far_float(double f)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_FLOAT;
	v.u.f = f;
	return v;
}

static inline struct far_val far_str(const char *s)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_STRING;
	v.u.s.data = s;
	v.u.s.len = strlen(s);
	return v;
}

static inline struct far_val far_bytes(const void *data, size_t len)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_BYTES;
	v.u.s.data = data;
	v.u.s.len = len;
	return v;
}

static inline struct far_val far_tensor_val(const struct far_tensor *t)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_TENSOR;
	v.u.t = *t;
	return v;
}

static inline struct far_val far_val_copy(struct far_val v)
{
	return v;
}

/** A 1-d tensor over `n` elements at `data`, which stays the caller's. */
static inline struct far_tensor far_tensor_1d(enum far_dtype dtype, const void *data, size_t n)
{
	struct far_tensor t;
	memset(&t, 0, sizeof t);
	t.data = (void *)(uintptr_t)data;
	t.dtype = (uint8_t)dtype;
	t.ndim = 1;
	t.shape[0] = n;
	return t;
}

/** A 2-d tensor of `rows` × `cols` elements at `data`, which stays the caller's. */
static inline struct far_tensor far_tensor_2d(enum far_dtype dtype, const void *data, size_t rows, size_t cols)
{
	struct far_tensor t = far_tensor_1d(dtype, data, rows);
	t.ndim = 2;
	t.shape[1] = cols;
	return t;
}

#ifdef __cplusplus
}

/* One builder per C++ type, so that FAR_ARGS takes the same arguments as in C. */
static inline far_val far_arg(const far_val &v)
{
	return v;
}
static inline far_val far_arg(const struct far_tensor *t)
{
	return far_tensor_val(t);
}
static inline far_val far_arg(const char *s)
{
	return far_str(s);
}
template <typename T, typename std::enable_if<std::is_arithmetic<T>::value, int>::type = 0>
static inline far_val far_arg(T x)
{
	return std::is_same<T, bool>::value       ? far_bool(x != T(0))
	       : std::is_floating_point<T>::value ? far_float(static_cast<double>(x))
						  : far_int(static_cast<int64_t>(x));
}
#else
/* clang-format off */
#define far_arg(x) _Generic((x), \
	struct far_val: far_val_copy, \
	struct far_tensor *: far_tensor_val, const struct far_tensor *: far_tensor_val, \
	char *: far_str, const char *: far_str, \
	_Bool: far_bool, \
	float: far_float, double: far_float, \
	char: far_int, signed char: far_int, unsigned char: far_int, short: far_int, unsigned short: far_int, \
	int: far_int, unsigned: far_int, long: far_int, unsigned long: far_int, \
	long long: far_int, unsigned long long: far_int)(x)
/* clang-format on */
#endif

#define FAR_MAP_1(x)                                                                               far_arg(x)
#define FAR_MAP_2(x, ...)                                                                          far_arg(x), FAR_MAP_1(__VA_ARGS__)
#define FAR_MAP_3(x, ...)                                                                          far_arg(x), FAR_MAP_2(__VA_ARGS__)
#define FAR_MAP_4(x, ...)                                                                          far_arg(x), FAR_MAP_3(__VA_ARGS__)
#define FAR_MAP_5(x, ...)                                                                          far_arg(x), FAR_MAP_4(__VA_ARGS__)
#define FAR_MAP_6(x, ...)                                                                          far_arg(x), FAR_MAP_5(__VA_ARGS__)
#define FAR_MAP_7(x, ...)                                                                          far_arg(x), FAR_MAP_6(__VA_ARGS__)
#define FAR_MAP_8(x, ...)                                                                          far_arg(x), FAR_MAP_7(__VA_ARGS__)
#define FAR_MAP_9(x, ...)                                                                          far_arg(x), FAR_MAP_8(__VA_ARGS__)
#define FAR_MAP_10(x, ...)                                                                         far_arg(x), FAR_MAP_9(__VA_ARGS__)
#define FAR_MAP_11(x, ...)                                                                         far_arg(x), FAR_MAP_10(__VA_ARGS__)
#define FAR_MAP_12(x, ...)                                                                         far_arg(x), FAR_MAP_11(__VA_ARGS__)
#define FAR_MAP_13(x, ...)                                                                         far_arg(x), FAR_MAP_12(__VA_ARGS__)
#define FAR_MAP_14(x, ...)                                                                         far_arg(x), FAR_MAP_13(__VA_ARGS__)
#define FAR_MAP_15(x, ...)                                                                         far_arg(x), FAR_MAP_14(__VA_ARGS__)
#define FAR_MAP_16(x, ...)                                                                         far_arg(x), FAR_MAP_15(__VA_ARGS__)
#define FAR_COUNT_N(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, n, ...) n
#define FAR_COUNT(...)                                                                             FAR_COUNT_N(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define FAR_CAT_(a, b)                                                                             a##b
#define FAR_CAT(a, b)                                                                              FAR_CAT_(a, b)
#define FAR_MAP(...)                                                                               FAR_CAT(FAR_MAP_, FAR_COUNT(__VA_ARGS__))(__VA_ARGS__)

/**
 * The arguments of a typed call, 1 to 16: `far_rpc_sync(agent, "worker1", "far::add", FAR_ARGS(&t, 3), NULL, &out,
 * &err)`. Expands to two function arguments, the array and its length. Plain integers, floating-point numbers, bool (in
 * C the literal `true` is an int: write far_bool(true)), C strings, `struct far_tensor *` and `struct far_val` are
 * taken.
 */
#ifdef __cplusplus
#define FAR_ARGS(...) (std::initializer_list<far_val>{FAR_MAP(__VA_ARGS__)}.begin()), FAR_COUNT(__VA_ARGS__)
#else
#define FAR_ARGS(...) ((const struct far_val[]){FAR_MAP(__VA_ARGS__)}), FAR_COUNT(__VA_ARGS__)
#endif
/** No arguments. */
#define FAR_NOARGS NULL, 0

#endif
