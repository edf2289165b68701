/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * <farcall/plugin.h>: loads shared objects that the user permits, and unloads them. Application threads and blocking
 * handlers, one at a time in the process; the functions that call into a plugin: the thread of the handler.
 */
#include "api/plugin.h"

#include "agent/agent.h"
#include "base/error.h"
#include "core/context.h"
#include "core/dispatch.h"
#include "features/references/rref.h"
#include "value/classes.h"
#include "value/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <farcall/plugin.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 1000000 /* between two looks at the handlers that run */

/* A plugin of an agent. In agent.plugins from its first load to the end of the agent. */
struct loaded_plugin {
	struct plugin base;
	struct loaded_plugin *next;
	const struct far_plugin *module; /* NULL: not loaded */
	void *handle;
	int fd; /* of a plugin that was sent: its image; -1 */
	char name[FAR_PLUGIN_NAME_MAX];
	char path[PATH_MAX]; /* of a plugin that was sent: its sender, for messages */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all plugins of all agents */

/* ---- calls into a plugin ---- */

/* The gate's unit of a call; 0: there is no such function. */
static uint64_t enter(struct far_req *req, const struct function *fn)
{
	uint64_t unit = fn->run_kind == FAR_KIND_FIBER ? GATE_LIVE : GATE_CALL;
	if (gate_enter(&fn->plugin->gate, unit)) {
		if (!fn->removed)
			return unit;
		gate_leave(&fn->plugin->gate, unit);
	}
	dispatch_no_function(req);
	return 0;
}

static enum far_status run(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct function *fn = user;
	uint64_t unit = enter(req, fn);
	if (!unit)
		return FAR_OK;
	enum far_status status = fn->code.fn(req, args, n, fn->code_user);
	gate_leave(&fn->plugin->gate, unit);
	return status;
}

static enum far_status run_method(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	const struct function *fn = user;
	uint64_t unit = enter(req, fn);
	if (!unit)
		return FAR_OK;
	enum far_status status = fn->code.method(req, object, args, n, fn->code_user);
	gate_leave(&fn->plugin->gate, unit);
	return status;
}

/* ---- permission ---- */

enum far_status plugin_check_owner(const char *path, bool directory, struct far_err *err)
{
	struct stat st;
	if (stat(path, &st))
		return err_set(err, FAR_SYSTEM, "cannot read %.200s: %s", path, strerror(errno));
	if (directory ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
		return err_set(err, FAR_DENIED, "%.200s is not a file", path);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return err_set(
			err, FAR_DENIED,
			"%.200s belongs to user %u, who could replace the plugin; its owner must be root or user %u",
			path, st.st_uid, geteuid());
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(err, FAR_DENIED,
			       "%.200s has mode %03o: others could replace the plugin; run chmod go-w on it", path,
			       st.st_mode & 0777);
	return FAR_OK;
}

/* True if an entry of the list is `file` or its directory, given by absolute path. */
static bool listed(const char *list, const char *file, const char *dir)
{
	char entry[PATH_MAX], real[PATH_MAX];
	for (const char *end; *list; list = *end ? end + 1 : end) {
		end = strchrnul(list, ':');
		snprintf(entry, sizeof entry, "%.*s", (int)(end - list), list);
		if (*entry == '/' && realpath(entry, real) && (strcmp(real, file) == 0 || strcmp(real, dir) == 0))
			return true;
	}
	return false;
}

/* real[PATH_MAX]: the file that `path` leads to. */
static enum far_status permit(const char *path, char *real, struct far_err *err)
{
	char dir[PATH_MAX];
	const char *list = secure_getenv("FAR_PLUGIN_PATH");
	if (!path || !realpath(path, real))
		return err_set(err, path ? FAR_SYSTEM : FAR_INVALID, "cannot find plugin %.200s: %s",
			       path ? path : "(NULL)", path ? strerror(errno) : "name its file");
	strcpy(dir, real);
	*strrchr(dir, '/') = '\0';
	if (!*dir)
		strcpy(dir, "/");
	if (!list || !listed(list, real, dir))
		return err_set(err, FAR_DENIED,
			       "plugin %.200s is not permitted: FAR_PLUGIN_PATH %s; add the file or its directory, by "
			       "absolute "
			       "path",
			       real, list && *list ? "does not list it" : "is not set");
	enum far_status status = plugin_check_owner(real, false, err);
	return status ? status : plugin_check_owner(dir, true, err);
}

/* ---- the file ---- */

/* A plugin that is linked with another copy of the library would answer through that one. */
static bool own_library(void *handle)
{
	static const char here;
	Dl_info ours, theirs;
	void *found = dlsym(handle, "far_plugin_load");
	return !found || (dladdr(&here, &ours) && dladdr(found, &theirs) && ours.dli_fbase == theirs.dli_fbase);
}

static bool is_word(const char *name)
{
	size_t n = name ? strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") : 0;
	return n > 0 && n < FAR_PLUGIN_NAME_MAX && !name[n];
}

static enum far_status check_module(const char *path, void *handle, const struct far_plugin *m, struct far_err *err)
{
	if (!m)
		return err_set(
			err, FAR_UNSUPPORTED,
			"%.200s exports no far_plugin_module; define one with FAR_PLUGIN_EXPORT of <farcall/plugin.h>",
			path);
	if (m->abi != FAR_PLUGIN_ABI || m->bytes < sizeof *m)
		return err_set(
			err, FAR_UNSUPPORTED,
			"%.200s has plugin ABI %u with %u bytes, this libfarcall has %d with %zu; build the plugin "
			"with the headers of this version",
			path, m->abi, m->bytes, FAR_PLUGIN_ABI, sizeof *m);
	if (!own_library(handle))
		return err_set(err, FAR_UNSUPPORTED,
			       "%.200s brings another copy of libfarcall; do not link the plugin with the library, or "
			       "link the program with the shared one",
			       path);
	if (!is_word(m->name))
		return err_set(
			err, FAR_INVALID,
			"%.200s: the plugin's name must be one word of letters, digits and _, of at most %d bytes",
			path, FAR_PLUGIN_NAME_MAX - 1);
	if ((m->functions_n && !m->functions) || (m->classes_n && !m->classes) || (m->types_n && !m->types))
		return err_set(err, FAR_INVALID,
			       "plugin %s: functions, classes or types have a count, but their array is NULL", m->name);
	return FAR_OK;
}

static enum far_status check_name(const struct far_plugin *m, const char *what, const char *name, struct far_err *err)
{
	size_t n = strlen(m->name);
	if (name && strncmp(name, m->name, n) == 0 && strncmp(name + n, "::", 2) == 0)
		return FAR_OK;
	return err_set(err, FAR_INVALID, "plugin %s: the name of its %s \"%.160s\" must begin with \"%s::\"", m->name,
		       what, name ? name : "(NULL)", m->name);
}

static enum far_status check_names(const struct far_plugin *m, struct far_err *err)
{
	enum far_status status = FAR_OK;
	for (size_t i = 0; i < m->functions_n && !status; i++)
		status = check_name(m, "function", m->functions[i].signature, err);
	for (size_t i = 0; i < m->classes_n && !status; i++) {
		const struct far_class *c = &m->classes[i];
		status = check_name(m, "class", c->name, err);
		for (size_t k = 0; c->constructors && k < c->constructors_n && !status; k++)
			status = check_name(m, "constructor", c->constructors[k].signature, err);
		if (!status && c->codec)
			status = check_name(m, "codec", c->codec->name, err);
	}
	for (size_t i = 0; i < m->types_n && !status; i++)
		status = check_name(m, "type", m->types[i].name, err);
	return status;
}

/* ---- registering ---- */

/* Types of a plugin by number: its own, and then the codecs of its classes. NULL: the class has none. */
static const struct far_custom_type *type_at(const struct far_plugin *m, size_t i)
{
	return i < m->types_n ? &m->types[i] : m->classes[i - m->types_n].codec;
}

/* Gives back the types numbered [0, n). On failure none, and *name is that of the type with *values. */
static bool drop_types(const struct far_plugin *m, size_t n, const char **name, uint64_t *values)
{
	struct far_custom_type counted;
	for (size_t i = 0; i < n; i++) {
		const struct far_custom_type *type = type_at(m, i);
		if (!type || plugin_type_drop(type->name, values))
			continue;
		*name = type->name;
		while (i-- > 0) /* its functions are known, and so is its memory: it does not fail */
			if ((type = type_at(m, i)))
				plugin_type_use(type, &counted, NULL);
		return false;
	}
	return true;
}

static enum far_status add_class(struct far_agent *a, struct loaded_plugin *p, const struct far_class *cls,
				 const struct far_custom_type *counted, struct far_err *err)
{
	struct far_class copy = *cls;
	enum far_status status = agent_prepare_class(a, cls, err);
	if (cls->codec)
		copy.codec = counted;
	return status ? status : registry_add_class(&a->registry, &copy, object_enter, &p->base, err);
}

/* *types_n: how many types are in use. */
static enum far_status add_all(struct far_agent *a, struct loaded_plugin *p, size_t *types_n, struct far_err *err)
{
	const struct far_plugin *m = p->module;
	struct far_custom_type counted = {0};
	enum far_status status = FAR_OK;
	for (size_t i = 0; i < m->types_n + m->classes_n && !status; i++) {
		const struct far_custom_type *type = type_at(m, i);
		status = type ? plugin_type_use(type, &counted, err) : FAR_OK;
		if (status)
			break;
		*types_n = i + 1;
		if (i < m->types_n)
			status = registry_add_type(&a->registry, &counted, err);
		else
			status = add_class(a, p, &m->classes[i - m->types_n], &counted, err);
	}
	for (size_t i = 0; i < m->functions_n && !status; i++) {
		status = agent_prepare_kind(a, m->functions[i].kind, err);
		if (!status)
			status = registry_add_of(&a->registry, &m->functions[i], NULL, NULL, &p->base, err);
	}
	return status;
}

/* Forgets the names of types [0, n), of classes and of functions. */
static void remove_all(struct far_agent *a, const struct loaded_plugin *p, size_t types_n)
{
	registry_remove(&a->registry, &p->base);
	for (size_t i = 0; i < types_n; i++)
		if (type_at(p->module, i))
			registry_remove_type(&a->registry, type_at(p->module, i)->name);
}

/* The code stays mapped where values of its types exist, and so does the number of its image: dlopen() takes a path
 * that it knows for the object that it has. */
static void forget(struct loaded_plugin *p, bool unmap)
{
	if (unmap) {
		dlclose(p->handle);
		if (p->fd >= 0)
			close(p->fd);
	}
	p->module = NULL;
	p->handle = NULL;
	p->fd = -1;
}

static enum far_status start(struct far_agent *a, struct loaded_plugin *p, struct far_err *err)
{
	size_t types_n = 0;
	uint64_t values;
	const char *name;
	enum far_status status = p->module->start ? p->module->start(a, err) : FAR_OK;
	if (status) {
		forget(p, true);
		return status;
	}
	status = add_all(a, p, &types_n, err);
	if (!status) {
		gate_open(&p->base.gate);
		return FAR_OK;
	}
	remove_all(a, p, types_n);
	if (p->module->stop)
		p->module->stop(a);
	forget(p, drop_types(p->module, types_n, &name, &values));
	return status;
}

static struct loaded_plugin *find(const struct far_agent *a, const char *name)
{
	struct loaded_plugin *p = a->plugins;
	while (p && strcmp(p->name, name) != 0)
		p = p->next;
	return p;
}

/* The plugin of this name, not loaded. */
static enum far_status find_or_make(struct far_agent *a, const char *name, struct loaded_plugin **out,
				    struct far_err *err)
{
	struct loaded_plugin *p = *out = find(a, name);
	if (p && p->module)
		return err_set(err, FAR_INVALID, "plugin %s is loaded already, from %.200s; use far_plugin_reload",
			       name, p->path);
	if (p)
		return FAR_OK;
	if (!registry_removable(&a->registry) || !(*out = p = calloc(1, sizeof *p)))
		return err_set(err, FAR_RESOURCE, "no room for plugin %s: no memory, or %d functions are registered",
			       name, FAR_FUNCTIONS_MAX);
	p->base.run = run;
	p->base.run_method = run_method;
	atomic_init(&p->base.gate.word, GATE_CLOSED);
	strcpy(p->name, name);
	p->next = a->plugins;
	a->plugins = p;
	return FAR_OK;
}

/* ---- unloading ---- */

static enum far_status still_used(const struct loaded_plugin *p, uint64_t n, struct far_err *err)
{
	return err_set(err, FAR_BUSY,
		       "plugin %s cannot be unloaded: %llu of its fibers and objects are alive; free the references to "
		       "its objects and let its handlers return",
		       p->name, (unsigned long long)n);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Waits for the handlers that run. */
static enum far_status await_calls(struct loaded_plugin *p, uint64_t timeout_ns, struct far_err *err)
{
	uint64_t start = now_ns();
	while (gate_called(&p->base.gate)) {
		if (now_ns() - start >= timeout_ns)
			return err_set(err, FAR_TIMEOUT,
				       "plugin %s cannot be unloaded: a handler of it still runs after %llu ms",
				       p->name, (unsigned long long)(timeout_ns / 1000000));
		nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
	}
	return FAR_OK;
}

/* The gate is closed: ends everything that may be inside, or fails. */
static enum far_status drain(struct loaded_plugin *p, uint64_t timeout_ns, struct far_err *err)
{
	const struct far_plugin *m = p->module;
	const char *name;
	uint64_t values;
	enum far_status status = await_calls(p, timeout_ns, err);
	if (status)
		return status;
	uint64_t live = gate_live(&p->base.gate); /* objects that the last calls made */
	if (live)
		return still_used(p, live, err);
	if (!drop_types(m, m->types_n + m->classes_n, &name, &values))
		return err_set(err, FAR_BUSY,
			       "plugin %s cannot be unloaded: %llu values of its type %s are alive; free them first",
			       p->name, (unsigned long long)values, name);
	return FAR_OK;
}

static enum far_status unload_locked(struct far_agent *a, const char *name, uint64_t timeout_ns, struct far_err *err)
{
	struct loaded_plugin *p = name ? find(a, name) : NULL;
	if (!p || !p->module)
		return err_set(err, FAR_INVALID, "no plugin \"%.64s\" is loaded", name ? name : "(NULL)");
	if (!gate_close(&p->base.gate))
		return still_used(p, gate_live(&p->base.gate), err);
	enum far_status status = drain(p, timeout_ns ? timeout_ns : far_rpc_timeout_ns(a), err);
	if (status) {
		gate_open(&p->base.gate);
		return status;
	}
	remove_all(a, p, p->module->types_n + p->module->classes_n);
	if (p->module->stop)
		p->module->stop(a);
	forget(p, true);
	return FAR_OK;
}

/* ---- loading ---- */

/* Loads the file at `path`. A plugin that was sent is open as `fd`, and replaces the one of its name. `from`: for
 * messages. Takes `fd` over. */
static enum far_status load_locked(struct far_agent *a, const char *path, int fd, const char *from, struct far_err *err)
{
	struct loaded_plugin *p;
	const struct far_plugin *m = NULL;
	enum far_status status;
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (handle) {
		m = dlsym(handle, "far_plugin_module");
		status = check_module(from, handle, m, err);
	} else {
		status = err_set(err, FAR_UNSUPPORTED,
				 "plugin %.200s cannot be loaded: %.200s; build it as a shared object for this machine",
				 from, dlerror());
	}
	if (!status)
		status = check_names(m, err);
	if (!status && fd >= 0 && (p = find(a, m->name)) && p->module)
		status = unload_locked(a, m->name, 0, err);
	if (!status)
		status = find_or_make(a, m->name, &p, err);
	if (status) {
		if (handle)
			dlclose(handle);
		if (fd >= 0)
			close(fd);
		return status;
	}
	p->handle = handle;
	p->module = m;
	p->fd = fd;
	snprintf(p->path, sizeof p->path, "%s", from);
	return start(a, p, err);
}

static enum far_status load_file(struct far_agent *a, const char *path, struct far_err *err)
{
	char real[PATH_MAX];
	enum far_status status = permit(path, real, err);
	return status ? status : load_locked(a, real, -1, real, err);
}

/* ---- the interface ---- */

/* A handler on a shard would keep the shard from the calls that unloading waits for. */
static enum far_status begin(const struct far_agent *a, const char *what, struct far_err *err)
{
	if (!a)
		return err_set(err, FAR_INVALID, "%s: the agent is NULL", what);
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		if (c->shard)
			return err_set(
				err, FAR_WOULD_DEADLOCK,
				"%s blocks, and this thread holds a shard; call it on an application thread or in "
				"a handler of FAR_KIND_BLOCKING",
				what);
	pthread_mutex_lock(&lock);
	return FAR_OK;
}

enum far_status far_plugin_load(struct far_agent *a, const char *path, struct far_err *err)
{
	enum far_status status = begin(a, "far_plugin_load", err);
	if (status)
		return status;
	status = load_file(a, path, err);
	pthread_mutex_unlock(&lock);
	return status;
}

enum far_status plugin_load_image(struct far_agent *a, int fd, const char *from, struct far_err *err)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	enum far_status status = begin(a, "far::plugin_load", err);
	if (status)
		return status;
	status = load_locked(a, path, fd, from, err);
	pthread_mutex_unlock(&lock);
	return status;
}

enum far_status far_plugin_unload(struct far_agent *a, const char *name, uint64_t timeout_ns, struct far_err *err)
{
	enum far_status status = begin(a, "far_plugin_unload", err);
	if (status)
		return status;
	status = unload_locked(a, name, timeout_ns, err);
	pthread_mutex_unlock(&lock);
	return status;
}

enum far_status far_plugin_reload(struct far_agent *a, const char *name, const char *path, uint64_t timeout_ns,
				  struct far_err *err)
{
	enum far_status status = begin(a, "far_plugin_reload", err);
	if (status)
		return status;
	const struct loaded_plugin *p = name ? find(a, name) : NULL;
	if (!path && p && p->fd >= 0)
		status = err_set(err, FAR_INVALID, "plugin %s was not loaded from a file but sent by %s; name its file",
				 name, p->path);
	if (!status)
		status = unload_locked(a, name, timeout_ns, err);
	if (!status)
		status = load_file(a, path ? path : find(a, name)->path, err);
	pthread_mutex_unlock(&lock);
	return status;
}

void plugins_end(struct far_agent *a)
{
	const char *name;
	uint64_t values;
	pthread_mutex_lock(&lock);
	for (struct loaded_plugin *p = a->plugins, *next; p; p = next) {
		const struct far_plugin *m = p->module;
		next = p->next;
		if (m && m->stop)
			m->stop(NULL);
		if (m)
			forget(p, drop_types(m, m->types_n + m->classes_n, &name, &values));
		free(p);
	}
	a->plugins = NULL;
	pthread_mutex_unlock(&lock);
}
