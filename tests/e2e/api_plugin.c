/* SPDX-License-Identifier: BSD-3-Clause */
/** Plugins: which files are loaded, calls of their functions and methods before, during and after, what refuses to let
 * them go, and what replaces them. Two agents in one process: worker0 calls, worker1 loads.
 * Main thread of each process; handlers on shard threads; threads that it starts. */
#include "api_together.h"

#include <errno.h>
#include <farcall/plugin.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>

static struct together t[2];
static struct far_err err;
static char dir[] = "/tmp/farcall-plugin-XXXXXX", demo[128], shape[128];
static const char *built; /* directory of the shared objects */

/* ---- worker0 ---- */

static struct far_future *_Atomic gate; /* what demo::fiber and demo::block wait for */
static _Atomic int waiting;

static enum far_status wait_gate(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v;
	struct far_err e;
	(void)args;
	(void)n;
	(void)user;
	atomic_fetch_add(&waiting, 1);
	enum far_status status = far_future_wait(atomic_load(&gate), 100 * FAR_SEC, &v, &e);
	return status ? far_fail(req, status, 0, "%s", e.text) : far_return(req, &v);
}

static enum far_status elsewhere(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)args;
	(void)n;
	(void)user;
	return far_fail(req, FAR_REMOTE, 0, "this is the caller");
}

static enum far_status elsewhere_method(struct far_req *req, void *object, const struct far_val *args, size_t n,
					void *user)
{
	(void)object;
	return elsewhere(req, args, n, user);
}

static const struct far_function constructors[] = {
	{"demo::Cell(int n) -> demo::Cell", FAR_KIND_INLINE, elsewhere, NULL, 0}};
static const struct far_method methods[] = {{"add(int by) -> int", FAR_KIND_INLINE, elsewhere_method, NULL}};
static const struct far_class classes[] = {
	{.name = "demo::Cell", .constructors = constructors, .constructors_n = 1, .methods = methods, .methods_n = 1}};
static const struct far_function functions[] = {
	{"t::gate() -> int", FAR_KIND_FIBER, wait_gate, NULL, 0},
	{"demo::add(int a, int b) -> int", FAR_KIND_INLINE, elsewhere, NULL, 0},
	{"demo::fiber() -> int", FAR_KIND_FIBER, elsewhere, NULL, 0},
	{"demo::block() -> int", FAR_KIND_BLOCKING, elsewhere, NULL, 0},
	{"demo::one() -> int", FAR_KIND_INLINE, elsewhere, NULL, 0},
	{"demo::two() -> int", FAR_KIND_INLINE, elsewhere, NULL, 0},
};

/* ---- tools ---- */

/* Puts a copy of a built file in place, as one does with a new version. */
static void install(const char *name, const char *at)
{
	char from[512], temporary[256], buf[65536];
	snprintf(from, sizeof from, "%s/%s", built, name);
	snprintf(temporary, sizeof temporary, "%s.new", at);
	int in = open(from, O_RDONLY), out = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	CHECK(in >= 0 && out >= 0 && fchmod(out, 0644) == 0);
	for (ssize_t n; (n = read(in, buf, sizeof buf)) != 0;)
		CHECK(n > 0 && write(out, buf, (size_t)n) == n);
	close(in);
	close(out);
	CHECK(rename(temporary, at) == 0);
}

static void load(unsigned worker, const char *path)
{
	CHECK_STATUS(far_plugin_load(t[worker].agent, path, &err), FAR_OK, &err);
}

static void refused(const char *path, enum far_status status, const char *text)
{
	CHECK_STATUS(far_plugin_load(t[1].agent, path, &err), status, &err);
	CHECK_TEXT(&err, text);
}

static void refused_file(const char *name, enum far_status status, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, "%s/refused.so", dir);
	install(name, path);
	refused(path, status, text);
}

/* Unloads once nothing of the plugin is alive any more, which is known only by trying. */
static void unload(unsigned worker, const char *name)
{
	enum far_status status;
	while ((status = far_plugin_unload(t[worker].agent, name, 0, &err)) == FAR_BUSY)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	CHECK_STATUS(status, FAR_OK, &err);
}

static void busy(const char *name, const char *text)
{
	CHECK_STATUS(far_plugin_unload(t[1].agent, name, 0, &err), FAR_BUSY, &err);
	CHECK_TEXT(&err, text);
}

static int64_t add(int64_t a, int64_t b)
{
	struct far_val v;
	CHECK_STATUS(far_rpc_sync(t[0].agent, "worker1", "demo::add", FAR_ARGS(a, b), NULL, &v, &err), FAR_OK, &err);
	return v.u.i;
}

static void no_function(const char *name)
{
	struct far_val v;
	CHECK_STATUS(far_rpc_sync(t[0].agent, "worker1", name, FAR_NOARGS, NULL, &v, &err), FAR_NO_FUNCTION, &err);
	CHECK_TEXT(&err, "worker \"worker1\" has no such function");
	CHECK(err.executed == FAR_EXECUTED_NO);
}

/* ---- permission and files ---- */

static void permission(void)
{
	char other[160];
	CHECK(unsetenv("FAR_PLUGIN_PATH") == 0);
	refused(demo, FAR_DENIED, "FAR_PLUGIN_PATH is not set");
	CHECK(setenv("FAR_PLUGIN_PATH", "/usr/lib:farcall:.", 1) == 0);
	refused(demo, FAR_DENIED, "does not list it");
	CHECK(setenv("FAR_PLUGIN_PATH", dir, 1) == 0);
	refused(NULL, FAR_INVALID, "name its file");
	snprintf(other, sizeof other, "%s/none.so", dir);
	refused(other, FAR_SYSTEM, "none.so");
	CHECK(chmod(demo, 0664) == 0);
	refused(demo, FAR_DENIED, "chmod go-w");
	CHECK(chmod(demo, 0646) == 0);
	refused(demo, FAR_DENIED, "chmod go-w");
	CHECK(chmod(demo, 0644) == 0 && chmod(dir, 0777) == 0);
	refused(demo, FAR_DENIED, "has mode 777");
	CHECK(chmod(dir, 0755) == 0);
	refused(dir, FAR_DENIED, "is not a file");
	if (geteuid() == 0) {
		CHECK(chown(demo, 65534, 65534) == 0);
		refused(demo, FAR_DENIED, "belongs to user 65534");
		CHECK(chown(demo, 0, 0) == 0);
	}
	/* A link to a file that is not listed is not listed. */
	snprintf(other, sizeof other, "%s/link.so", dir);
	CHECK(symlink("/bin/true", other) == 0);
	refused(other, FAR_DENIED, "is not permitted");
	CHECK(unlink(other) == 0);
	CHECK_STATUS(far_plugin_load(NULL, demo, &err), FAR_INVALID, &err);
	/* The file itself may be listed, beside others. */
	snprintf(other, sizeof other, "/nowhere:%s", demo);
	CHECK(setenv("FAR_PLUGIN_PATH", other, 1) == 0);
	load(1, demo);
	unload(1, "demo");
	CHECK(setenv("FAR_PLUGIN_PATH", dir, 1) == 0);
}

static void files(void)
{
	char path[128];
	snprintf(path, sizeof path, "%s/text.so", dir);
	FILE *f = fopen(path, "w");
	CHECK(f && fputs("no shared object\n", f) >= 0 && fclose(f) == 0 && chmod(path, 0644) == 0);
	refused(path, FAR_UNSUPPORTED, "cannot be loaded");
	CHECK(unlink(path) == 0);
	refused_file("plugin_none.so", FAR_UNSUPPORTED, "exports no far_plugin_module");
	refused_file("plugin_demo5.so", FAR_UNSUPPORTED, "has plugin ABI 2");
	refused_file("plugin_demo4.so", FAR_INVALID, "must begin with \"demo::\"");
	refused_file("plugin_demo6.so", FAR_GONE, "it does not start");
	CHECK_STATUS(far_plugin_unload(t[1].agent, "demo", 0, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_plugin_unload(t[1].agent, NULL, 0, &err), FAR_INVALID, &err);
}

/* ---- calls ---- */

static void calls(void)
{
	struct far_worker w;
	struct far_callee *c;
	struct far_val v;
	CHECK_STATUS(far_worker_find(t[0].agent, "worker1", &w, &err), FAR_OK, &err);
	CHECK_STATUS(far_callee_find(&w, "demo::add", &c, &err), FAR_OK, &err);
	no_function("demo::one");
	load(1, demo);
	refused(demo, FAR_INVALID, "is loaded already");
	for (int i = 0; i < 5; i++) {
		CHECK(add(i, 2) == i + 2);
		CHECK_STATUS(far_callee_rpc_sync(c, FAR_ARGS(i, 1), NULL, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == i + 1);
	}
	/* The names of a plugin are its own. */
	static const struct far_function overload = {"demo::add(str a) -> int", FAR_KIND_INLINE, elsewhere, NULL, 0};
	CHECK_STATUS(far_register_function(t[1].agent, &overload, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "by a plugin");
	unload(1, "demo");
	/* worker0 has the number of the function; worker1 has forgotten its name. */
	CHECK_STATUS(far_callee_rpc_sync(c, FAR_ARGS(1, 1), NULL, &v, &err), FAR_NO_FUNCTION, &err);
	CHECK_TEXT(&err, "worker \"worker1\" has no such function");
	CHECK(err.executed == FAR_EXECUTED_NO);
	far_callee_free(c);
	/* The loader is a caller too: its handles end with a status. */
	load(1, demo);
	CHECK_STATUS(far_worker_find(t[1].agent, "worker1", &w, &err), FAR_OK, &err);
	CHECK_STATUS(far_callee_find(&w, "demo::add", &c, &err), FAR_OK, &err);
	for (int i = 0; i < 3; i++) {
		CHECK_STATUS(far_callee_rpc_sync(c, FAR_ARGS(i, 1), NULL, &v, &err), FAR_OK, &err);
		CHECK_STATUS(far_rpc_sync(t[1].agent, "worker1", "demo::add", FAR_ARGS(i, 1), NULL, &v, &err), FAR_OK,
			     &err);
	}
	unload(1, "demo");
	for (int i = 0; i < 3; i++) {
		CHECK_STATUS(far_callee_rpc_sync(c, FAR_ARGS(i, 1), NULL, &v, &err), FAR_NO_FUNCTION, &err);
		CHECK_TEXT(&err, "no function \"demo::add\" is registered here"); /* nothing is sent */
		CHECK_STATUS(far_rpc_sync(t[1].agent, "worker1", "demo::add", FAR_ARGS(i, 1), NULL, &v, &err),
			     FAR_NO_FUNCTION, &err);
	}
	/* Once more under the same name: the old handle is worth something again. */
	load(1, demo);
	CHECK_STATUS(far_callee_rpc_sync(c, FAR_ARGS(1, 1), NULL, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 2 && add(4, 5) == 9);
	unload(1, "demo");
	far_callee_free(c);
}

static void objects(void)
{
	struct far_rref *r, *again;
	struct far_val v;
	load(1, demo);
	CHECK_STATUS(far_remote(t[0].agent, "worker1", "demo::Cell", FAR_ARGS(5), NULL, &r, &err), FAR_OK, &err);
	for (int i = 1; i < 4; i++) {
		CHECK_STATUS(far_rref_rpc_sync(r, "add", FAR_ARGS(1), NULL, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == 5 + i);
	}
	busy("demo", "of its fibers and objects are alive");
	CHECK_STATUS(far_rref_rpc_sync(r, "add", FAR_ARGS(1), NULL, &v, &err), FAR_OK, &err); /* loaded as before */
	CHECK_STATUS(far_remote(t[0].agent, "worker1", "demo::Cell", FAR_ARGS(5), NULL, &again, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_rpc_sync(again, "add", FAR_ARGS(1), NULL, &v, &err), FAR_OK, &err);
	far_rref_free(r);
	busy("demo", "are alive");
	far_rref_free(again);
	unload(1, "demo");
	CHECK_STATUS(far_remote(t[0].agent, "worker1", "demo::Cell", FAR_ARGS(5), NULL, &r, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_rpc_sync(r, "add", FAR_ARGS(1), NULL, &v, &err), FAR_NO_FUNCTION, &err);
	far_rref_free(r);
	CHECK_STATUS(far_rref_of_object(t[1].agent, "demo::Cell", &r, &r, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "demo::Cell");
	load(1, demo);
	CHECK_STATUS(far_remote(t[0].agent, "worker1", "demo::Cell", FAR_ARGS(7), NULL, &r, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_rpc_sync(r, "add", FAR_ARGS(1), NULL, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 8);
	far_rref_free(r);
	unload(1, "demo");
}

/* Starts a handler that waits for release(). */
static struct far_future *hold(const char *function)
{
	struct far_future *f, *g;
	CHECK_STATUS(far_future_create(&g, &err), FAR_OK, &err);
	atomic_store(&gate, g);
	int before = atomic_load(&waiting);
	CHECK_STATUS(far_rpc_async(t[0].agent, "worker1", function, FAR_NOARGS, NULL, &f, &err), FAR_OK, &err);
	while (atomic_load(&waiting) == before) {
		CHECK(!far_future_done(f));
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return f;
}

static void release(struct far_future *f)
{
	struct far_val v = far_int(77);
	CHECK_STATUS(far_future_set_value(atomic_load(&gate), &v, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 100 * FAR_SEC, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 77);
	far_future_free(f);
	far_future_free(atomic_load(&gate));
}

static void *unload_slowly(void *arg)
{
	struct far_err e;
	CHECK_STATUS(far_plugin_unload(t[1].agent, "demo", 100 * FAR_SEC, &e), FAR_OK, &e);
	atomic_store((_Atomic bool *)arg, true);
	return NULL;
}

static void running(void)
{
	pthread_t thread;
	_Atomic bool unloaded = false;
	load(1, demo);
	struct far_future *f = hold("demo::fiber");
	busy("demo", "are alive");
	release(f);
	f = hold("demo::block");
	CHECK_STATUS(far_plugin_unload(t[1].agent, "demo", FAR_MS, &err), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "still runs");
	CHECK(add(1, 2) == 3); /* loaded as before */
	CHECK(pthread_create(&thread, NULL, unload_slowly, &unloaded) == 0);
	/* It has begun once calls fail; it cannot have ended. */
	struct far_val v;
	enum far_status status;
	while ((status = far_rpc_sync(t[0].agent, "worker1", "demo::add", FAR_ARGS(1, 2), NULL, &v, &err)) == FAR_OK)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	CHECK_STATUS(status, FAR_NO_FUNCTION, &err);
	CHECK(!atomic_load(&unloaded));
	release(f);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(atomic_load(&unloaded));
	no_function("demo::block");
}

static void reload(void)
{
	struct far_val v;
	load(1, demo);
	CHECK(add(1, 2) == 3);
	CHECK_STATUS(far_rpc_sync(t[0].agent, "worker1", "demo::two", FAR_NOARGS, NULL, &v, &err), FAR_NO_FUNCTION,
		     &err);
	for (int i = 0; i < 2; i++) /* worker0 knows its number then */
		CHECK_STATUS(far_rpc_sync(t[0].agent, "worker1", "demo::one", FAR_NOARGS, NULL, &v, &err), FAR_OK,
			     &err);
	install("plugin_demo2.so", demo);
	CHECK(add(1, 2) == 3);
	CHECK_STATUS(far_plugin_reload(t[1].agent, "demo", NULL, 0, &err), FAR_OK, &err);
	CHECK(add(1, 2) == 1003);
	no_function("demo::one");
	install("plugin_demo3.so", demo);
	CHECK_STATUS(far_plugin_reload(t[1].agent, "demo", demo, 0, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "demo::add");
	CHECK_TEXT(&err, "in the version before");
	no_function("demo::fiber"); /* all or nothing */
	install("plugin_demo1.so", demo);
	CHECK_STATUS(far_plugin_reload(t[1].agent, "demo", demo, 0, &err), FAR_INVALID, &err);
	load(1, demo);
	CHECK(add(1, 2) == 3);
	unload(1, "demo");
}

/* Calls a function that the caller knows by its own plugin, by name and by handle. */
static void count(struct far_callee *c, enum far_status status)
{
	float data[2] = {1, 2};
	struct far_tensor x = far_tensor_1d(FAR_F32, data, 2);
	struct far_val v;
	CHECK_STATUS(far_shard_acquire(t[0].agent, 20 * FAR_SEC, &err), FAR_OK, &err);
	for (int i = 0; i < 8; i++) {
		CHECK_STATUS(i % 2 ? far_callee_rpc_sync(c, FAR_ARGS(&x), NULL, &v, &err)
				   : far_rpc_sync(t[0].agent, "worker1", "shape::count", FAR_ARGS(&x), NULL, &v, &err),
			     status, &err);
		if (status) /* nothing was sent: worker1 has it */
			CHECK_TEXT(&err, "no function \"shape::count\" is registered here");
		else
			CHECK(v.u.i == 2);
	}
	far_shard_release(t[0].agent);
}

static void values(void)
{
	struct far_val box, larger;
	struct far_worker w;
	struct far_callee *c;
	load(1, shape);
	load(0, shape);
	CHECK_STATUS(far_rpc_sync(t[0].agent, "worker1", "shape::make", FAR_ARGS(4), NULL, &box, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync(t[0].agent, "worker1", "shape::grow", FAR_ARGS(box), NULL, &larger, &err), FAR_OK,
		     &err);
	CHECK(*(const int64_t *)larger.u.custom.object == 5);
	CHECK_STATUS(far_worker_find(t[0].agent, "worker1", &w, &err), FAR_OK, &err);
	CHECK_STATUS(far_callee_find(&w, "shape::count", &c, &err), FAR_OK, &err);
	count(c, FAR_OK);
	unload(0, "shape"); /* worker1 keeps the type in use */
	count(c, FAR_NO_FUNCTION);
	far_callee_free(c);
	CHECK_STATUS(far_rpc_sync(t[0].agent, "worker1", "shape::grow", FAR_ARGS(box), NULL, &larger, &err),
		     FAR_NO_FUNCTION, &err);
	far_val_fini(&box);
	busy("shape", "1 values of its type shape::Box are alive");
	load(0, shape);
	CHECK_STATUS(far_rpc_sync(t[0].agent, "worker1", "shape::grow", FAR_ARGS(larger), NULL, &box, &err), FAR_OK,
		     &err);
	CHECK(*(const int64_t *)box.u.custom.object == 6);
	unload(0, "shape");
	far_val_fini(&box);
	far_val_fini(&larger);
	unload(1, "shape");
	load(1, shape);
	unload(1, "shape");
}

/* ---- loading while others call ---- */

static _Atomic bool stop;
static _Atomic int succeeded;

static void *keep_calling(void *arg)
{
	struct far_err e;
	struct far_val v;
	struct far_rref *r;
	const struct together *from = arg;
	while (!atomic_load(&stop)) {
		enum far_status status =
			far_rpc_sync(from->agent, "worker1", "demo::add", FAR_ARGS(20, 22), NULL, &v, &e);
		CHECK(status == FAR_OK ? v.u.i % 1000 == 42 : status == FAR_NO_FUNCTION);
		atomic_fetch_add(&succeeded, status == FAR_OK);
		if (far_remote(from->agent, "worker1", "demo::Cell", FAR_ARGS(1), NULL, &r, &e))
			continue;
		status = far_rref_rpc_sync(r, "add", FAR_ARGS(1), NULL, &v, &e);
		CHECK(status == FAR_OK ? v.u.i % 1000 == 2 : status == FAR_NO_FUNCTION);
		far_rref_free(r);
	}
	return NULL;
}

static void under_load(void)
{
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, keep_calling, &t[i]) == 0);
	for (int i = 0; i < 20; i++) {
		install(i % 2 ? "plugin_demo2.so" : "plugin_demo1.so", demo);
		load(1, demo);
		for (int before = atomic_load(&succeeded); atomic_load(&succeeded) == before;)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		unload(1, "demo");
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	install("plugin_demo1.so", demo);
}

static void misuse(void)
{
	CHECK_STATUS(far_shard_acquire(t[1].agent, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_plugin_load(t[1].agent, demo, &err), FAR_WOULD_DEADLOCK, &err);
	CHECK_STATUS(far_plugin_unload(t[1].agent, "demo", 0, &err), FAR_WOULD_DEADLOCK, &err);
	CHECK_STATUS(far_plugin_reload(t[1].agent, "demo", NULL, 0, &err), FAR_WOULD_DEADLOCK, &err);
	far_shard_release(t[1].agent);
	CHECK_STATUS(far_plugin_reload(t[1].agent, "demo", NULL, 0, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "demo");
	/* A name of the application is not replaced, and nothing of the plugin stays. */
	static const struct far_function taken = {"demo::block() -> int", FAR_KIND_BLOCKING, elsewhere, NULL, 0};
	CHECK_STATUS(far_register_function(t[1].agent, &taken, &err), FAR_OK, &err);
	refused(demo, FAR_INVALID, "is registered already, by the application");
	no_function("demo::one");
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	built = argv[1];
	CHECK(mkdtemp(dir));
	CHECK(chmod(dir, 0755) == 0);
	snprintf(demo, sizeof demo, "%s/demo.so", dir);
	snprintf(shape, sizeof shape, "%s/shape.so", dir);
	install("plugin_demo1.so", demo);
	install("plugin_shape.so", shape);
	together_listen();
	for (int i = 0; i < 2; i++)
		t[i] = (struct together){.rank = i, .world = 2, .opts = {.nic = "shm"}};
	t[0].opts.functions = functions;
	t[0].opts.functions_n = sizeof functions / sizeof *functions;
	t[1].opts.functions = functions; /* t::gate alone */
	t[1].opts.functions_n = 1;
	t[0].opts.classes = classes;
	t[0].opts.classes_n = 1;
	together_all(t, 2, together_join);
	permission();
	files();
	calls();
	objects();
	running();
	reload();
	values();
	under_load();
	misuse();
	load(0, shape); /* far_shutdown() ends it */
	together_all(t, 2, together_leave);
	char path[128];
	snprintf(path, sizeof path, "%s/refused.so", dir);
	CHECK(unlink(path) == 0 && unlink(demo) == 0 && unlink(shape) == 0 && rmdir(dir) == 0);
	return 0;
}
