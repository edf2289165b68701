/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Objects: memory of the application that stays on the worker where it was made. Other workers use it through its
 * methods and references (<farcall/rref.h>).
 *
 * A class has a name, constructors, methods and a destructor. Caller and owner both register it: far_opts.classes or
 * far_register_class(). far_remote(agent, "worker1", "demo::Counter", …) calls a constructor. The reference carries its
 * class to every holder. A method call names the reference and takes one message each way, whatever the number of
 * holders.
 *
 *	static enum far_status counter_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
 *	{
 *		struct counter *c = calloc(1, sizeof *c);
 *		…
 *		return far_return_object(req, c);
 *	}
 *	static enum far_status counter_add(struct far_req *req, void *object, const struct far_val *args, size_t n,
 *					   void *user)
 *	{
 *		struct counter *c = object;
 *		struct far_val sum = far_int(c->n += args[0].u.i);
 *		return far_return(req, &sum);
 *	}
 *	static const struct far_function make[] = {
 *		{"demo::Counter(int start=0) -> demo::Counter", FAR_KIND_INLINE, counter_new, NULL, 0}};
 *	static const struct far_method methods[] = {{"add(int by=1) -> int", FAR_KIND_INLINE, counter_add, NULL}};
 *	static const struct far_class counter = {.name = "demo::Counter", .constructors = make, .constructors_n = 1,
 *						 .methods = methods, .methods_n = 1, .destroy = counter_free};
 *
 *	far_remote(agent, "worker1", "demo::Counter", FAR_ARGS(5), NULL, &rref, &err);
 *	far_rref_rpc_sync(rref, "add", FAR_ARGS(2), NULL, &sum, &err);
 *
 * The home shard of an object is the shard in its reference. Constructors, destructor, and inline and fiber methods run
 * there, one at a time, so data that only they touch needs no lock. While a fiber method waits, other methods run.
 * Blocking methods run on other threads, concurrently.
 *
 * An object exists as long as there is a reference to it in the group or a method of it has not answered.
 */
#ifndef FARCALL_OBJECT_H
#define FARCALL_OBJECT_H

#include <farcall/rref.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/** Handler of a method: a far_fn with the object. `user` is the pointer given with the method. Answers as any handler,
 * also later through far_defer(); the object exists until then. */
typedef enum far_status far_method_fn(struct far_req *req, void *object, const struct far_val *args, size_t n,
				      void *user);

/** Destructor: runs once, when no reference is left or the agent is shut down. On the home shard; must not wait. `user`
 * is the class's. */
typedef void far_destroy_fn(void *object, void *user);

struct far_method {
	const char *signature; /* "add(int by=1) -> int", without the class; overloads as of functions */
	enum far_kind kind;
	far_method_fn *fn;
	void *user; /* passed to `fn` */
};

/** A class. A zeroed field means none. Registration copies all of it except code and what `user` points to. */
struct far_class {
	const char *name; /* qualified, "demo::Counter": words of `A-Z a-z 0-9 _` joined by "::", two at least */
	/** Functions that make objects: their result type is the class, and they answer with far_return_object(). They
	 * may have any name, usually that of the class. Functions of far_opts.functions with this result type are
	 * constructors too. */
	const struct far_function *constructors;
	size_t constructors_n;
	const struct far_method *methods;
	size_t methods_n;
	far_destroy_fn *destroy; /* NULL: none */
	void *user;              /* passed to `destroy` */
	/** Encoding of copies: a custom type of the same name, registered with the class. far_rref_to_here() then
	 * returns a copy, encoded on the home shard. NULL: objects cannot be copied. */
	const struct far_custom_type *codec;
	uint64_t reserved[2]; /* 0 */
};

#define FAR_CLASSES_MAX 1024 /* of an agent */

/* ---- Any thread; takes a lock for a moment ---- */

/**
 * Registers a class with its constructors and methods, which count as functions of the agent. A peer that calls them
 * earlier gets FAR_NO_FUNCTION; far_opts.classes avoids that. Errors: INVALID (the name; a signature, with the column;
 * a kind; the class or a function registered already), RESOURCE. After an error the class has no methods, and its name
 * stays taken.
 */
enum far_status far_register_class(struct far_agent *agent, const struct far_class *cls, struct far_err *err);

/* ---- The constructor's handler; never blocks ---- */

/**
 * Answers with an object. On FAR_OK the engine owns it, and the destructor ends it, also if the caller has given up.
 * Constructors run for far_remote() and far_rref_remote() only; another call of one is refused with INVALID, executed
 * NO. Errors, with the object still the handler's: INVALID (answered already; the result type is no class), RESOURCE.
 */
enum far_status far_return_object(struct far_req *req, void *object);

/* ---- Any thread; never blocks ---- */

/** far_return_object() for a deferred request. Consumes `d` in any case, and the object unless it returns INVALID or
 * RESOURCE. */
enum far_status far_deferred_return_object(struct far_deferred *d, void *object);

/**
 * Makes a reference to an object of class `name` that exists already, on this worker: far_rref_of() for objects. On
 * FAR_OK the engine owns the object, and the destructor ends it after the last reference. Its methods run on the shard
 * of the calling thread. Errors, with the object still the caller's: INVALID (NULL; the class is not registered),
 * RESOURCE.
 */
enum far_status far_rref_of_object(struct far_agent *agent, const char *name, void *object, struct far_rref **out,
				   struct far_err *err);

/* ---- Calls: far_rref_rpc_sync() on any thread but an inline handler or a callback, it blocks; the others on any
 * thread, they never block ---- */

/**
 * Calls a method of the object of `rref`, on any worker, this one included. Arguments, `opts` and errors are those of
 * far_rpc_sync(). A call that arrives before the object was made waits for it at the owner. `rref` may be freed at once
 * after far_rref_rpc_async(). Further errors:
 * - INVALID: not a reference to an object; NO_FUNCTION: its class is not registered here or has no such method;
 *   BAD_ARGS. Nothing was sent.
 * - the error of the constructor or of its request, with class, code and text; executed NO.
 * - GONE: the object was destroyed. PEER_LOST: its owner is lost.
 */
enum far_status far_rref_rpc_sync(struct far_rref *rref, const char *method, const struct far_val *args, size_t args_n,
				  const struct far_call_opts *opts, struct far_val *out, struct far_err *err);
enum far_status far_rref_rpc_async(struct far_rref *rref, const char *method, const struct far_val *args, size_t args_n,
				   const struct far_call_opts *opts, struct far_future **out, struct far_err *err);
/** Keeps the method's result on the owner: as far_remote() to it, with its errors. */
enum far_status far_rref_remote(struct far_rref *rref, const char *method, const struct far_val *args, size_t args_n,
				const struct far_call_opts *opts, struct far_rref **out, struct far_err *err);

/* ---- Any thread but an inline handler or a callback; these block ---- */

/**
 * Returns the object itself, on its owner. Waits until it was made, as far_rref_to_here(). It is valid while the handle
 * is held, until far_shutdown(). Access from another thread than the home shard's is concurrent with its methods.
 * Errors: INVALID (another worker is the owner; not an object of class `name`; NULL accepts any class).
 * far_rref_local_value() returns the object as a FAR_TYPE_CUSTOM value that owns nothing.
 */
enum far_status far_rref_object(struct far_rref *rref, const char *name, uint64_t timeout_ns, void **object,
				struct far_err *err);

/**
 * Returns the type of the value: the name of a class or custom type, else far_type_name(). Requests it from the owner
 * the first time and caches it in the handle. Waits until the value was made, at most `timeout_ns` (0: the agent's
 * default). The name is valid as long as the handle. Errors: as far_rref_to_here().
 */
enum far_status far_rref_type(struct far_rref *rref, uint64_t timeout_ns, const char **name, struct far_err *err);

/* ---- Any thread; these never block ---- */

/** far_rref_type() as a future of a string, the caller's to free. */
enum far_status far_rref_type_async(struct far_rref *rref, uint64_t timeout_ns, struct far_future **out,
				    struct far_err *err);

/** Name of the class, from the reference alone; valid as long as the handle. NULL: not an object. "?": the class is not
 * registered here. */
const char *far_rref_class(const struct far_rref *rref);

/* ---- The handler of a method ---- */

/** The reference that the method was called on: the owner's own handle, valid until the method has answered.
 * far_rref_ref() keeps it, and the object, longer. NULL: not a method. */
struct far_rref *far_req_rref(const struct far_req *req);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
