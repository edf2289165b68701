/* SPDX-License-Identifier: BSD-3-Clause */
/** Plugins that are sent: what a worker without keys, an unknown key, a changed file and a bad list answer; a plugin
 * that replaces the one before. Two agents in one process: worker0 sends, worker1 loads.
 * Main thread of each process. */
#include "api_together.h"

#include <dirent.h>
#include <errno.h>
#include <farcall/plugin.h>
#include <fcntl.h>
#include <sys/stat.h>

static struct together t[2];
static struct far_err err;
static char dir[] = "/tmp/farcall-send-XXXXXX";
static char *built, *farcall; /* directory of the shared objects; the program */

/* Runs a command in `dir`. */
__attribute__((format(printf, 1, 2))) static void shell(const char *format, ...)
{
	char command[2048], what[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	snprintf(command, sizeof command, "cd %s && farcall() { '%s' \"$@\"; } && built='%s' && %s", dir, farcall,
		 built, what);
	CHECK(system(command) == 0);
}

static enum far_status send_to(const char *to, const char *file)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, file);
	return far_plugin_send(t[0].agent, to, path, 0, &err);
}

static void refused(const char *file, enum far_status status, const char *text)
{
	CHECK_STATUS(send_to("worker1", file), status, &err);
	CHECK_TEXT(&err, text);
}

static int64_t add(int64_t a, int64_t b)
{
	const struct far_val args[] = {far_int(a), far_int(b)};
	struct far_val v;
	CHECK_STATUS(far_rpc_sync_unchecked(t[0].agent, "worker1", "demo::add", args, 2, NULL, &v, &err), FAR_OK, &err);
	return v.u.i;
}

static unsigned descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* The files: two versions of a plugin, signed; one that is changed after it; one that another key has signed. */
static void prepare(void)
{
	shell("farcall key signer.key >/dev/null && farcall key other.key >/dev/null");
	shell("cp $built/plugin_demo1.so one.so && cp $built/plugin_demo2.so two.so && cp $built/plugin_demo6.so "
	      "six.so");
	shell("cp one.so changed.so && cp one.so unlisted.so && cp one.so bare.so && cp one.so short.so");
	shell("cp $built/plugin_none.so none.so");
	shell("farcall sign signer.key one.so two.so six.so changed.so short.so none.so >/dev/null");
	shell("farcall sign other.key unlisted.so >/dev/null && printf x >>changed.so && truncate -s 63 short.so.sig");
	shell("{ echo '# signers'; echo; farcall sign --public signer.key | sed 's/$/ # ours/'; } >keys && chmod 644 "
	      "keys");
}

static void join(void)
{
	for (int i = 0; i < 2; i++)
		t[i] = (struct together){.rank = i, .world = 2, .opts = {.nic = "shm"}};
	together_all(t, 2, together_join);
}

static void no_keys(void)
{
	CHECK(unsetenv("FAR_PLUGIN_KEYS") == 0);
	join();
	refused("one.so", FAR_DENIED, "start it with FAR_PLUGIN_KEYS");
	together_all(t, 2, together_leave);
}

static void sender(void)
{
	CHECK_STATUS(far_plugin_send(NULL, "worker1", "x", 0, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_plugin_send(t[0].agent, "worker1", NULL, 0, &err), FAR_INVALID, &err);
	CHECK_STATUS(send_to("worker7", "one.so"), FAR_UNKNOWN_WORKER, &err);
	refused("nothing.so", FAR_SYSTEM, "nothing.so");
	refused(".", FAR_INVALID, "is not a file");
	refused("bare.so", FAR_INVALID, "has no signature");
	refused("short.so", FAR_INVALID, "has 63 bytes and not the 64");
}

static void signatures(void)
{
	const struct far_val args[] = {far_bytes("x", 1), far_bytes("y", 1)};
	struct far_val v;
	refused("unlisted.so", FAR_DENIED, "none of the 1 keys");
	refused("changed.so", FAR_DENIED, "none of the 1 keys");
	CHECK_STATUS(far_rpc_sync_unchecked(t[0].agent, "worker1", "far::plugin_load", args, 2, NULL, &v, &err),
		     FAR_DENIED, &err);
	CHECK_TEXT(&err, "a signature has 64 bytes");
	refused("none.so", FAR_UNSUPPORTED, "exports no far_plugin_module");
	refused("six.so", FAR_GONE, "it does not start");
}

/* The list is read for each plugin. */
static void lists(void)
{
	shell("cp keys kept");
	shell("echo 12ab >>keys");
	refused("unlisted.so", FAR_DENIED, "line 4 of the list");
	shell(": >keys");
	refused("one.so", FAR_DENIED, "none of the 0 keys");
	shell("cp kept keys && chmod 664 keys");
	refused("one.so", FAR_DENIED, "chmod go-w");
	shell("chmod 644 keys && chmod 777 .");
	refused("one.so", FAR_DENIED, "has mode 777");
	shell("chmod 755 . && mv keys away");
	refused("one.so", FAR_DENIED, "cannot be used");
	shell("mkdir keys");
	refused("one.so", FAR_DENIED, "is not a file");
	shell("rmdir keys && mv away keys");
	CHECK(setenv("FAR_PLUGIN_KEYS", "keys", 1) == 0);
	refused("one.so", FAR_DENIED, "not an absolute path");
}

static void sent(void)
{
	CHECK_STATUS(send_to("worker1", "one.so"), FAR_OK, &err);
	CHECK(add(1, 2) == 3);
	CHECK_STATUS(send_to("worker1", "two.so"), FAR_OK, &err); /* replaces it */
	CHECK(add(1, 2) == 1003);
	refused("unlisted.so", FAR_DENIED, "none of the 1 keys");
	CHECK(add(1, 2) == 1003); /* untouched */
	CHECK_STATUS(far_plugin_reload(t[1].agent, "demo", NULL, 0, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "sent by worker \"worker0\"");
	CHECK_STATUS(far_plugin_unload(t[1].agent, "demo", 0, &err), FAR_OK, &err);
	unsigned before = descriptors();
	for (int i = 0; i < 20; i++) {
		CHECK_STATUS(send_to("worker1", i % 2 ? "one.so" : "two.so"), FAR_OK, &err);
		CHECK(add(1, 2) == (i % 2 ? 3 : 1003));
		refused("none.so", FAR_UNSUPPORTED, "exports no far_plugin_module");
	}
	CHECK_STATUS(far_plugin_unload(t[1].agent, "demo", 0, &err), FAR_OK, &err);
	CHECK(descriptors() == before);
	CHECK_STATUS(send_to("worker1", "one.so"), FAR_OK, &err); /* far_shutdown() ends it */
}

int main(int argc, char **argv)
{
	char keys[64];
	CHECK(argc == 3);
	CHECK((built = realpath(argv[1], NULL)) && (farcall = realpath(argv[2], NULL)));
	CHECK(mkdtemp(dir) && chmod(dir, 0755) == 0);
	umask(022);
	prepare();
	together_listen();
	no_keys();
	snprintf(keys, sizeof keys, "%s/keys", dir);
	CHECK(setenv("FAR_PLUGIN_KEYS", keys, 1) == 0);
	join();
	sender();
	signatures();
	lists();
	CHECK(setenv("FAR_PLUGIN_KEYS", keys, 1) == 0);
	sent();
	together_all(t, 2, together_leave);
	shell("rm -r ../%s", strrchr(dir, '/') + 1);
	free(built);
	free(farcall);
	return 0;
}
