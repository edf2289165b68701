/* SPDX-License-Identifier: BSD-3-Clause */
/** Plugins from files: who may have written them, what is none, loading and unloading, what holds a plugin. The test's
 * thread. */
#include "api/plugin.h"
#include "open_files.h"
#include "own_plugin.h"

#include <time.h>
#include <unistd.h>

static void setup(void)
{
	own_dir_make();
	setenv("FAR_PLUGIN_PATH", top, 1);
	install("plugin_demo1.so", "demo.so");
	agent = own_begin(NULL);
}

static void teardown(void)
{
	own_end(agent);
	own_dir_remove();
}

TestSuite(api_plugin, .init = setup, .fini = teardown);

static void refused(const char *file, enum far_status status, const char *text)
{
	cr_assert_eq(far_plugin_load(agent, file ? path_of(file) : NULL, &err), status, "%s: %s", text, err.text);
	cr_assert(strstr(err.text, text), "%s", err.text);
}

static void load(const char *file)
{
	cr_assert_eq(far_plugin_load(agent, path_of(file), &err), FAR_OK, "%s", err.text);
}

/* ---- permission ---- */

/* The list has files and directories by absolute path; links lead to the file that counts. */
Test(api_plugin, the_list)
{
	char list[256];
	unsetenv("FAR_PLUGIN_PATH");
	refused("demo.so", FAR_DENIED, "FAR_PLUGIN_PATH is not set; add the file or its directory");
	cr_assert_eq(chdir(top), 0);
	snprintf(list, sizeof list, "/usr/lib:.:demo.so:%s/other:", top);
	setenv("FAR_PLUGIN_PATH", list, 1);
	refused("demo.so", FAR_DENIED, "FAR_PLUGIN_PATH does not list it");
	cr_assert_eq(symlink("/usr/bin/true", path_of("link.so")), 0);
	setenv("FAR_PLUGIN_PATH", top, 1);
	refused("link.so", FAR_DENIED, "true is not permitted");
	refused("none.so", FAR_SYSTEM, "none.so: No such file or directory");
	refused(NULL, FAR_INVALID, "cannot find plugin (NULL): name its file");
	snprintf(list, sizeof list, "/usr/lib:%s/demo.so", top);
	setenv("FAR_PLUGIN_PATH", list, 1);
	load("demo.so");
}

/* Expect files and directories refused that others may change. */
Test(api_plugin, owners)
{
	chmod(path_of("demo.so"), 0664);
	refused("demo.so", FAR_DENIED, "demo.so has mode 664: others could replace the plugin; run chmod go-w on it");
	chmod(path_of("demo.so"), 0644);
	chmod(top, 0702);
	refused("demo.so", FAR_DENIED, "has mode 702");
	chmod(top, 0700);
	cr_assert_eq(plugin_check_owner(top, false, &err), FAR_DENIED, "a directory is no file");
	cr_assert_eq(plugin_check_owner(path_of("demo.so"), true, &err), FAR_DENIED);
	cr_assert_eq(plugin_check_owner(path_of("none"), false, &err), FAR_SYSTEM);
	cr_assert_eq(plugin_check_owner("/etc/passwd", false, &err), FAR_OK, "root's: %s", err.text);
	load("demo.so");
}

/* ---- what is no plugin ---- */

Test(api_plugin, other_files)
{
	put("text.so", "no object");
	install("plugin_none.so", "none.so");
	install("plugin_demo4.so", "name.so");
	install("plugin_demo5.so", "abi.so");
	install("plugin_demo6.so", "start.so");
	load("demo.so"); /* what the loader opens once is open */
	cr_assert_eq(far_plugin_unload(agent, "demo", 0, &err), FAR_OK, "%s", err.text);
	unsigned before = open_files();
	refused("text.so", FAR_UNSUPPORTED, "cannot be loaded: ");
	refused("none.so", FAR_UNSUPPORTED, "exports no far_plugin_module; define one with FAR_PLUGIN_EXPORT");
	refused("name.so", FAR_INVALID, "the name of its function \"other::only() -> int\" must begin with \"demo::\"");
	refused("abi.so", FAR_UNSUPPORTED, "build the plugin with the headers of this version");
	refused("start.so", FAR_GONE, "it does not start");
	cr_assert_eq(open_files(), before);
	cr_assert_eq(add(1, 2), -(int64_t)FAR_NO_FUNCTION, "nothing of them stays");
	load("demo.so");
}

/* ---- loading and unloading ---- */

Test(api_plugin, loaded_unloaded_and_replaced)
{
	struct far_err e;
	load("demo.so");
	cr_assert_eq(add(1, 2), 3);
	refused("demo.so", FAR_INVALID, "plugin demo is loaded already, from ");
	cr_assert_eq(far_plugin_unload(agent, "demo", 0, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(add(1, 2), -(int64_t)FAR_NO_FUNCTION);
	cr_assert_eq(far_plugin_unload(agent, "demo", 0, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "no plugin \"demo\" is loaded");
	load("demo.so");
	install("plugin_demo2.so", "demo.so");
	cr_assert_eq(far_plugin_reload(agent, "demo", NULL, 0, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(add(1, 2), 1003, "the new version");
	cr_assert_eq(far_plugin_reload(agent, "other", NULL, 0, &err), FAR_INVALID);
	cr_assert_eq(far_plugin_unload(agent, NULL, 0, &err), FAR_INVALID);
	cr_assert_eq(far_plugin_load(NULL, path_of("demo.so"), &e), FAR_INVALID);
	cr_assert_str_eq(e.text, "far_plugin_load: the agent is NULL");
}

/* An object of the plugin is alive. Expect the plugin whole until it is gone. */
Test(api_plugin, held_by_an_object)
{
	struct far_rref *cell;
	struct far_val v;
	load("demo.so");
	cr_assert_eq(far_remote(agent, "w0", "demo::Cell", FAR_ARGS(5), NULL, &cell, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_rref_rpc_sync(cell, "add", FAR_ARGS(2), NULL, &v, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(v.u.i, 7);
	cr_assert_eq(far_plugin_unload(agent, "demo", 0, &err), FAR_BUSY);
	cr_assert(strstr(err.text, "1 of its fibers and objects are alive; free the references to its objects"), "%s",
		  err.text);
	cr_assert_eq(add(1, 2), 3);
	far_rref_free(cell);
	enum far_status status = FAR_BUSY;
	for (unsigned tries = 0; tries < 20000 && status == FAR_BUSY; tries++) {
		status = far_plugin_unload(agent, "demo", 0, &err);
		nanosleep(&(struct timespec){.tv_nsec = status ? 1000000 : 0}, NULL);
	}
	cr_assert_eq(status, FAR_OK, "%s", err.text);
}

static enum far_status loads(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err e;
	enum far_status status = far_plugin_load(far_req_agent(req), path_of("demo.so"), &e);
	return status ? far_fail(req, status, 0, "%s", e.text) : far_return_none(req);
}

/* Loading blocks: not on a shard, but in a handler that may block. */
Test(api_plugin, in_handlers)
{
	static const struct far_function functions[] = {{"t::inline() -> none", FAR_KIND_INLINE, loads, NULL},
							{"t::blocking() -> none", FAR_KIND_BLOCKING, loads, NULL}};
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(far_register_function(agent, &functions[i], &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_rpc_sync(agent, "w0", "t::inline", FAR_ARGS(), NULL, NULL, &err), FAR_WOULD_DEADLOCK);
	cr_assert(strstr(err.text, "far_plugin_load blocks, and this thread holds a shard"), "%s", err.text);
	cr_assert_eq(far_rpc_sync(agent, "w0", "t::blocking", FAR_ARGS(), NULL, NULL, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(add(1, 2), 3);
}
