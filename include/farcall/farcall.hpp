// SPDX-License-Identifier: BSD-3-Clause
/**
 * C++17 over the C interface: header only, no library of its own. Agents, values, futures and references free
 * themselves; lambdas are handlers, and their types are the signature; errors are exceptions; with C++20 futures can be
 * awaited. Threads, blocking and limits are those of the C function that each wraps, which its comment names.
 *
 *	farcall::registry functions;
 *	functions.add("demo::scale(x, factor)", [](const std::vector<float> &x, double factor) { … return scaled; });
 *	farcall::agent agent("worker%d", functions);
 *	auto scaled = agent.call<std::vector<float>>("worker1", "demo::scale", x, 2.0);
 *
 * Types of arguments, results and handlers' parameters, with their word in a signature:
 *
 *	bool "bool" · integers "int" · floating-point "float" · std::string, std::string_view, const char * "str" ·
 *	std::vector of arithmetic types, tensor and tensor_view "Tensor" · ranked_view "Tensor<f32,2>" · in C++20
 *	std::span of arithmetic types "Tensor"
 *	bytes "bytes" · std::vector of others "List" · std::map<std::string, T> "Dict" · rref "rref"
 *	value, far_val "Any" · void "none" · std::optional of one of the others "none|" and its word
 *
 * A handler's parameters of type std::string_view, bytes, tensor_view, std::span and far_val refer to the request, and
 * are valid until it returns. Its exceptions become the error of the call: farcall::error with its status and code, any
 * other std::exception as FAR_REMOTE with its text. A fiber handler must not wait inside a catch block: the fiber may
 * continue in another thread, and the exception belongs to the first one.
 */
#ifndef FARCALL_FARCALL_HPP
#define FARCALL_FARCALL_HPP

#include <farcall/farcall.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#if defined(__cplusplus) && __cplusplus >= 202002L && defined(__has_include)
#if __has_include(<span>)
#include <span>
#define FARCALL_SPAN 1
#endif
#endif
#if defined(__cpp_impl_coroutine) && defined(__has_include)
#if __has_include(<coroutine>)
#include <coroutine>
#define FARCALL_COROUTINES 1
#endif
#endif

namespace farcall
{

// ---- errors ----

/** What a C function that failed has said. what() is its text. */
class error : public std::runtime_error
{
	far_err err_;

      public:
	explicit error(const far_err &err)
	    : std::runtime_error(err.text[0] ? err.text : far_status_text(err.status)), err_(err)
	{
	}
	/** In a handler: the error of its call. */
	explicit error(far_status status, const std::string &text, int code = 0) : std::runtime_error(text), err_{}
	{
		err_.status = status;
		err_.code = code;
		std::snprintf(err_.text, sizeof err_.text, "%s", text.c_str());
	}
	far_status status() const noexcept
	{
		return err_.status;
	}
	far_executed executed() const noexcept
	{
		return err_.executed;
	}
	int code() const noexcept
	{
		return err_.code;
	}
	/** Worker where the error arose; empty: here, before anything was sent. */
	const char *origin() const noexcept
	{
		return err_.origin;
	}
	const far_err &details() const noexcept
	{
		return err_;
	}
};

namespace detail
{
inline void check(far_status status, const far_err &err)
{
	if (status == FAR_OK)
		return;
	far_err copy = err;
	copy.status = status;
	throw error(copy);
}

/** An error whose class alone is known. */
inline void check(far_status status)
{
	if (status != FAR_OK)
		throw error(status, far_status_text(status));
}

[[noreturn]] inline void mismatch(const far_val &v, const char *wanted)
{
	throw error(FAR_BAD_ARGS, std::string("the value is of type ") + far_type_name(static_cast<far_type>(v.type)) +
					  ", not " + wanted);
}

inline uint64_t nanoseconds(std::chrono::nanoseconds t)
{
	return t.count() < 0 ? 1 : static_cast<uint64_t>(t.count());
}

template <typename T> inline constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
} // namespace detail

/** No limit, and the default of the function. */
inline constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();
inline constexpr std::chrono::nanoseconds default_timeout = std::chrono::nanoseconds::zero();

namespace detail
{
inline uint64_t limit(std::chrono::nanoseconds t)
{
	return t == forever ? FAR_FOREVER : t == default_timeout ? 0 : nanoseconds(t);
}

/** dtype of an arithmetic type. */
template <typename T> constexpr far_dtype dtype()
{
	return far_dtype_of<T>;
}
} // namespace detail

// ---- values ----

/** Bytes of somebody else. */
struct bytes {
	const void *data = nullptr;
	std::size_t size = 0;
};

/** A dense tensor of somebody else's elements. */
template <typename T> class tensor_view
{
	static_assert(detail::dtype<std::remove_const_t<T>>() != FAR_DTYPE_NONE, "no dtype has elements of this type");
	far_tensor t_{};

      public:
	tensor_view() = default;
	tensor_view(T *data, std::initializer_list<std::uint64_t> shape)
	{
		if (shape.size() > FAR_DIMS_MAX)
			throw error(FAR_INVALID, "a tensor has at most 8 dimensions");
		t_ = far_tensor_nd(detail::dtype<std::remove_const_t<T>>(), data, static_cast<unsigned>(shape.size()),
				   shape.begin(), nullptr);
	}
	/** Of a received tensor. Throws BAD_ARGS for another dtype. */
	explicit tensor_view(const far_tensor &t) : t_(t)
	{
		if (t.dtype != detail::dtype<std::remove_const_t<T>>())
			throw error(FAR_BAD_ARGS, std::string("the tensor has dtype ") +
							  far_dtype_name(static_cast<far_dtype>(t.dtype)) + ", not " +
							  far_dtype_name(detail::dtype<std::remove_const_t<T>>()));
	}
	T *data() const
	{
		return static_cast<T *>(t_.data);
	}
	T *begin() const
	{
		return data();
	}
	T *end() const
	{
		return data() + size();
	}
	/** Elements. */
	std::size_t size() const
	{
		return far_tensor_count(&t_);
	}
	unsigned rank() const
	{
		return t_.ndim;
	}
	std::uint64_t shape(unsigned k) const
	{
		return t_.shape[k];
	}
	T &operator[](std::size_t i) const
	{
		return data()[i];
	}
	const far_tensor &get() const
	{
		return t_;
	}
};

/** A tensor_view whose number of dimensions is a part of its type and, with the dtype, of signatures: ranked_view<const
 * float, 2> is "Tensor<f32,2>", which the caller checks. */
template <typename T, unsigned Rank> class ranked_view : public tensor_view<T>
{
	static_assert(Rank <= FAR_DIMS_MAX, "a tensor has at most 8 dimensions");

      public:
	explicit ranked_view(const tensor_view<T> &t) : tensor_view<T>(t)
	{
		if (t.rank() != Rank)
			throw error(FAR_BAD_ARGS, "the tensor has " + std::to_string(t.rank()) + " dimensions, not " +
							  std::to_string(Rank));
	}
	ranked_view(T *data, std::initializer_list<std::uint64_t> shape) : ranked_view(tensor_view<T>(data, shape))
	{
	}
};

/** A dense tensor with elements of its own. */
template <typename T> struct tensor {
	std::vector<std::uint64_t> shape;
	std::vector<T> data; // as many as the product of `shape`
};

/** Elements in memory of far_alloc_shared(), which workers of this host may read. Movable. */
template <typename T> class shared_array
{
	static_assert(std::is_trivially_copyable_v<T>, "other processes read the elements");
	struct deleter {
		void operator()(T *at) const
		{
			far_free(at);
		}
	};
	std::unique_ptr<T, deleter> at_;
	std::size_t size_;

      public:
	/** Throws RESOURCE. */
	explicit shared_array(std::size_t size) : size_(size)
	{
		far_err err{};
		if (size > std::numeric_limits<std::size_t>::max() / sizeof(T))
			throw error(FAR_RESOURCE, "an array of " + std::to_string(size) + " elements has no memory");
		at_.reset(static_cast<T *>(far_alloc_shared(size * sizeof(T), &err)));
		if (!at_)
			throw error(err);
	}
	T *data() const
	{
		return at_.get();
	}
	T *begin() const
	{
		return data();
	}
	T *end() const
	{
		return data() + size_;
	}
	std::size_t size() const
	{
		return size_;
	}
	T &operator[](std::size_t i) const
	{
		return data()[i];
	}
	/** All elements, as an argument. */
	tensor_view<T> view() const
	{
		return tensor_view<T>(data(), {size_});
	}
};

template <typename T> class rref;
class value;

namespace detail
{
/** Items of lists and entries of dicts that an argument refers to. Never moved once they are there. */
struct arena {
	std::deque<std::vector<far_val>> lists;
	std::deque<std::vector<far_dict_entry>> dicts;
};

template <typename T, typename = void> struct type_of; // word, encode(), decode()

template <> struct type_of<bool> {
	static constexpr const char *word = "bool";
	static far_val encode(bool b, arena &)
	{
		return far_bool(b);
	}
	static bool decode(const far_val &v)
	{
		if (v.type != FAR_TYPE_BOOL)
			mismatch(v, "bool");
		return v.u.b;
	}
};

template <typename T> struct type_of<T, std::enable_if_t<is_number<T> && std::is_integral_v<T>>> {
	static constexpr const char *word = "int";
	static far_val encode(T i, arena &)
	{
		if constexpr (std::is_unsigned_v<T>)
			return far_uint(i);
		else
			return far_int(i);
	}
	static T decode(const far_val &v)
	{
		if (v.type != FAR_TYPE_INT)
			mismatch(v, "int");
		bool fits = v.u.i < 0 ? std::is_signed_v<T> &&
						v.u.i >= static_cast<std::int64_t>(std::numeric_limits<T>::min())
				      : static_cast<std::uint64_t>(v.u.i) <=
						static_cast<std::uint64_t>(std::numeric_limits<T>::max());
		if (!fits)
			throw error(FAR_BAD_ARGS, "the int " + std::to_string(v.u.i) + " is out of the range of " +
							  std::to_string(sizeof(T)) + " bytes");
		return static_cast<T>(v.u.i);
	}
};

template <typename T> struct type_of<T, std::enable_if_t<std::is_floating_point_v<T>>> {
	static constexpr const char *word = "float";
	static far_val encode(T f, arena &)
	{
		return far_float(static_cast<double>(f));
	}
	static T decode(const far_val &v)
	{
		if (v.type == FAR_TYPE_INT)
			return static_cast<T>(v.u.i);
		if (v.type != FAR_TYPE_FLOAT)
			mismatch(v, "float");
		return static_cast<T>(v.u.f);
	}
};

template <> struct type_of<std::string_view> {
	static constexpr const char *word = "str";
	static far_val encode(std::string_view s, arena &)
	{
		far_val v = far_bytes(s.data(), s.size());
		v.type = FAR_TYPE_STRING;
		return v;
	}
	static std::string_view decode(const far_val &v)
	{
		if (v.type != FAR_TYPE_STRING)
			mismatch(v, "str");
		return {static_cast<const char *>(v.u.s.data), v.u.s.len};
	}
};

template <> struct type_of<std::string> {
	static constexpr const char *word = "str";
	static far_val encode(const std::string &s, arena &a)
	{
		return type_of<std::string_view>::encode(s, a);
	}
	static std::string decode(const far_val &v)
	{
		return std::string(type_of<std::string_view>::decode(v));
	}
};

template <> struct type_of<const char *> {
	static constexpr const char *word = "str";
	static far_val encode(const char *s, arena &)
	{
		return far_str(s);
	}
};
template <> struct type_of<char *> : type_of<const char *> {
};

template <> struct type_of<bytes> {
	static constexpr const char *word = "bytes";
	static far_val encode(const bytes &b, arena &)
	{
		return far_bytes(b.data, b.size);
	}
	static bytes decode(const far_val &v)
	{
		if (v.type != FAR_TYPE_BYTES)
			mismatch(v, "bytes");
		return {v.u.s.data, v.u.s.len};
	}
};

template <typename T> struct type_of<tensor_view<T>> {
	static constexpr const char *word = "Tensor";
	static far_val encode(const tensor_view<T> &t, arena &)
	{
		return far_tensor_val(&t.get());
	}
	static tensor_view<T> decode(const far_val &v)
	{
		static_assert(std::is_const_v<T>,
			      "the elements of a received tensor are not written: tensor_view<const T>");
		if (v.type != FAR_TYPE_TENSOR)
			mismatch(v, "Tensor");
		return tensor_view<T>(v.u.t);
	}
};

constexpr const char *dtype_word(far_dtype t)
{
#define FARCALL_DTYPE_WORD(name, bytes, text) text,
	constexpr const char *words[FAR_DTYPE_COUNT] = {"?", FAR_DTYPE_LIST(FARCALL_DTYPE_WORD)};
#undef FARCALL_DTYPE_WORD
	return words[t];
}

/** "Tensor<f32,2>", with a NUL. */
constexpr std::array<char, 24> ranked_word(const char *dtype, unsigned rank)
{
	std::array<char, 24> out{};
	std::size_t n = 0;
	for (const char *c = "Tensor<"; *c; c++)
		out[n++] = *c;
	for (const char *c = dtype; *c; c++)
		out[n++] = *c;
	out[n++] = ',';
	out[n++] = static_cast<char>('0' + rank);
	out[n++] = '>';
	return out;
}

template <typename T, unsigned Rank> struct type_of<ranked_view<T, Rank>> : type_of<tensor_view<T>> {
	static constexpr auto text = ranked_word(dtype_word(dtype<std::remove_const_t<T>>()), Rank);
	static constexpr const char *word = text.data();
	static ranked_view<T, Rank> decode(const far_val &v)
	{
		return ranked_view<T, Rank>(type_of<tensor_view<T>>::decode(v));
	}
};

template <typename T> struct type_of<std::vector<T>, std::enable_if_t<is_number<T>>> {
	static constexpr const char *word = "Tensor";
	static far_val encode(const std::vector<T> &x, arena &)
	{
		far_tensor t = far_tensor_1d(dtype<T>(), x.data(), x.size());
		return far_tensor_val(&t);
	}
	static std::vector<T> decode(const far_val &v)
	{
		auto t = type_of<tensor_view<const T>>::decode(v);
		if (t.rank() != 1)
			throw error(FAR_BAD_ARGS, "the tensor has " + std::to_string(t.rank()) + " dimensions, not 1");
		return std::vector<T>(t.begin(), t.end());
	}
};

#ifdef FARCALL_SPAN
/** The elements of a tensor of one dimension. */
template <typename T, std::size_t N>
struct type_of<std::span<T, N>, std::enable_if_t<is_number<std::remove_const_t<T>>>> {
	static constexpr const char *word = "Tensor";
	static far_val encode(std::span<T, N> x, arena &)
	{
		far_tensor t = far_tensor_1d(dtype<std::remove_const_t<T>>(), x.data(), x.size());
		return far_tensor_val(&t);
	}
	static std::span<T> decode(const far_val &v)
	{
		auto t = type_of<tensor_view<T>>::decode(v);
		if (t.rank() != 1)
			throw error(FAR_BAD_ARGS, "the tensor has " + std::to_string(t.rank()) + " dimensions, not 1");
		return {t.begin(), t.end()};
	}
};
#endif

template <typename T> struct type_of<std::vector<T>, std::enable_if_t<!is_number<T>>> {
	static constexpr const char *word = "List";
	static far_val encode(const std::vector<T> &x, arena &a)
	{
		a.lists.emplace_back();
		auto &items = a.lists.back();
		items.reserve(x.size());
		for (const auto &item : x)
			items.push_back(type_of<T>::encode(item, a));
		return far_list(items.data(), items.size());
	}
	static std::vector<T> decode(const far_val &v)
	{
		if (v.type != FAR_TYPE_LIST)
			mismatch(v, "List");
		std::vector<T> x;
		x.reserve(v.u.list.n);
		for (std::size_t i = 0; i < v.u.list.n; i++)
			x.push_back(type_of<T>::decode(v.u.list.items[i]));
		return x;
	}
};

template <typename T> struct type_of<std::map<std::string, T>> {
	static constexpr const char *word = "Dict";
	static far_val encode(const std::map<std::string, T> &x, arena &a)
	{
		a.dicts.emplace_back();
		auto &entries = a.dicts.back();
		entries.reserve(x.size());
		for (const auto &[key, item] : x)
			entries.push_back(far_entry(type_of<std::string>::encode(key, a), type_of<T>::encode(item, a)));
		return far_dict(entries.data(), entries.size());
	}
	static std::map<std::string, T> decode(const far_val &v)
	{
		if (v.type != FAR_TYPE_DICT)
			mismatch(v, "Dict");
		std::map<std::string, T> x;
		for (std::size_t i = 0; i < v.u.dict.n; i++)
			x.emplace(type_of<std::string>::decode(v.u.dict.entries[i].key),
				  type_of<T>::decode(v.u.dict.entries[i].value));
		return x;
	}
};

template <typename T> struct type_of<tensor<T>> {
	static constexpr const char *word = "Tensor";
	static far_val encode(const tensor<T> &x, arena &)
	{
		std::uint64_t count = 1;
		for (std::uint64_t n : x.shape)
			count *= n;
		if (count != x.data.size() || x.shape.size() > FAR_DIMS_MAX)
			throw error(FAR_INVALID,
				    "a tensor's shape does not fit its " + std::to_string(x.data.size()) + " elements");
		far_tensor t = far_tensor_nd(dtype<T>(), x.data.data(), static_cast<unsigned>(x.shape.size()),
					     x.shape.data(), nullptr);
		return far_tensor_val(&t);
	}
	static tensor<T> decode(const far_val &v)
	{
		auto t = type_of<tensor_view<const T>>::decode(v);
		return {{t.get().shape, t.get().shape + t.rank()}, {t.begin(), t.end()}};
	}
};

/** "none|float", with a NUL. */
constexpr std::array<char, 32> optional_word(const char *of)
{
	std::array<char, 32> out{};
	std::size_t n = 0;
	for (const char *c = "none|"; *c; c++)
		out[n++] = *c;
	for (const char *c = of; *c; c++)
		out[n++] = *c;
	return out;
}

/** None, or a value. */
template <typename T> struct type_of<std::optional<T>> {
	static constexpr auto text = optional_word(type_of<T>::word);
	static constexpr const char *word = text.data();
	static far_val encode(const std::optional<T> &x, arena &a)
	{
		return x ? type_of<T>::encode(*x, a) : far_none();
	}
	static std::optional<T> decode(const far_val &v)
	{
		if (v.type == FAR_TYPE_NONE)
			return std::nullopt;
		return type_of<T>::decode(v);
	}
};
template <> struct type_of<std::nullopt_t> {
	static far_val encode(std::nullopt_t, arena &)
	{
		return far_none();
	}
};

/** Borrowed: as a parameter of a handler, or an argument. */
template <> struct type_of<far_val> {
	static constexpr const char *word = "Any";
	static far_val encode(const far_val &v, arena &)
	{
		return v;
	}
	static const far_val &decode(const far_val &v)
	{
		return v;
	}
};

/** Types that refer to the value from which they were read. */
template <typename T> struct borrows : std::false_type {
};
template <> struct borrows<std::string_view> : std::true_type {
};
template <> struct borrows<bytes> : std::true_type {
};
template <typename T> struct borrows<tensor_view<T>> : std::true_type {
};
template <typename T, unsigned Rank> struct borrows<ranked_view<T, Rank>> : std::true_type {
};
template <typename T> struct borrows<std::optional<T>> : borrows<T> {
};
#ifdef FARCALL_SPAN
template <typename T, std::size_t N> struct borrows<std::span<T, N>> : std::true_type {
};
#endif

template <typename T> using plain = std::remove_cv_t<std::remove_reference_t<T>>;
template <typename T> using argument_type = std::decay_t<T>;

template <typename T> constexpr const char *word_of()
{
	if constexpr (std::is_void_v<T>)
		return "none";
	else
		return type_of<plain<T>>::word;
}
} // namespace detail

/** A value that frees what it owns. Movable. */
class value
{
	far_val v_{};

      public:
	value() = default;
	/** Takes over what `v` owns. */
	explicit value(const far_val &v) noexcept : v_(v)
	{
	}
	value(value &&o) noexcept : v_(std::exchange(o.v_, far_none()))
	{
	}
	value &operator=(value &&o) noexcept
	{
		std::swap(v_, o.v_);
		return *this;
	}
	value(const value &) = delete;
	value &operator=(const value &) = delete;
	~value()
	{
		far_val_fini(&v_);
	}

	/** A deep copy: keeps an argument beyond its handler. far_val_dup(). */
	static value copy_of(const far_val &v)
	{
		value out;
		far_err err{};
		detail::check(far_val_dup(&v, &out.v_, &err), err);
		return out;
	}
	/** Throws BAD_ARGS if it is of another type. std::string_view, bytes and tensor_view refer to this value. */
	template <typename T> T as() const &
	{
		return detail::type_of<T>::decode(v_);
	}
	template <typename T> T as() &&
	{
		static_assert(!detail::borrows<T>::value, "would refer to a value that is gone: name the value first");
		return detail::type_of<T>::decode(v_);
	}
	far_type type() const
	{
		return static_cast<far_type>(v_.type);
	}
	const far_val &get() const
	{
		return v_;
	}
	far_val *put()
	{
		far_val_fini(&v_);
		return &v_;
	}
};

namespace detail
{
template <> struct type_of<value> {
	static constexpr const char *word = "Any";
	static far_val encode(const value &v, arena &)
	{
		return v.get();
	}
	static value decode(const far_val &v)
	{
		return value::copy_of(v);
	}
};

/** A result: of a view it would be gone with the value that it refers to. */
template <typename R> R result_of(value &&v)
{
	static_assert(!borrows<R>::value, "the bytes belong to the result: ask for farcall::value");
	if constexpr (std::is_void_v<R>)
		return;
	else if constexpr (std::is_same_v<R, value>)
		return std::move(v);
	else
		try {
			return type_of<R>::decode(v.get());
		} catch (const error &e) {
			far_err err = e.details();
			err.executed = FAR_EXECUTED_YES; // the result came, and is of another type
			throw error(err);
		}
}

/** The arguments of a call, encoded. They refer to those of the caller. */
template <typename... A> class arguments
{
	arena arena_;
	std::vector<far_val> v_;

      public:
	explicit arguments(const A &...a)
	{
		static_assert(sizeof...(A) <= FAR_ARGS_MAX, "a call has at most 16 arguments");
		v_.reserve(sizeof...(A));
		(v_.push_back(type_of<argument_type<A>>::encode(a, arena_)), ...);
	}
	const far_val *data() const
	{
		return v_.data();
	}
	std::size_t size() const
	{
		return v_.size();
	}
};
} // namespace detail

namespace detail
{
/** Calls what it owns, once, and frees it. */
template <typename F> struct last_call {
	static void run(void *user)
	{
		std::unique_ptr<F> f(static_cast<F *>(user));
		(*f)();
	}
	void operator()(F *f) const
	{
		run(f);
	}
};
} // namespace detail

// ---- options of a call ----

/** far_call_opts with types. */
struct call_options {
	std::chrono::nanoseconds timeout = default_timeout;
	bool retry = false;
	int shard = -1; /* of the worker; -1: the function's default */
	int via = -1;   /* shard of this worker; -1: chosen by thread */
	far_call_opts get() const
	{
		far_call_opts o{};
		o.timeout_ns = detail::limit(timeout);
		o.retry = retry;
		o.via = via < 0 ? 0 : FAR_VIA(via);
		return o;
	}
	/** get() in `out`; nullptr if all but the shard are the defaults: small calls are faster then. */
	const far_call_opts *get(far_call_opts &out) const
	{
		if (timeout == default_timeout && !retry && via < 0)
			return nullptr;
		out = get();
		return &out;
	}
};

// ---- futures ----

/**
 * The result of a call, of type R. Copies share it. far_future_wait(), far_future_then().
 *
 * With C++20 a coroutine may return it and `co_await` it. The coroutine begins at once. After `co_await` it goes on
 * where far_future_on_done() says: for a call on the thread that polls the shard, where it must not wait otherwise.
 * Its exceptions become the error of its future. GCC 12 refuses an expression that has `co_await` and a braced list of
 * initialisers ("array used as initializer"): give the list a name before.
 */
template <typename R = value> class future
{
	far_future *f_ = nullptr;

      public:
	using result_type = R;
	future() = default;
	/** Takes over a reference. */
	explicit future(far_future *f) noexcept : f_(f)
	{
	}
	future(const future &o) noexcept : f_(o.f_ ? far_future_ref(o.f_) : nullptr)
	{
	}
	future(future &&o) noexcept : f_(std::exchange(o.f_, nullptr))
	{
	}
	future &operator=(future o) noexcept
	{
		std::swap(f_, o.f_);
		return *this;
	}
	~future()
	{
		far_future_free(f_);
	}

	/** Waits, and returns the result or throws its error. PENDING: the limit is over, the call goes on. */
	R get(std::chrono::nanoseconds timeout = default_timeout) const
	{
		value v;
		far_err err{};
		detail::check(far_future_wait(f_, detail::limit(timeout), v.put(), &err), err);
		return detail::result_of<R>(std::move(v));
	}
	bool done() const
	{
		return f_ && far_future_done(f_);
	}
	void cancel() const
	{
		far_err err{};
		detail::check(far_future_cancel(f_, &err), err);
	}
	far_future *native() const
	{
		return f_;
	}

	/** A future of fn(*this), which runs on the thread that far_future_then() states, and may throw. */
	template <typename F> auto then(F fn) const
	{
		return chain(std::move(fn), [this](auto run, auto *user, far_future **child, far_err *err) {
			return far_future_then(f_, run, user, child, err);
		});
	}
	/** The same on a fiber of agent `a`, where `fn` may wait: far_future_then_fiber(). If the agent ends first,
	 * `fn` does not run, and its captures stay. */
	template <typename A, typename F> auto then_fiber(const A &a, F fn) const
	{
		return chain(std::move(fn), [this, &a](auto run, auto *user, far_future **child, far_err *err) {
			return far_future_then_fiber(a.native(), f_, run, user, child, err);
		});
	}

      private:
	template <typename F, typename Add> auto chain(F fn, Add add) const
	{
		using next = std::invoke_result_t<F, future>;
		struct state {
			F fn;
		};
		auto run = [](far_future *parent, far_val *out, far_err *err, void *user) -> far_status {
			std::unique_ptr<state> s(static_cast<state *>(user));
			try {
				future self(far_future_ref(parent));
				if constexpr (std::is_void_v<next>) {
					s->fn(std::move(self));
				} else {
					detail::arena a;
					auto result = s->fn(std::move(self));
					far_val v = detail::type_of<next>::encode(result, a);
					detail::check(far_val_dup(&v, out, err), *err);
				}
				return FAR_OK;
			} catch (const error &e) {
				*err = e.details();
				return e.status();
			} catch (const std::exception &e) {
				std::snprintf(err->text, sizeof err->text, "%s", e.what());
				return FAR_REMOTE;
			} catch (...) {
				std::snprintf(err->text, sizeof err->text, "an exception of an unknown type");
				return FAR_REMOTE;
			}
		};
		far_err err{};
		far_future *child = nullptr;
		auto s = std::make_unique<state>(state{std::move(fn)});
		detail::check(add(run, s.get(), &child, &err), err);
		s.release(); // run() has it
		return future<next>(child);
	}

      public:
#ifdef FARCALL_COROUTINES
	bool await_ready() const
	{
		return done();
	}
	void await_suspend(std::coroutine_handle<> h) const
	{
		far_err err{};
		detail::check(far_future_on_done(
				      f_,
				      [](far_future *, void *user) { std::coroutine_handle<>::from_address(user)(); },
				      h.address(), &err),
			      err);
	}
	R await_resume() const
	{
		return get();
	}

	struct promise_base {
		far_future *f = nullptr;
		promise_base()
		{
			far_err err{};
			detail::check(far_future_create(&f, &err), err);
		}
		~promise_base()
		{
			far_future_free(f);
		}
		promise_base(const promise_base &) = delete;
		promise_base &operator=(const promise_base &) = delete;
		future get_return_object()
		{
			return future(far_future_ref(f));
		}
		std::suspend_never initial_suspend() noexcept
		{
			return {};
		}
		std::suspend_never final_suspend() noexcept
		{
			return {};
		}
		void unhandled_exception()
		{
			try {
				throw;
			} catch (const error &e) {
				far_future_pass_error(f, &e.details());
			} catch (const std::exception &e) {
				far_future_set_error(f, FAR_REMOTE, 0, "%s", e.what());
			} catch (...) {
				far_future_set_error(f, FAR_REMOTE, 0, "an exception of an unknown type");
			}
		}
	};
	struct promise_of_none : promise_base {
		void return_void()
		{
			far_future_set_value(this->f, nullptr, nullptr);
		}
	};
	struct promise_of_value : promise_base {
		template <typename T> void return_value(const T &x)
		{
			detail::arena a;
			far_err err{};
			far_val v = detail::type_of<detail::argument_type<T>>::encode(x, a);
			detail::check(far_future_set_value(this->f, &v, &err), err);
		}
	};
	using promise_type = std::conditional_t<std::is_void_v<R>, promise_of_none, promise_of_value>;
#endif
};

/** Waits for all; throws the first error. far_future_wait_all(). */
template <typename R>
void wait_all(const std::vector<future<R>> &all, std::chrono::nanoseconds timeout = default_timeout)
{
	std::vector<far_future *> f;
	far_err err{};
	f.reserve(all.size());
	for (const auto &one : all)
		f.push_back(one.native());
	detail::check(far_future_wait_all(f.data(), f.size(), detail::limit(timeout), &err), err);
}

// ---- references ----

/** A reference to a value or object of type T on its owner. Copies share the handle. <farcall/rref.h>. */
template <typename T = value> class rref
{
	far_rref *r_ = nullptr;

      public:
	rref() = default;
	/** Takes over a reference to the handle. */
	explicit rref(far_rref *r) noexcept : r_(r)
	{
	}
	rref(const rref &o) noexcept : r_(o.r_ ? far_rref_ref(o.r_) : nullptr)
	{
	}
	rref(rref &&o) noexcept : r_(std::exchange(o.r_, nullptr))
	{
	}
	rref &operator=(rref o) noexcept
	{
		std::swap(r_, o.r_);
		return *this;
	}
	~rref()
	{
		far_rref_free(r_);
	}

	far_rref *native() const
	{
		return r_;
	}
	bool is_owner() const
	{
		return far_rref_is_owner(r_);
	}
	std::string owner_name() const
	{
		return far_rref_owner_name(r_);
	}

	/** A copy of the value. far_rref_to_here(). */
	T to_here(std::chrono::nanoseconds timeout = default_timeout) const
	{
		value v;
		far_err err{};
		detail::check(far_rref_to_here(r_, detail::limit(timeout), v.put(), &err), err);
		return detail::result_of<T>(std::move(v));
	}
	future<T> to_here_async(std::chrono::nanoseconds timeout = default_timeout) const
	{
		far_future *f = nullptr;
		far_err err{};
		detail::check(far_rref_to_here_async(r_, detail::limit(timeout), &f, &err), err);
		return future<T>(f);
	}
	/** Waits until the owner has confirmed it. far_rref_wait(). */
	void wait(std::chrono::nanoseconds timeout = default_timeout) const
	{
		far_err err{};
		detail::check(far_rref_wait(r_, detail::limit(timeout), &err), err);
	}
	/** The value on its owner, without a copy. far_rref_local_value(). */
	value local_value(std::chrono::nanoseconds timeout = default_timeout) const
	{
		value v;
		far_err err{};
		detail::check(far_rref_local_value(r_, detail::limit(timeout), v.put(), &err), err);
		return v;
	}
	/** The object itself, on its owner. far_rref_object(). */
	T &object(std::chrono::nanoseconds timeout = default_timeout) const
	{
		void *o = nullptr;
		far_err err{};
		detail::check(far_rref_object(r_, nullptr, detail::limit(timeout), &o, &err), err);
		return *static_cast<T *>(o);
	}

	/** A method of the object. far_rref_rpc_sync(), far_rref_rpc_async(), far_rref_remote(). */
	template <typename R = value, typename... A> R call(const char *method, const A &...a) const
	{
		return call_with<R>(call_options{}, method, a...);
	}
	template <typename R = value, typename... A> future<R> async(const char *method, const A &...a) const
	{
		return async_with<R>(call_options{}, method, a...);
	}
	template <typename R = value, typename... A> rref<R> remote(const char *method, const A &...a) const
	{
		return remote_with<R>(call_options{}, method, a...);
	}
	/** The same with options; the shard is the value's. */
	template <typename R = value, typename... A>
	R call_with(const call_options &o, const char *method, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_call_opts given;
		value v;
		far_err err{};
		detail::check(far_rref_rpc_sync(r_, method, args.data(), args.size(), o.get(given), v.put(), &err),
			      err);
		return detail::result_of<R>(std::move(v));
	}
	template <typename R = value, typename... A>
	future<R> async_with(const call_options &o, const char *method, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_call_opts given;
		far_future *f = nullptr;
		far_err err{};
		detail::check(far_rref_rpc_async(r_, method, args.data(), args.size(), o.get(given), &f, &err), err);
		return future<R>(f);
	}
	template <typename R = value, typename... A>
	rref<R> remote_with(const call_options &o, const char *method, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_call_opts given;
		far_rref *out = nullptr;
		far_err err{};
		detail::check(far_rref_remote(r_, method, args.data(), args.size(), o.get(given), &out, &err), err);
		return rref<R>(out);
	}

	/** A function of the owner, with the value as its first argument. far_rref_call() and its relatives. */
	template <typename R = value, typename... A> R apply(const char *function, const A &...a) const
	{
		return apply_with<R>(call_options{}, function, a...);
	}
	template <typename R = value, typename... A> future<R> apply_async(const char *function, const A &...a) const
	{
		return apply_async_with<R>(call_options{}, function, a...);
	}
	template <typename R = value, typename... A> rref<R> apply_remote(const char *function, const A &...a) const
	{
		return apply_remote_with<R>(call_options{}, function, a...);
	}
	/** The same with options; the shard is the value's. */
	template <typename R = value, typename... A>
	R apply_with(const call_options &o, const char *function, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_call_opts given;
		value v;
		far_err err{};
		detail::check(far_rref_call(r_, function, args.data(), args.size(), o.get(given), v.put(), &err), err);
		return detail::result_of<R>(std::move(v));
	}
	template <typename R = value, typename... A>
	future<R> apply_async_with(const call_options &o, const char *function, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_call_opts given;
		far_future *f = nullptr;
		far_err err{};
		detail::check(far_rref_call_async(r_, function, args.data(), args.size(), o.get(given), &f, &err), err);
		return future<R>(f);
	}
	template <typename R = value, typename... A>
	rref<R> apply_remote_with(const call_options &o, const char *function, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_call_opts given;
		far_rref *out = nullptr;
		far_err err{};
		detail::check(far_rref_call_remote(r_, function, args.data(), args.size(), o.get(given), &out, &err),
			      err);
		return rref<R>(out);
	}

	/** The reference as bytes, which agent::deserialize() reads, once. far_rref_serialize(). */
	std::vector<uint8_t> serialize() const
	{
		std::vector<uint8_t> bytes(FAR_RREF_BYTES);
		far_err err{};
		detail::check(far_rref_serialize(r_, bytes.data(), &err), err);
		return bytes;
	}
};

namespace detail
{
template <typename T> struct type_of<rref<T>> {
	static constexpr const char *word = "rref";
	static far_val encode(const rref<T> &r, arena &)
	{
		return far_rref_val(r.native());
	}
	static rref<T> decode(const far_val &v)
	{
		if (v.type != FAR_TYPE_RREF)
			mismatch(v, "rref");
		return rref<T>(far_rref_ref(v.u.rref));
	}
};
} // namespace detail

// ---- handlers ----

/** Result type of a handler that answers later: request::defer<R>(). */
template <typename R> struct later {
};

namespace detail
{
template <typename T> inline constexpr bool is_later = false;
template <typename R> inline constexpr bool is_later<later<R>> = true;
template <typename R> struct type_of<later<R>> {
	static constexpr const char *word = word_of<R>();
};
} // namespace detail

/** A request that is answered later, once, from any thread. Its destructor answers with an error. */
template <typename R> class deferred
{
	far_deferred *d_ = nullptr;

      public:
	deferred() = default;
	/** Takes it over. */
	explicit deferred(far_deferred *d) noexcept : d_(d)
	{
	}
	deferred(deferred &&o) noexcept : d_(std::exchange(o.d_, nullptr))
	{
	}
	deferred &operator=(deferred &&o) noexcept
	{
		std::swap(d_, o.d_);
		return *this;
	}
	deferred(const deferred &) = delete;
	deferred &operator=(const deferred &) = delete;
	~deferred()
	{
		if (d_ && std::uncaught_exceptions())
			far_deferred_fail(d_, FAR_REMOTE, 0, "an exception of the callee ended the deferred request");
		else if (d_)
			far_deferred_drop(d_);
	}
	/** Answers. False: the caller no longer waits. far_deferred_return(). */
	template <typename T = R> bool answer(const T &x)
	{
		detail::arena a;
		far_val v = detail::type_of<detail::argument_type<T>>::encode(x, a);
		return end(far_deferred_return(std::exchange(d_, nullptr), &v));
	}
	bool answer()
	{
		static_assert(std::is_void_v<R>, "the answer has a value");
		return end(far_deferred_return(std::exchange(d_, nullptr), nullptr));
	}
	void fail(far_status status, const std::string &text, int code = 0)
	{
		end(far_deferred_fail(std::exchange(d_, nullptr), status, code, "%s", text.c_str()));
	}

      private:
	static bool end(far_status status)
	{
		if (status == FAR_CANCELLED || status == FAR_PEER_LOST)
			return false;
		detail::check(status);
		return true;
	}
};

/** The request that a handler answers: its first parameter, if it wants one. */
class request
{
	far_req *req_;

      public:
	/** Keeps the request open beyond the handler, whose result type is then later<R>. far_defer(). */
	template <typename R> deferred<R> defer() const
	{
		far_deferred *d = nullptr;
		detail::check(far_defer(req_, &d));
		return deferred<R>(d);
	}

      public:
	explicit request(far_req *req) : req_(req)
	{
	}
	far_to from() const
	{
		return far_req_from(req_);
	}
	far_agent *agent() const
	{
		return far_req_agent(req_);
	}
	bool cancelled() const
	{
		return far_req_cancelled(req_);
	}
	std::uint64_t time_left_ns() const
	{
		return far_req_time_left_ns(req_);
	}
	/** Keeps an argument beyond the handler, without a copy where it can. far_req_keep(). */
	value keep(const far_val &v) const
	{
		far_val out = far_none();
		far_err err{};
		detail::check(far_req_keep(req_, &v, &out, &err), err);
		return value(out);
	}
	far_req *native() const
	{
		return req_;
	}
};

/** Where a handler runs: enum far_kind. */
enum class kind { on_shard = FAR_KIND_INLINE, fiber = FAR_KIND_FIBER, blocking = FAR_KIND_BLOCKING };

namespace detail
{
/** Result and parameters of something that can be called. */
template <typename F> struct signature_of : signature_of<decltype(&F::operator())> {
};
template <typename R, typename... P> struct signature_of<R (*)(P...)> {
	using result = R;
	using parameters = std::tuple<P...>;
};
template <typename R, typename... P> struct signature_of<R(P...)> : signature_of<R (*)(P...)> {
};
template <typename C, typename R, typename... P> struct signature_of<R (C::*)(P...) const> : signature_of<R (*)(P...)> {
};
template <typename C, typename R, typename... P> struct signature_of<R (C::*)(P...)> : signature_of<R (*)(P...)> {
};
template <typename R, typename... P> struct signature_of<R (*)(P...) noexcept> : signature_of<R (*)(P...)> {
};
template <typename C, typename R, typename... P>
struct signature_of<R (C::*)(P...) const noexcept> : signature_of<R (*)(P...)> {
};

template <typename P> inline constexpr bool is_request = std::is_same_v<plain<P>, request>;

/** Parameters of a tuple from the `Skip`-th on. */
template <std::size_t Skip, typename Tuple, std::size_t... I>
auto tail_of(std::index_sequence<I...>) -> std::tuple<std::tuple_element_t<Skip + I, Tuple>...>;
template <std::size_t Skip, typename Tuple>
using tail = decltype(tail_of<Skip, Tuple>(std::make_index_sequence<std::tuple_size_v<Tuple> - Skip>()));

template <typename Tuple> constexpr bool begins_with_request()
{
	if constexpr (std::tuple_size_v<Tuple> == 0)
		return false;
	else
		return is_request<std::tuple_element_t<0, Tuple>>;
}

/** "demo::f(x, y)" and the types → "demo::f(float x, Tensor y) -> str"; without brackets the names are a0, a1, … */
template <typename Result, typename... P> std::string signature_text(const std::string &head, std::tuple<P...> *)
{
	static constexpr const char *words[] = {word_of<P>()..., nullptr};
	std::string name = head.substr(0, head.find('('));
	std::vector<std::string> names;
	if (name.size() < head.size()) {
		std::string word;
		for (char c : head.substr(name.size() + 1)) {
			if (c == ',' || c == ')') {
				if (!word.empty())
					names.push_back(word);
				word.clear();
			} else if (c != ' ') {
				word += c;
			}
		}
		if (names.size() != sizeof...(P))
			throw error(FAR_INVALID, head + " names " + std::to_string(names.size()) +
							 " parameters, and the function has " +
							 std::to_string(sizeof...(P)));
	}
	std::string text = name + "(";
	for (std::size_t i = 0; i < sizeof...(P); i++)
		text += std::string(i ? ", " : "") + words[i] + " " +
			(names.empty() ? "a" + std::to_string(i) : names[i]);
	return text + ") -> " + word_of<Result>();
}

/** Runs `body` in a handler; its exceptions are the answer. */
template <typename Body> far_status guarded(far_req *req, Body body) noexcept
{
	try {
		return body();
	} catch (const error &e) {
		return far_fail(req, e.status() == FAR_OK ? FAR_REMOTE : e.status(), e.code(), "%s", e.what());
	} catch (const std::exception &e) {
		return far_fail(req, FAR_REMOTE, 0, "%s", e.what());
	} catch (...) {
		return far_fail(req, FAR_REMOTE, 0, "the handler threw something that is no std::exception");
	}
}

template <typename R, typename Call> far_status answer(far_req *req, Call call)
{
	if constexpr (is_later<R>) {
		call();
		return FAR_OK;
	} else if constexpr (std::is_void_v<R>) {
		call();
		return far_return(req, nullptr);
	} else {
		arena a;
		auto &&result = call();
		far_val v = type_of<plain<R>>::encode(result, a);
		return far_return(req, &v);
	}
}

template <typename... P, std::size_t... I, typename F>
decltype(auto) apply_args(std::tuple<P...> *, std::index_sequence<I...>, const far_val *args, F &&f)
{
	return f(type_of<plain<P>>::decode(args[I])...);
}

template <typename F> struct handler {
	using shape = signature_of<F>;
	static constexpr bool wants_request = begins_with_request<typename shape::parameters>();
	using parameters = tail<wants_request, typename shape::parameters>;
	static constexpr std::size_t count = std::tuple_size_v<parameters>;

	static far_status run(far_req *req, const far_val *args, std::size_t, void *user) noexcept
	{
		F &fn = *static_cast<F *>(user);
		return guarded(req, [&] {
			return answer<typename shape::result>(req, [&]() -> decltype(auto) {
				return apply_args(static_cast<parameters *>(nullptr), std::make_index_sequence<count>(),
						  args, [&](auto &&...a) -> decltype(auto) {
							  if constexpr (wants_request)
								  return fn(request(req),
									    std::forward<decltype(a)>(a)...);
							  else
								  return fn(std::forward<decltype(a)>(a)...);
						  });
			});
		});
	}
};

/** A method: its first parameter is the object. */
template <typename T, typename F> struct method {
	using shape = signature_of<F>;
	using parameters = tail<1, typename shape::parameters>;
	static constexpr std::size_t count = std::tuple_size_v<parameters>;

	static far_status run(far_req *req, void *object, const far_val *args, std::size_t, void *user) noexcept
	{
		F &fn = *static_cast<F *>(user);
		return guarded(req, [&] {
			return answer<typename shape::result>(req, [&]() -> decltype(auto) {
				return apply_args(static_cast<parameters *>(nullptr), std::make_index_sequence<count>(),
						  args, [&](auto &&...a) -> decltype(auto) {
							  return fn(*static_cast<T *>(object),
								    std::forward<decltype(a)>(a)...);
						  });
			});
		});
	}
};

/** A constructor: returns std::unique_ptr<T>. */
template <typename T, typename F> struct constructor {
	using shape = signature_of<F>;
	using parameters = typename shape::parameters;
	static constexpr std::size_t count = std::tuple_size_v<parameters>;

	static far_status run(far_req *req, const far_val *args, std::size_t, void *user) noexcept
	{
		F &fn = *static_cast<F *>(user);
		return guarded(req, [&] {
			std::unique_ptr<T> made =
				apply_args(static_cast<parameters *>(nullptr), std::make_index_sequence<count>(), args,
					   [&](auto &&...a) { return fn(std::forward<decltype(a)>(a)...); });
			far_status status = far_return_object(req, made.get());
			if (status == FAR_OK)
				made.release(); // the engine has it
			return status;
		});
	}
};
} // namespace detail

/** Functions and classes of an agent. Must outlive it: the agent calls into it. */
class registry
{
	struct of_class {
		std::string name;
		std::deque<std::string> texts;
		std::vector<far_function> constructors;
		std::vector<far_method> methods;
		void (*destroy)(void *, void *);
	};
	std::deque<std::string> texts_;
	std::vector<far_function> functions_;
	std::deque<of_class> classes_;
	std::vector<std::shared_ptr<void>> kept_;

	template <typename F> F *keep(F fn)
	{
		auto p = std::make_shared<F>(std::move(fn));
		kept_.push_back(p);
		return p.get();
	}
	friend class agent;

      public:
	registry() = default;
	registry(const registry &) = delete;
	registry &operator=(const registry &) = delete;

	/**
	 * A function. `name`: "demo::scale", or "demo::scale(x, factor)" to name the parameters for keywords. `fn`: a
	 * lambda or function; its first parameter may be a `request`. Throws INVALID.
	 */
	template <typename F>
	registry &add(const std::string &name, F fn, kind k = kind::on_shard, bool idempotent = false)
	{
		using h = detail::handler<F>;
		texts_.push_back(detail::signature_text<typename h::shape::result>(
			name, static_cast<typename h::parameters *>(nullptr)));
		far_function f{};
		f.signature = texts_.back().c_str();
		f.kind = static_cast<far_kind>(k);
		f.fn = h::run;
		f.user = keep(std::move(fn));
		f.flags = idempotent ? FAR_IDEMPOTENT : 0;
		functions_.push_back(f);
		return *this;
	}

	/** The constructors and methods of class T, added one after the other. */
	template <typename T> class class_builder
	{
		registry &r_;
		of_class &c_;

	      public:
		class_builder(registry &r, of_class &c) : r_(r), c_(c)
		{
		}
		/** `fn` returns std::unique_ptr<T>. */
		template <typename F> class_builder &constructor(F fn, const std::string &parameters = "")
		{
			using h = detail::constructor<T, F>;
			std::string text = detail::signature_text<void>(c_.name + parameters,
									static_cast<typename h::parameters *>(nullptr));
			c_.texts.push_back(text.substr(0, text.rfind("->")) + "-> " + c_.name);
			far_function f{};
			f.signature = c_.texts.back().c_str();
			f.kind = FAR_KIND_INLINE;
			f.fn = h::run;
			f.user = r_.keep(std::move(fn));
			c_.constructors.push_back(f);
			return *this;
		}
		/** `fn`'s first parameter is T &. */
		template <typename F> class_builder &method(const std::string &name, F fn, kind k = kind::on_shard)
		{
			using h = detail::method<T, F>;
			c_.texts.push_back(detail::signature_text<typename h::shape::result>(
				name, static_cast<typename h::parameters *>(nullptr)));
			far_method m{};
			m.signature = c_.texts.back().c_str();
			m.kind = static_cast<far_kind>(k);
			m.fn = h::run;
			m.user = r_.keep(std::move(fn));
			c_.methods.push_back(m);
			return *this;
		}
	};
	/** A class of objects, "demo::Counter". */
	template <typename T> class_builder<T> add_class(const std::string &name)
	{
		classes_.push_back({name, {}, {}, {}, [](void *object, void *) { delete static_cast<T *>(object); }});
		return class_builder<T>(*this, classes_.back());
	}
};

/**
 * A function of one incarnation of a worker, which agent::find() looked up. Its calls are agent::call() and
 * agent::async() without the lookups; PEER_LOST if the worker is another incarnation by now. To be destroyed when no
 * thread calls it, at the latest after the agent was shut down. far_callee.
 */
class callee
{
	struct last {
		void operator()(far_callee *c) const
		{
			far_callee_free(c);
		}
	};
	std::unique_ptr<far_callee, last> c_;

      public:
	/** Takes ownership. */
	explicit callee(far_callee *c) : c_(c)
	{
	}
	far_callee *native() const
	{
		return c_.get();
	}

	/** far_callee_rpc_sync(), far_callee_rpc_async(). */
	template <typename R = value, typename... A> R call(const A &...a) const
	{
		return call_with<R>(call_options{}, a...);
	}
	template <typename R = value, typename... A> future<R> async(const A &...a) const
	{
		return async_with<R>(call_options{}, a...);
	}
	/** The same with options; the shard is that of agent::find(). */
	template <typename R = value, typename... A> R call_with(const call_options &o, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_call_opts given;
		value v;
		far_err err{};
		detail::check(far_callee_rpc_sync(c_.get(), args.data(), args.size(), o.get(given), v.put(), &err),
			      err);
		return detail::result_of<R>(std::move(v));
	}
	template <typename R = value, typename... A> future<R> async_with(const call_options &o, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_call_opts given;
		far_future *f = nullptr;
		far_err err{};
		detail::check(far_callee_rpc_async(c_.get(), args.data(), args.size(), o.get(given), &f, &err), err);
		return future<R>(f);
	}
};

// ---- agents ----

/** A member of a group. Its destructor leaves without waiting (far_shutdown_local()) unless shutdown() was called. */
class agent
{
	far_agent *a_ = nullptr;

      public:
	/** Joins: far_init_rpc(). `r` must outlive the agent. Rank and size from the environment by default. */
	explicit agent(const std::string &name, const registry &r, far_opts opts = far_opts{}, int rank = FAR_RANK_ENV,
		       int world_size = FAR_WORLD_ENV)
	{
		std::vector<far_class> classes;
		for (const auto &c : r.classes_) {
			far_class one{};
			one.name = c.name.c_str();
			one.constructors = c.constructors.data();
			one.constructors_n = c.constructors.size();
			one.methods = c.methods.data();
			one.methods_n = c.methods.size();
			one.destroy = c.destroy;
			classes.push_back(one);
		}
		opts.functions = r.functions_.data();
		opts.functions_n = r.functions_.size();
		opts.classes = classes.data();
		opts.classes_n = classes.size();
		far_err err{};
		detail::check(far_init_rpc(name.c_str(), rank, world_size, &opts, &a_, &err), err);
	}
	agent(agent &&o) noexcept : a_(std::exchange(o.a_, nullptr))
	{
	}
	agent &operator=(agent &&o) noexcept
	{
		std::swap(a_, o.a_);
		return *this;
	}
	agent(const agent &) = delete;
	agent &operator=(const agent &) = delete;
	~agent()
	{
		if (a_)
			far_shutdown_local(a_, nullptr);
	}
	far_agent *native() const
	{
		return a_;
	}

	far_worker_info self() const
	{
		far_worker_info info;
		far_worker_self(a_, &info);
		return info;
	}
	int rank() const
	{
		return self().rank;
	}
	int world_size() const
	{
		return far_world_size(a_);
	}
	std::vector<far_worker_info> workers() const
	{
		std::vector<far_worker_info> all(static_cast<std::size_t>(world_size()));
		int n = far_workers(a_, all.data(), static_cast<int>(all.size()));
		if (n >= 0 &&
		    static_cast<std::size_t>(n) < all.size()) /* a member of a dynamic group has left meanwhile */
			all.resize(static_cast<std::size_t>(n));
		return all;
	}

	/** far_agent_fd() and far_agent_poll(), with FAR_PROGRESS_CALLER. */
	int fd() const
	{
		return far_agent_fd(a_);
	}
	unsigned poll() const
	{
		return far_agent_poll(a_);
	}

	/** far_serve(), far_stop(), far_shutdown(). */
	void serve(std::chrono::nanoseconds timeout = default_timeout)
	{
		far_err err{};
		detail::check(far_serve(a_, detail::limit(timeout), &err), err);
	}
	void stop()
	{
		far_stop(a_);
	}
	void shutdown(std::chrono::nanoseconds timeout = default_timeout)
	{
		far_err err{};
		far_status status = far_shutdown(a_, detail::limit(timeout), &err);
		if (status != FAR_WOULD_DEADLOCK)
			a_ = nullptr;
		detail::check(status, err);
	}

	/** Looks up a function that is registered here, to be called on worker `to`; shard −1 is the function's
	 * default. far_worker_find(), far_callee_find(). */
	callee find(const std::string &to, const std::string &function, int shard = -1) const
	{
		far_worker worker{};
		far_callee *c = nullptr;
		far_err err{};
		detail::check(far_worker_find(a_, to.c_str(), &worker, &err), err);
		worker.to.shard = shard;
		detail::check(far_callee_find(&worker, function.c_str(), &c, &err), err);
		return callee(c);
	}

	/** far_rpc_sync(), far_rpc_async(), far_remote(). */
	template <typename R = value, typename... A>
	R call(const std::string &to, const std::string &function, const A &...a) const
	{
		return call_with<R>(call_options{}, to, function, a...);
	}
	template <typename R = value, typename... A>
	future<R> async(const std::string &to, const std::string &function, const A &...a) const
	{
		return async_with<R>(call_options{}, to, function, a...);
	}
	template <typename R = value, typename... A>
	rref<R> remote(const std::string &to, const std::string &function, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_rref *r = nullptr;
		far_err err{};
		detail::check(far_remote(a_, to.c_str(), function.c_str(), args.data(), args.size(), nullptr, &r, &err),
			      err);
		return rref<R>(r);
	}
	/** A reference to a copy of `x`, which stays on this worker: far_rref_of(). */
	template <typename T> rref<T> rref_of(const T &x) const
	{
		detail::arena values;
		far_val v = detail::type_of<T>::encode(x, values);
		far_rref *r = nullptr;
		far_err err{};
		detail::check(far_rref_of(a_, &v, &r, &err), err);
		return rref<T>(r);
	}
	/** The reference that rref::serialize() wrote on any worker: far_rref_deserialize(). */
	template <typename T = value>
	rref<T> deserialize(const std::vector<uint8_t> &bytes, std::chrono::nanoseconds timeout = default_timeout) const
	{
		far_rref *r = nullptr;
		far_err err{};
		detail::check(far_rref_deserialize(a_, bytes.data(), bytes.size(), detail::limit(timeout), &r, &err),
			      err);
		return rref<T>(r);
	}
	/** Calls of a function that the callee alone has registered: far_rpc_sync_unchecked() and its relatives. */
	template <typename R = value, typename... A>
	R call_unchecked(const std::string &to, const std::string &function, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		value v;
		far_err err{};
		detail::check(far_rpc_sync_unchecked(a_, to.c_str(), function.c_str(), args.data(), args.size(),
						     nullptr, v.put(), &err),
			      err);
		return detail::result_of<R>(std::move(v));
	}
	template <typename R = value, typename... A>
	future<R> async_unchecked(const std::string &to, const std::string &function, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_future *f = nullptr;
		far_err err{};
		detail::check(far_rpc_async_unchecked(a_, to.c_str(), function.c_str(), args.data(), args.size(),
						      nullptr, &f, &err),
			      err);
		return future<R>(f);
	}
	template <typename R = value, typename... A>
	rref<R> remote_unchecked(const std::string &to, const std::string &function, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_rref *r = nullptr;
		far_err err{};
		detail::check(far_remote_unchecked(a_, to.c_str(), function.c_str(), args.data(), args.size(), nullptr,
						   &r, &err),
			      err);
		return rref<R>(r);
	}
	template <typename R = value, typename... A>
	R call_with(const call_options &o, const std::string &to, const std::string &function, const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_call_opts given;
		const far_call_opts *opts = o.get(given);
		value v;
		far_err err{};
		detail::check(o.shard < 0 ? far_rpc_sync(a_, to.c_str(), function.c_str(), args.data(), args.size(),
							 opts, v.put(), &err)
					  : far_rpc_sync_to(a_, place(to, o.shard), function.c_str(), args.data(),
							    args.size(), opts, v.put(), &err),
			      err);
		return detail::result_of<R>(std::move(v));
	}
	template <typename R = value, typename... A>
	future<R> async_with(const call_options &o, const std::string &to, const std::string &function,
			     const A &...a) const
	{
		detail::arguments<A...> args(a...);
		far_call_opts given;
		const far_call_opts *opts = o.get(given);
		far_future *f = nullptr;
		far_err err{};
		detail::check(o.shard < 0 ? far_rpc_async(a_, to.c_str(), function.c_str(), args.data(), args.size(),
							  opts, &f, &err)
					  : far_rpc_async_to(a_, place(to, o.shard), function.c_str(), args.data(),
							     args.size(), opts, &f, &err),
			      err);
		return future<R>(f);
	}

	/**
	 * async() whose large arguments stay in their shared_array: a worker of this host reads them there. They must
	 * not change until `release()` runs, once, also if this throws an error: a function without parameters, which
	 * must not throw. far_rpc_async_zero_copy().
	 */
	template <typename R = value, typename F, typename... A>
	future<R> async_zero_copy(const std::string &to, const std::string &function, F release, const A &...a) const
	{
		return async_zero_copy_with<R>(call_options{}, to, function, std::move(release), a...);
	}
	template <typename R = value, typename F, typename... A>
	future<R> async_zero_copy_with(const call_options &o, const std::string &to, const std::string &function,
				       F release, const A &...a) const
	{
		using last = detail::last_call<F>;
		std::unique_ptr<F, last> owned(new F(std::move(release)));
		detail::arguments<A...> args(a...);
		far_call_opts given;
		far_zero_copy_call call{};
		call.to = place(to, o.shard);
		call.function = function.c_str();
		call.args = args.data();
		call.args_n = args.size();
		call.release = last::run;
		call.release_user = owned.release();
		call.opts = o.get(given);
		far_future *f = nullptr;
		far_err err{};
		detail::check(far_rpc_async_zero_copy(a_, &call, &f, &err), err);
		return future<R>(f);
	}

      private:
	far_to place(const std::string &to, int shard) const
	{
		far_worker_info info;
		far_err err{};
		detail::check(far_worker_by_name(a_, to.c_str(), &info, &err), err);
		return {info.rank, shard};
	}
};

/** A keyword argument. The value must exist until the call is made. */
template <typename T> struct keyword {
	const char *name;
	const T &x;
};
template <typename T> keyword<T> kw(const char *name, const T &x)
{
	return {name, x};
}

namespace detail
{
template <typename T> struct type_of<keyword<T>> {
	static far_val encode(const keyword<T> &k, arena &a)
	{
		return far_kw(k.name, type_of<argument_type<T>>::encode(k.x, a));
	}
};
} // namespace detail

} // namespace farcall
#endif
