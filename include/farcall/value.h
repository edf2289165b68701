/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Typed values: arguments and results of typed calls. The functions run on any thread and never block.
 *
 * Ownership: a value borrows its bytes (`own` is NULL, the memory is the application's; all builders below make such
 * values), or it owns a reference to a received buffer, which far_val_fini() gives back. A copy of the struct is a
 * borrow: finish exactly one of the copies. Values inside a list or dict belong to the outermost value.
 */
#ifndef FARCALL_VALUE_H
#define FARCALL_VALUE_H

#include <farcall/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
#include <initializer_list>
#include <type_traits>
#include <utility>
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define FAR_DIMS_MAX    8     /* dimensions of a tensor */
#define FAR_ARGS_MAX    16    /* arguments of a call */
#define FAR_DEPTH_MAX   32    /* nesting of lists and dicts; a list of numbers has depth 1 */
#define FAR_ITEMS_MAX   65536 /* list items, dict keys and dict values of a message together */
#define FAR_DICT_MAX    1024  /* entries of one dict */
#define FAR_CUSTOMS_MAX 256   /* values of custom types in a message */
#define FAR_RREFS_MAX   256   /* references in a message */

enum far_type {
	FAR_TYPE_NONE,
	FAR_TYPE_BOOL,
	FAR_TYPE_INT,
	FAR_TYPE_FLOAT,
	FAR_TYPE_STRING,
	FAR_TYPE_BYTES,
	FAR_TYPE_TENSOR,
	FAR_TYPE_LIST,
	FAR_TYPE_DICT,
	FAR_TYPE_CUSTOM,
	FAR_TYPE_RREF,
	FAR_TYPE_COUNT,
	FAR_TYPE_UINT = 255 /* an unsigned integer beyond INT64_MAX, of far_uint(): in no message and no result */
};

/* Name, bytes of an element, text. The position, from 1, is the code on the wire: append new entries. */
#define FAR_DTYPE_LIST(X)                                                                                              \
	X(F32, 4, "f32")                                                                                               \
	X(F64, 8, "f64")                                                                                               \
	X(I8, 1, "i8")                                                                                                 \
	X(I16, 2, "i16")                                                                                               \
	X(I32, 4, "i32")                                                                                               \
	X(I64, 8, "i64")                                                                                               \
	X(U8, 1, "u8")                                                                                                 \
	X(U64, 8, "u64")                                                                                               \
	X(BOOL, 1, "bool")                                                                                             \
	X(BF16, 2, "bf16")                                                                                             \
	X(F16, 2, "f16")

enum far_dtype {
	FAR_DTYPE_NONE,
#define FAR_DTYPE_ENUM(name, bytes, text) FAR_##name,
	FAR_DTYPE_LIST(FAR_DTYPE_ENUM)
#undef FAR_DTYPE_ENUM
		FAR_DTYPE_COUNT
};

/**
 * A tensor. ndim 0: a scalar with one element. A dimension may be 0. An element of BOOL is a byte, 0 or 1; of BF16 the
 * upper half of an IEEE binary32 in a uint16_t; of F16 an IEEE binary16.
 *
 * `strides` NULL: dense, row-major. Otherwise a view: element (i, j, …) is `data[i * strides[0] + j * strides[1] + …]`.
 * Strides may be 0 or negative; the array is the application's. A message carries only the elements of a view, so
 * received tensors are always dense.
 */
struct far_tensor {
	void *data;                   /* aligned to an element; may be NULL without elements */
	const int64_t *strides;       /* [ndim], in elements; NULL: dense */
	uint8_t dtype;                /* enum far_dtype */
	uint8_t ndim;                 /* [0, FAR_DIMS_MAX] */
	uint8_t domain;               /* memory domain; 0 (host memory) is the only one */
	uint64_t shape[FAR_DIMS_MAX]; /* elements along each dimension; entries past ndim are ignored */
};

/**
 * A custom type: encoding of the application's objects. Every agent that sends or receives them registers it, see
 * far_register_type(). The functions run on any thread, with `user`. They must not wait and not call this library.
 */
struct far_custom_type {
	const char *name; /* qualified, "geo::Polygon": words of `A-Z a-z 0-9 _` joined by "::", two at least */
	/** Returns the bytes of the encoded object; SIZE_MAX: it cannot be sent. */
	size_t (*size)(const void *object, void *user);
	/** Writes dst[0, len), aligned to 8; `len` is the result of size(). Cannot fail. */
	void (*encode)(const void *object, void *dst, size_t len, void *user);
	/**
	 * Makes an object from src[0, len), aligned to 8, bytes of a peer that may be malformed. They do not change and
	 * are valid until decode() returns. Any status but FAR_OK refuses them.
	 */
	enum far_status (*decode)(const void *src, size_t len, void **object, void *user);
	/** Destroys an object of decode(): an argument after its handler, a result in far_val_fini(). */
	void (*destroy)(void *object, void *user);
	void *user;
	uint64_t reserved[2]; /* 0 */
};

struct far_buf; /* a received buffer, reference-counted */
struct far_rref;
struct far_dict_entry;

struct far_val {
	uint8_t type;        /* enum far_type */
	bool by_ref;         /* of a tensor: it is *u.ref, the application's. Only in values that FAR_ARGS, FAR_LIST and
				FAR_DICT make; a handler and a result get it in u.t */
	const char *kw;      /* parameter name of a keyword argument; NULL: positional. Only for arguments of a call */
	struct far_buf *own; /* reference that far_val_fini() gives back; NULL: borrowed */
	union {
		bool b;
		int64_t i;
		double f;
		struct {
			const void *data; /* a string is UTF-8 by convention; data[len] is NUL */
			size_t len;
		} s; /* string and bytes */
		struct far_tensor t;
		const struct far_tensor *ref;
		struct {
			const struct far_val *items; /* [n]; borrowed, or in the memory of the outermost value */
			size_t n;
		} list;
		struct {
			const struct far_dict_entry *entries; /* [n], in order; likewise */
			size_t n;
		} dict;
		struct {
			const struct far_custom_type *type;
			void *object;
			uint64_t hash; /* `hash` and `len`: private to the engine before decoding */
			size_t len;
		} custom;
		struct far_rref *rref; /* <farcall/rref.h>; owned or borrowed with the value */
	} u;
};

/** An entry of a dict. Keys are bool, int, float (no NaN) or string, and unique. `kw` is NULL in both. */
struct far_dict_entry {
	struct far_val key;
	struct far_val value;
};

/** Bytes of an element, 0 for an unknown dtype. Name, as "f32", "?" for an unknown one. */
size_t far_dtype_size(enum far_dtype dtype);
const char *far_dtype_name(enum far_dtype dtype);
const char *far_type_name(enum far_type type);

/** The tensor of a value of type TENSOR, by_ref or not. Valid as long as the value, and the tensor that it refers to.
 */
static inline const struct far_tensor *far_val_tensor(const struct far_val *v)
{
	return v->by_ref ? v->u.ref : &v->u.t;
}

/** Number of elements, and their bytes. SIZE_MAX on overflow. */
size_t far_tensor_count(const struct far_tensor *t);
size_t far_tensor_bytes(const struct far_tensor *t);

/**
 * Frees what a value and the values inside it own, and makes it none. A zeroed or borrowed value is allowed.
 */
void far_val_fini(struct far_val *v);

/**
 * Makes a deep copy that owns its bytes: keeps an argument beyond its handler, or a part of a result beyond the result.
 * Views become dense; objects of custom types are encoded and decoded. `*out` is the caller's: far_val_fini() it.
 * Errors: INVALID, TOO_LARGE (as for a message), RESOURCE, UNSUPPORTED (a custom type that is not registered).
 */
enum far_status far_val_dup(const struct far_val *v, struct far_val *out, struct far_err *err);

/** Items of a list, entries of a dict, bytes of a string or bytes value, elements of a tensor; 0 for other types. */
size_t far_len(const struct far_val *v);
/** Item `i` of a list, valid as long as the list. NULL: beyond its end, or not a list. */
const struct far_val *far_list_get(const struct far_val *v, size_t i);
/**
 * Value of a key in a dict, valid as long as the dict. NULL: no such key, or not a dict. Keys of different types
 * differ: 1 is neither 1.0 nor true. Linear search.
 */
const struct far_val *far_dict_get(const struct far_val *v, const char *key);
const struct far_val *far_dict_get_int(const struct far_val *v, int64_t key);
const struct far_val *far_dict_find(const struct far_val *v, const struct far_val *key);

/** Prints a value without a newline; long ones abbreviated. */
void far_val_print(FILE *f, const struct far_val *v);

/** Makes none, the value without content. */
static inline struct far_val far_none(void)
{
	struct far_val v;
	memset(&v, 0, sizeof v);
	return v;
}

/** Makes a bool. */
static inline struct far_val far_bool(bool b)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_BOOL;
	v.u.b = b;
	return v;
}

/** Makes an int. */
static inline struct far_val far_int(int64_t i)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_INT;
	v.u.i = i;
	return v;
}

/** An int of an unsigned integer. Beyond INT64_MAX the value cannot be sent: the call returns BAD_ARGS, or far_return()
 * TOO_LARGE, with the number. */
static inline struct far_val far_uint(uint64_t i)
{
	struct far_val v = far_int((int64_t)i);
	if (i > INT64_MAX)
		v.type = FAR_TYPE_UINT;
	return v;
}

/** Makes a float. */
static inline struct far_val far_float(double f)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_FLOAT;
	v.u.f = f;
	return v;
}

/** Makes a string of a C string, which is borrowed. */
static inline struct far_val far_str(const char *s)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_STRING;
	v.u.s.data = s;
	v.u.s.len = strlen(s);
	return v;
}

/** Makes a bytes value of data[0, len), which is borrowed. */
static inline struct far_val far_bytes(const void *data, size_t len)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_BYTES;
	v.u.s.data = data;
	v.u.s.len = len;
	return v;
}

/** Makes a tensor value: a copy of `*t`; the elements are borrowed. */
static inline struct far_val far_tensor_val(const struct far_tensor *t)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_TENSOR;
	v.u.t = *t;
	return v;
}

/** far_tensor_val() without a copy of `t`, which must exist as long as the value: what FAR_ARGS makes of `&t`. */
static inline struct far_val far_tensor_ref(const struct far_tensor *t)
{
	struct far_val v;
	v.type = FAR_TYPE_TENSOR;
	v.by_ref = true;
	v.kw = NULL;
	v.own = NULL;
	v.u.ref = t; /* the rest of the union has no meaning, and is not worth its stores */
	return v;
}

/** A list of `n` borrowed items. Shorter to write: FAR_LIST. */
static inline struct far_val far_list(const struct far_val *items, size_t n)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_LIST;
	v.u.list.items = items;
	v.u.list.n = n;
	return v;
}

/** A dict of `n` borrowed entries. Shorter to write: FAR_DICT. */
static inline struct far_val far_dict(const struct far_dict_entry *entries, size_t n)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_DICT;
	v.u.dict.entries = entries;
	v.u.dict.n = n;
	return v;
}

/** Makes an entry of a dict. Shorter to write: FAR_ENTRY. */
static inline struct far_dict_entry far_entry(struct far_val key, struct far_val value)
{
	struct far_dict_entry e;
	e.key = key;
	e.value = value;
	return e;
}

/** An object of a custom type, both borrowed. */
static inline struct far_val far_custom(const struct far_custom_type *type, const void *object)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_CUSTOM;
	v.u.custom.type = type;
	v.u.custom.object = (void *)(uintptr_t)object;
	return v;
}

/** A reference, borrowed. */
static inline struct far_val far_rref_val(struct far_rref *rref)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_RREF;
	v.u.rref = rref;
	return v;
}

/** A keyword argument; the name is borrowed. See FAR_KW. */
static inline struct far_val far_kw(const char *name, struct far_val v)
{
	v.kw = name;
	return v;
}

/** Returns its argument: what FAR_ARGS makes of a value. */
static inline struct far_val far_val_copy(struct far_val v)
{
	return v;
}

/** A 1-d tensor of `n` borrowed elements. */
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

/** A 2-d tensor of `rows` × `cols` borrowed elements. */
static inline struct far_tensor far_tensor_2d(enum far_dtype dtype, const void *data, size_t rows, size_t cols)
{
	struct far_tensor t = far_tensor_1d(dtype, data, rows);
	t.ndim = 2;
	t.shape[1] = cols;
	return t;
}

/** A tensor of `ndim` dimensions, [0, FAR_DIMS_MAX]; `strides` in elements, NULL: dense. `data` and `strides` are
 * borrowed, `shape` is copied. */
static inline struct far_tensor far_tensor_nd(enum far_dtype dtype, const void *data, unsigned ndim,
					      const uint64_t *shape, const int64_t *strides)
{
	struct far_tensor t = far_tensor_1d(dtype, data, 0);
	t.ndim = (uint8_t)(ndim <= FAR_DIMS_MAX ? ndim : FAR_DIMS_MAX + 1);
	for (unsigned k = 0; k < ndim && k < FAR_DIMS_MAX; k++)
		t.shape[k] = shape[k];
	t.strides = strides;
	return t;
}

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}

/* One builder per C++ type: FAR_ARGS takes the same arguments as in C. */
static inline far_val far_arg(const far_val &v)
{
	return v;
}
static inline far_val far_arg(const struct far_tensor *t)
{
	return far_tensor_ref(t);
}
static inline far_val far_arg(struct far_rref *rref)
{
	return far_rref_val(rref);
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
	       : std::is_unsigned<T>::value       ? far_uint(static_cast<uint64_t>(x))
						  : far_int(static_cast<int64_t>(x));
}
/* dtype of an arithmetic type; FAR_DTYPE_NONE: there is none. */
template <typename T>
constexpr far_dtype far_dtype_of = std::is_same<T, bool>::value       ? FAR_BOOL
				   : std::is_floating_point<T>::value ? (sizeof(T) == 4   ? FAR_F32
									 : sizeof(T) == 8 ? FAR_F64
											  : FAR_DTYPE_NONE)
				   : std::is_signed<T>::value         ? (sizeof(T) == 1   ? FAR_I8
									 : sizeof(T) == 2 ? FAR_I16
									 : sizeof(T) == 4 ? FAR_I32
											  : FAR_I64)
								      : (sizeof(T) == 1   ? FAR_U8
									 : sizeof(T) == 8 ? FAR_U64
											  : FAR_DTYPE_NONE);
/* Contiguous elements: a string of char, else a tensor of one dimension. */
template <typename T,
	  typename E = typename std::remove_cv<
		  typename std::remove_pointer<decltype(std::declval<const T &>().data())>::type>::type,
	  typename std::enable_if<std::is_arithmetic<E>::value, int>::type = 0>
static inline far_val far_arg(const T &x)
{
	static_assert(far_dtype_of<E> != FAR_DTYPE_NONE, "no dtype has elements of this type");
	far_tensor t = far_tensor_1d(far_dtype_of<E>, x.data(), x.size());
	far_val v = std::is_same<E, char>::value ? far_bytes(x.data(), x.size()) : far_tensor_val(&t);
	if (std::is_same<E, char>::value)
		v.type = FAR_TYPE_STRING;
	return v;
}
#else
/* clang-format off */
#define far_arg(x) _Generic((x), \
	struct far_val: far_val_copy, \
	struct far_tensor *: far_tensor_ref, const struct far_tensor *: far_tensor_ref, \
	struct far_rref *: far_rref_val, \
	char *: far_str, const char *: far_str, \
	_Bool: far_bool, \
	float: far_float, double: far_float, \
	char: far_int, signed char: far_int, unsigned char: far_int, short: far_int, unsigned short: far_int, \
	int: far_int, unsigned: far_int, long: far_int, unsigned long: far_uint, \
	long long: far_int, unsigned long long: far_uint)(x)
/* clang-format on */
#endif

#define FAR_MAP_1(x)       far_arg(x)
#define FAR_MAP_2(x, ...)  far_arg(x), FAR_MAP_1(__VA_ARGS__)
#define FAR_MAP_3(x, ...)  far_arg(x), FAR_MAP_2(__VA_ARGS__)
#define FAR_MAP_4(x, ...)  far_arg(x), FAR_MAP_3(__VA_ARGS__)
#define FAR_MAP_5(x, ...)  far_arg(x), FAR_MAP_4(__VA_ARGS__)
#define FAR_MAP_6(x, ...)  far_arg(x), FAR_MAP_5(__VA_ARGS__)
#define FAR_MAP_7(x, ...)  far_arg(x), FAR_MAP_6(__VA_ARGS__)
#define FAR_MAP_8(x, ...)  far_arg(x), FAR_MAP_7(__VA_ARGS__)
#define FAR_MAP_9(x, ...)  far_arg(x), FAR_MAP_8(__VA_ARGS__)
#define FAR_MAP_10(x, ...) far_arg(x), FAR_MAP_9(__VA_ARGS__)
#define FAR_MAP_11(x, ...) far_arg(x), FAR_MAP_10(__VA_ARGS__)
#define FAR_MAP_12(x, ...) far_arg(x), FAR_MAP_11(__VA_ARGS__)
#define FAR_MAP_13(x, ...) far_arg(x), FAR_MAP_12(__VA_ARGS__)
#define FAR_MAP_14(x, ...) far_arg(x), FAR_MAP_13(__VA_ARGS__)
#define FAR_MAP_15(x, ...) far_arg(x), FAR_MAP_14(__VA_ARGS__)
#define FAR_MAP_16(x, ...) far_arg(x), FAR_MAP_15(__VA_ARGS__)
/* Number of arguments, [1, 16]; from 17 to 48 a name that is not declared, for the message of the compiler. */
#define FAR_COUNT_N(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21,    \
		    a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, a40,     \
		    a41, a42, a43, a44, a45, a46, a47, a48, n, ...)                                                    \
	n
#define FAR_COUNT_ANY(...)                                                                                             \
	FAR_COUNT_N(__VA_ARGS__, FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                 \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most,                                              \
		    FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5,   \
		    4, 3, 2, 1, 0)
#define FAR_CAT_(a, b) a##b
#define FAR_CAT(a, b)  FAR_CAT_(a, b)
/* ANY, or NONE for an empty argument: it has no comma, but has one behind FAR_COMMA and in front of (). */
#define FAR_COMMA(...) ,
#define FAR_HAS_COMMA(...)                                                                                             \
	FAR_COUNT_N(__VA_ARGS__, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,   \
		    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0)
#define FAR_EMPTY_0001          ,
#define FAR_EMPTY_4(a, b, c, d) FAR_HAS_COMMA(FAR_EMPTY_5(a, b, c, d))
#define FAR_EMPTY_5(a, b, c, d) FAR_EMPTY_##a##b##c##d
#define FAR_EMPTY(...)                                                                                                 \
	FAR_EMPTY_4(FAR_HAS_COMMA(__VA_ARGS__), FAR_HAS_COMMA(FAR_COMMA __VA_ARGS__), FAR_HAS_COMMA(__VA_ARGS__()),    \
		    FAR_HAS_COMMA(FAR_COMMA __VA_ARGS__()))
#define FAR_COUNT(...)   FAR_CAT(FAR_COUNT_, FAR_EMPTY(__VA_ARGS__))(__VA_ARGS__)
#define FAR_COUNT_0(...) FAR_COUNT_ANY(__VA_ARGS__)
#define FAR_COUNT_1(...) 0
#define FAR_MAP_FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most(...)                                              \
	FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most
#define FAR_MAP(...) FAR_CAT(FAR_MAP_, FAR_COUNT_ANY(__VA_ARGS__))(__VA_ARGS__)

/**
 * The arguments of a typed call, 0 to 16: `far_rpc_sync(agent, "worker1", "far::add", FAR_ARGS(&t, 3), NULL, &out,
 * &err)`. Expands to two function arguments, an array and its length. Takes integers (an unsigned one beyond INT64_MAX
 * makes the call return BAD_ARGS), floating-point numbers, bool (in C the literal `true` is an int: write
 * far_bool(true)), C strings, `struct far_tensor *`, `struct far_rref *` and `struct far_val`, thus the macros below
 * too. In C++ also std::string, std::string_view, and std::vector, std::array and std::span of numbers, which are
 * tensors of one dimension. Keyword arguments follow positional ones:
 *
 *   FAR_ARGS(&t, 3, FAR_KW("alpha", 2.0))
 *   FAR_ARGS(FAR_LIST(1, "two", &t), FAR_DICT(FAR_ENTRY("rate", 0.1), FAR_ENTRY(7, FAR_LIST(&t, &u))))
 *
 * FAR_LIST and FAR_DICT take 0 to 16 items. Use far_list() and far_dict() with an array for longer ones. The arrays of
 * the macros are valid until the end of the enclosing block in C, of the full expression in C++.
 */
#define FAR_KW(name, x)       far_kw(name, far_arg(x))
#define FAR_ENTRY(key, value) far_entry(far_arg(key), far_arg(value))
#define FAR_ARGS(...)         FAR_CAT(FAR_ARGS_, FAR_EMPTY(__VA_ARGS__))(__VA_ARGS__)
#define FAR_LIST(...)         FAR_CAT(FAR_LIST_, FAR_EMPTY(__VA_ARGS__))(__VA_ARGS__)
#define FAR_DICT(...)         FAR_CAT(FAR_DICT_, FAR_EMPTY(__VA_ARGS__))(__VA_ARGS__)
#define FAR_ARGS_1(...)       NULL, 0
#define FAR_LIST_1(...)       far_list(NULL, 0)
#define FAR_DICT_1(...)       far_dict(NULL, 0)
#ifdef __cplusplus
#define FAR_ARGS_0(...) (std::initializer_list<far_val>{FAR_MAP(__VA_ARGS__)}.begin()), FAR_COUNT_ANY(__VA_ARGS__)
#define FAR_LIST_0(...)                                                                                                \
	far_list(std::initializer_list<far_val>{FAR_MAP(__VA_ARGS__)}.begin(), FAR_COUNT_ANY(__VA_ARGS__))
#define FAR_DICT_0(...) far_dict(std::initializer_list<far_dict_entry>{__VA_ARGS__}.begin(), FAR_COUNT_ANY(__VA_ARGS__))
#else
#define FAR_ARGS_0(...) ((const struct far_val[]){FAR_MAP(__VA_ARGS__)}), FAR_COUNT_ANY(__VA_ARGS__)
#define FAR_LIST_0(...) far_list((const struct far_val[]){FAR_MAP(__VA_ARGS__)}, FAR_COUNT_ANY(__VA_ARGS__))
#define FAR_DICT_0(...) far_dict((const struct far_dict_entry[]){__VA_ARGS__}, FAR_COUNT_ANY(__VA_ARGS__))
#endif
/** FAR_ARGS() in shorter form. */
#define FAR_NOARGS NULL, 0

#endif
