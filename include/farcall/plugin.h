/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Plugins: functions, classes and custom types of a shared object that is loaded into a running worker. Any thread,
 * unless a function names another one.
 *
 * A plugin exports one symbol, a struct far_plugin. Everything in it has the plugin's name as its first word, so two
 * plugins cannot disturb each other:
 *
 *	static const struct far_function functions[] = {{"geo::area(Tensor) -> float", FAR_KIND_INLINE, area, NULL, 0}};
 *	FAR_PLUGIN_EXPORT = {.abi = FAR_PLUGIN_ABI, .bytes = sizeof(struct far_plugin), .name = "geo",
 *			     .functions = functions, .functions_n = 1};
 *
 *	cc -shared -fPIC -o geo.so geo.c
 *
 * It is not linked with libfarcall: its functions of the library are those of the program, which links the shared
 * library, or the static one with -rdynamic.
 *
 * Permission: a worker loads no file unless FAR_PLUGIN_PATH lists the file or its directory by absolute path; ":"
 * separates entries. The file, and its directory, must belong to the user of the process or to root, and nobody else
 * may be able to write to them. far_plugin_send() sends a plugin to a worker, which loads none unless it is signed by a
 * key that the file FAR_PLUGIN_KEYS lists.
 *
 * Caller and callee both need the functions that they use, as everywhere: the caller loads the plugin too or registers
 * functions of the same signatures. A call fails with FAR_NO_FUNCTION, executed NO, before the plugin is loaded and
 * after it is unloaded, through handles of far_callee_find() too.
 */
#ifndef FARCALL_PLUGIN_H
#define FARCALL_PLUGIN_H

#include <farcall/agent.h>
#include <farcall/object.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define FAR_PLUGIN_ABI      1
#define FAR_PLUGIN_NAME_MAX 32 /* bytes of a plugin's name with its NUL */

/**
 * What a plugin adds. A zeroed field means none. It, and all that it points to, must be valid while the plugin is
 * loaded.
 */
struct far_plugin {
	uint32_t abi;                         /* FAR_PLUGIN_ABI */
	uint32_t bytes;                       /* sizeof(struct far_plugin) */
	const char *name;                     /* one word of `A-Z a-z 0-9 _` */
	const struct far_function *functions; /* "name::…" */
	size_t functions_n;
	const struct far_class *classes; /* "name::…", their constructors too */
	size_t classes_n;
	const struct far_custom_type *types; /* "name::…"; codecs of classes are not repeated here */
	size_t types_n;
	/** Runs in far_plugin_load(), on its thread, before anything can be called. A status other than FAR_OK, with
	 * its text in `err`, refuses the load. Must not load or unload plugins, nor register
	 * anything with the agent itself. It may register functions of a parameter server (<farcall/ps.h>). */
	enum far_status (*start)(struct far_agent *agent, struct far_err *err);
	/** Runs in far_plugin_unload(), on its thread, after the last call, and in far_shutdown(). The agent has ended
	 * then: NULL. Must end the plugin's threads and wait for the requests that it has deferred and for the
	 * callbacks that it has left with the library: their code is unmapped next. */
	void (*stop)(struct far_agent *agent);
	uint64_t reserved[4]; /* 0 */
};

/** Defines the exported symbol: FAR_PLUGIN_EXPORT = {…}; */
#ifdef __cplusplus
#define FAR_PLUGIN_EXPORT                                                                                              \
	extern "C" __attribute__((visibility("default"))) const struct far_plugin far_plugin_module;                   \
	const struct far_plugin far_plugin_module
#else
#define FAR_PLUGIN_EXPORT                                                                                              \
	extern __attribute__((visibility("default"))) const struct far_plugin far_plugin_module;                       \
	const struct far_plugin far_plugin_module
#endif

/* ---- Application threads that hold no shard, and blocking handlers; these block ---- */

/* An agent ends its plugins in far_shutdown(); one with threads of its own is unloaded before. */

/**
 * Loads the plugin of a file and registers what it has, all or nothing. `path` may be relative or a symbolic link; its
 * target has to be permitted. Errors: DENIED (not permitted; the owner or mode of the file or of its directory),
 * UNSUPPORTED (no shared object of this machine; no or another struct far_plugin; another copy of libfarcall), INVALID
 * (a name that is not the plugin's or is registered already; a signature; a plugin of this name is loaded; a function
 * of an earlier version with the same parameter types whose kind, flags, parameter names or defaults differ), RESOURCE
 * (a table is full), SYSTEM (the file), WOULD_DEADLOCK (an inline handler, a fiber, or a thread that holds a shard);
 * those of `start`.
 */
enum far_status far_plugin_load(struct far_agent *agent, const char *path, struct far_err *err);

/**
 * Removes what a plugin has registered, and the plugin. Refused with BUSY while one of its fibers runs, while an object
 * of its classes exists on this worker, or while a decoded value of its types exists in this process. Waits until its
 * inline and blocking handlers have returned, at most `timeout_ns` (0: the agent's default timeout of calls). Calls
 * that arrive meanwhile fail with FAR_NO_FUNCTION. After an error the plugin is loaded as before. Errors: INVALID (no
 * plugin of this name), BUSY, TIMEOUT, WOULD_DEADLOCK as far_plugin_load(). A
 * handler of the plugin itself gets TIMEOUT.
 */
enum far_status far_plugin_unload(struct far_agent *agent, const char *name, uint64_t timeout_ns, struct far_err *err);

/**
 * Replaces a plugin: far_plugin_unload() and far_plugin_load() of `path`; NULL: of the path that it was loaded from.
 * Write a new file under another name and rename it: a shared object must not be overwritten while it is mapped.
 * Functions of unchanged signature keep their numbers, so handles of callers remain valid. Errors: of both; after one
 * of far_plugin_load() no plugin of this name is loaded.
 */
enum far_status far_plugin_reload(struct far_agent *agent, const char *name, const char *path, uint64_t timeout_ns,
				  struct far_err *err);

/**
 * Sends the file of a plugin to worker `to`, which loads it, or replaces the plugin of the same name, as
 * far_plugin_reload() does. `<path>.sig` holds the file's signature:
 *
 *	farcall key signer.key                                # once: the secret key
 *	farcall sign --public signer.key >>plugins.pub        # once: the line that receivers list
 *	farcall sign signer.key geo.so                        # writes geo.so.sig
 *	FAR_PLUGIN_KEYS=/etc/farcall/plugins.pub ./worker     # a receiver
 *
 * FAR_PLUGIN_KEYS is an absolute path; the file and its directory must belong to the user of the process or to root,
 * and nobody else may be able to write to them. It is read for each plugin, so a key that is removed is trusted no
 * longer. A signature has no date: an older version with its signature is loaded, too. Blocks for
 * at most `timeout_ns` (0: the agent's default timeout of calls). Errors here: SYSTEM, INVALID (a file; a signature's
 * size), RESOURCE, those of far_rpc_sync(). Errors of the receiver: DENIED (it lists no keys; none of them made the
 * signature; the owner or mode of its list), those of far_plugin_reload(). Not in an inline handler or fiber
 * (WOULD_DEADLOCK).
 */
enum far_status far_plugin_send(struct far_agent *agent, const char *to, const char *path, uint64_t timeout_ns,
				struct far_err *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
