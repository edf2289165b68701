/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Objects: memory of the application that stays with the worker where it was made, and is used by its methods, through
 * references (<farcall/rref.h>).
 *
 * A class has a name, constructors, methods and a destructor. Both sides register it: far_opts.classes, or
 * far_register_class(). A constructor is called with far_remote(agent, "worker1", "demo::Counter", …); the reference
 * knows its class, whoever it is handed to, and a method call names the reference: one message each way, whatever the
 * number of holders.
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
 *		{"demo::Counter(int start=0) -> demo::Counter", FAR_KIND_INLINE, counter_new, NULL}};
 *	static const struct far_method methods[] = {{"add(int by=1) -> int", FAR_KIND_INLINE, counter_add, NULL}};
 *	static const struct far_class counter = {.name = "demo::Counter", .constructors = make, .constructors_n = 1,
 *						 .methods = methods, .methods_n = 1, .destroy = counter_free};
 *
 *	far_remote(agent, "worker1", "demo::Counter", FAR_ARGS(5), NULL, &rref, &err);
 *	far_rref_rpc_sync(rref, "add", FAR_ARGS(2), NULL, &sum, &err);
 *
 * An object has a home, the shard that its reference names. Constructors, destructor and methods of kind inline and
 * fiber run there, one at a time, so what they touch needs no lock; between two waits of a fiber other methods run.
 * Those of kind blocking run on threads of their own, beside them.
 *
 * It lives while anybody holds a reference to it, and while a method of it is under way, be it parked or deferred.
 */
#ifndef FARCALL_OBJECT_H
#define FARCALL_OBJECT_H

#include <farcall/rref.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Handler of a method: a far_fn that gets the object. `user` is the pointer given with the method. It answers as any
 * handler does, later if it likes (far_defer()); the object lives until it has. */
typedef enum far_status far_method_fn(struct far_req *req, void *object, const struct far_val *args, size_t n,
				      void *user);

/** Ends an object, once: when nobody refers to it any more, or its agent is shut down. On its shard; must not wait.
 * `user` is the class's. */
typedef void far_destroy_fn(void *object, void *user);

struct far_method {
	const char *signature; /* "add(int by=1) -> int", without the class; overloads as of functions */
	enum far_kind kind;
	far_method_fn *fn;
	void *user;
};

/** Zero-initialised, every field means none. All of it, but for the code and what `user` points to, is copied. */
struct far_class {
	const char *name; /* qualified, as in "demo::Counter": words of `A-Z a-z 0-9 _` joined by "::", two at least */
	/** Functions that make objects: their result is the class, and they answer with far_return_object(). They are
	 * registered as all functions are, so any name will do; that of the class is the usual one. A function of
	 * far_opts.functions whose result is the class makes objects just so. */
	const struct far_function *constructors;
	size_t constructors_n;
	const struct far_method *methods;
	size_t methods_n;
	far_destroy_fn *destroy; /* NULL: nothing is to be done */
	void *user;              /* of destroy */
	/** How copies of the objects travel: a type of the same name, registered with the class. far_rref_to_here()
	 * then gives a copy, made by the codec's functions on the owner's shard. NULL: objects stay where they are. */
	const struct far_custom_type *codec;
};

#define FAR_CLASSES_MAX 1024 /* of an agent */

/**
 * Registers a class, its constructors and methods (which count among the agent's functions). Any thread. Who calls
 * before gets FAR_NO_FUNCTION; far_opts.classes exclude that. Errors: INVALID (the name, a signature, a kind; the class
 * or a function registered before; its place is named), RESOURCE. After an error the class has
 * no methods, and its name stays taken.
 */
enum far_status far_register_class(struct far_agent *agent, const struct far_class *cls, struct far_err *err);

/* ---- making, in a handler whose result is a class ---- */

/**
 * Answers with an object, which is the engine's from now on: on FAR_OK, and also when nobody wants it any more, the
 * class's destructor ends it. A function or method that makes objects runs for far_remote() and far_rref_remote() only:
 * called otherwise it is refused with FAR_INVALID, executed NO. FAR_INVALID (answered already; the result is no class),
 * FAR_RESOURCE: the object is still the handler's.
 */
enum far_status far_return_object(struct far_req *req, void *object);
/** The same for a deferred request, from any thread; never blocks. `d` is gone in any case, and so is the object, but
 * after FAR_INVALID and FAR_RESOURCE. */
enum far_status far_deferred_return_object(struct far_deferred *d, void *object);

/* ---- calling ---- */

/**
 * Calls a method on the object that `rref` refers to, on any worker, this one included, and waits for its value.
 * Arguments, `opts` and errors are those of far_rpc_sync(); a call made before the object is there waits for it at the
 * owner. `rref` may be given back at once after far_rref_rpc_async(). Besides:
 * - INVALID: the reference is not to an object; NO_FUNCTION: its class is not registered here, or has no such method
 *   ("demo::Counter has no method 'push'"); BAD_ARGS: the arguments. Found at once, nothing sent.
 * - the error of a constructor, or of its request, with its class, code and text; executed NO.
 * - GONE: the object was destroyed. PEER_LOST: with its owner.
 */
enum far_status far_rref_rpc_sync(struct far_rref *rref, const char *method, const struct far_val *args, size_t args_n,
				  const struct far_call_opts *opts, struct far_val *out, struct far_err *err);
enum far_status far_rref_rpc_async(struct far_rref *rref, const char *method, const struct far_val *args, size_t args_n,
				   const struct far_call_opts *opts, struct far_future **out, struct far_err *err);
/** Keeps what the method returns where the object is: far_remote() to its owner. */
enum far_status far_rref_remote(struct far_rref *rref, const char *method, const struct far_val *args, size_t args_n,
				const struct far_call_opts *opts, struct far_rref **out, struct far_err *err);

/* ---- looking ---- */

/**
 * The object itself, on its owner, when it is there: waits as far_rref_to_here(). It lives as long as the handle is
 * held, and until far_shutdown(); who looks at it on another thread than its shard's does so beside its methods.
 * INVALID: another worker, naming both; not an object of class `name` (NULL: of any). far_rref_local_value() gives it
 * as a value of type FAR_TYPE_CUSTOM, which owns nothing.
 */
enum far_status far_rref_object(struct far_rref *rref, const char *name, uint64_t timeout_ns, void **object,
				struct far_err *err);

/** Name of the class, as the reference says; NULL: it is not to an object. Never blocks, asks nobody; lives as long as
 * the handle. "?": the class is not registered here. */
const char *far_rref_class(const struct far_rref *rref);

/**
 * What the reference is to: the name of a class, or of the value's type as of far_type_name(), or of its custom type.
 * Asks the owner the first time and remembers; waits until the value is there, at most `timeout_ns` (0: the agent's
 * default). The name lives as long as the handle. Errors: as far_rref_to_here(), that of making the value among them.
 */
enum far_status far_rref_type(struct far_rref *rref, uint64_t timeout_ns, const char **name, struct far_err *err);
/** The same without waiting: a future of a string, for the caller to free. Never blocks. */
enum far_status far_rref_type_async(struct far_rref *rref, uint64_t timeout_ns, struct far_future **out,
				    struct far_err *err);

/** In a method: the reference that it was called on, the owner's own handle, valid until it has answered. NULL: no
 * method. far_rref_ref() keeps it, and the object, beyond. */
struct far_rref *far_req_rref(const struct far_req *req);

#ifdef __cplusplus
}
#endif
#endif
