/* SPDX-License-Identifier: BSD-3-Clause */
/** far_store_*: the store of a group, and stores opened by their address, over TCP and in a file: every operation
 * between processes, waits of several threads, watches, and stores that are not there, end, or have another key. */
#include "api_spawn.h"

#include <farcall/store.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { WORLD = 3, ADDS = 50, THREADS = 4 };

static struct far_err err;
static struct far_store_value value;
static char url[96];

#define STORE_OK(call) CHECK_STATUS(call, FAR_OK, &err)

static void expect(struct far_store *s, const char *key, const char *text)
{
	STORE_OK(far_store_get(s, key, 0, &value, &err));
	CHECK(value.found == (text != NULL));
	CHECK(value.bytes == (text ? strlen(text) : 0) && (!text || memcmp(value.data, text, value.bytes) == 0));
}

static void set(struct far_store *s, const char *key, const char *text)
{
	STORE_OK(far_store_set(s, key, text, strlen(text), 0, &err));
}

/* One client alone. */
static void operations(struct far_store *s)
{
	char longest[FAR_STORE_KEY_BYTES + 2];
	static uint8_t bytes[FAR_STORE_VALUE_BYTES + 1];
	int64_t sum = 0;
	int is = -1;
	expect(s, "a", NULL);
	set(s, "a", "1");
	expect(s, "a", "1");
	set(s, "a", "");
	expect(s, "a", "");
	/* What a group writes about its members is another key. */
	set(s, "default/rank/0", "mine");
	set(s, "rank/0", "mine");
	expect(s, "default/rank/0", "mine");
	STORE_OK(far_store_add(s, "n", 5, 0, &sum, &err));
	STORE_OK(far_store_add(s, "n", -7, 0, &sum, &err));
	CHECK(sum == -2);
	CHECK_STATUS(far_store_add(s, "rank/0", 1, 0, &sum, &err), FAR_INVALID, &err);
	STORE_OK(far_store_compare_set(s, "c", NULL, 0, "x", 1, 0, &is, &value, &err));
	CHECK(is == 1 && value.found && value.bytes == 1 && value.data[0] == 'x');
	STORE_OK(far_store_compare_set(s, "c", "y", 1, "z", 1, 0, &is, &value, &err));
	CHECK(is == 0 && value.found && value.bytes == 1 && value.data[0] == 'x');
	STORE_OK(far_store_compare_set(s, "c", "x", 1, "z", 1, 0, &is, NULL, &err));
	CHECK(is == 1);
	expect(s, "c", "z");
	STORE_OK(far_store_compare_set(s, "none", "x", 1, "z", 1, 0, &is, &value, &err));
	CHECK(is == 0 && !value.found && value.bytes == 0);
	STORE_OK(far_store_delete(s, "c", 0, &is, &err));
	CHECK(is == 1);
	STORE_OK(far_store_delete(s, "c", 0, &is, &err));
	CHECK(is == 0);
	expect(s, "c", NULL);
	memset(longest, 'k', sizeof longest - 1);
	longest[sizeof longest - 1] = 0;
	CHECK_STATUS(far_store_set(s, longest, "1", 1, 0, &err), FAR_INVALID, &err);
	longest[FAR_STORE_KEY_BYTES] = 0;
	STORE_OK(far_store_set(s, longest, bytes, FAR_STORE_VALUE_BYTES, 0, &err));
	STORE_OK(far_store_get(s, longest, 0, &value, &err));
	CHECK(value.bytes == FAR_STORE_VALUE_BYTES);
	STORE_OK(far_store_delete(s, longest, 0, NULL, &err));
	CHECK_STATUS(far_store_set(s, "a", bytes, sizeof bytes, 0, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_store_get(s, "", 0, &value, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_store_get(s, NULL, 0, &value, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_store_wait(s, "never", FAR_MS, &value, &err), FAR_TIMEOUT, &err);
	for (const char *const *k = (const char *const[]){"a", "n", "default/rank/0", "rank/0", NULL}; *k; k++)
		STORE_OK(far_store_delete(s, *k, 0, NULL, &err));
}

static void next_is(struct far_store_watcher *w, const char *key, const char *text)
{
	struct far_store_change c;
	STORE_OK(far_store_watch_next(w, 0, &c, &err));
	CHECK(strcmp(c.key, key) == 0 && c.value.found == (text != NULL));
	CHECK(!text || (c.value.bytes == strlen(text) && memcmp(c.value.data, text, c.value.bytes) == 0));
}

static void watches(struct far_store *s)
{
	struct far_store_watcher *w = NULL, *all = NULL;
	struct far_store_change c;
	set(s, "w/1", "a");
	STORE_OK(far_store_watch(s, "w/", 0, &w, &err));
	next_is(w, "w/1", "a");
	CHECK_STATUS(far_store_watch_next(w, FAR_MS, &c, &err), FAR_TIMEOUT, &err);
	set(s, "w", "outside");
	set(s, "w/2", "b");
	next_is(w, "w/2", "b");
	STORE_OK(far_store_delete(s, "w/1", 0, NULL, &err));
	next_is(w, "w/1", NULL);
	set(s, "w/1", "again");
	next_is(w, "w/1", "again");
	STORE_OK(far_store_watch(s, "", 0, &all, &err));
	next_is(all, "w", "outside");
	next_is(all, "w/2", "b");
	next_is(all, "w/1", "again");
	CHECK_STATUS(far_store_watch_next(all, FAR_MS, &c, &err), FAR_TIMEOUT, &err);
	far_store_watch_end(all);
	far_store_watch_end(w);
	for (const char *const *k = (const char *const[]){"w", "w/1", "w/2", NULL}; *k; k++)
		STORE_OK(far_store_delete(s, *k, 0, NULL, &err));
}

static void *wait_for_go(void *store)
{
	struct far_store_value v;
	struct far_err e;
	CHECK_STATUS(far_store_wait(store, "go", 0, &v, &e), FAR_OK, &e);
	CHECK(v.found && v.bytes == 2 && memcmp(v.data, "go", 2) == 0);
	return NULL;
}

/* Several threads wait in one store while another one uses it. */
static void threads(struct far_store *s)
{
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, wait_for_go, s) == 0);
	expect(s, "go", NULL);
	set(s, "go", "go");
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	STORE_OK(far_store_delete(s, "go", 0, NULL, &err));
}

/* All workers add, and wait for each other. */
static void together(struct far_store *s, int rank)
{
	char key[16];
	int64_t sum = 0;
	for (int i = 0; i < ADDS; i++)
		STORE_OK(far_store_add(s, "sum", 1, 0, &sum, &err));
	snprintf(key, sizeof key, "done/%d", rank);
	set(s, key, "1");
	for (int r = 0; r < WORLD; r++) {
		snprintf(key, sizeof key, "done/%d", r);
		STORE_OK(far_store_wait(s, key, 0, NULL, &err));
	}
	STORE_OK(far_store_add(s, "sum", 0, 0, &sum, &err));
	CHECK(sum == WORLD * ADDS);
}

static int worker(int rank)
{
	struct far_store *s = NULL, *by_url = NULL;
	struct far_opts opts = {.init_timeout_ns = 30 * FAR_SEC};
	struct far_agent *agent = check_join(&opts);
	STORE_OK(far_store_of(agent, 0, &s, &err));
	STORE_OK(far_store_open(NULL, NULL, 0, &by_url, &err));
	if (rank == 0) {
		operations(s);
		watches(by_url);
		threads(s);
	}
	STORE_OK(far_barrier(agent, NULL, 0, 0, &err));
	together(rank == 1 ? by_url : s, rank);
	far_store_close(by_url);
	CHECK_STATUS(far_store_open(NULL, &(struct far_store_opts){.security = "none"}, 5 * FAR_SEC, &by_url, &err),
		     getenv("FAR_INIT_METHOD") ? FAR_OK : FAR_DENIED, &err);
	if (getenv("FAR_INIT_METHOD"))
		far_store_close(by_url);
	STORE_OK(far_barrier(agent, NULL, 0, 0, &err));
	check_leave(agent);
	if (!getenv("FAR_INIT_METHOD")) { /* rank 0 has ended the store, or is about to */
		enum far_status status;
		do
			status = far_store_set(s, "late", "1", 1, 100 * FAR_MS, &err);
		while (status == FAR_OK);
		CHECK(status == FAR_PEER_LOST || status == FAR_TIMEOUT || status == FAR_DENIED);
	}
	far_store_close(s);
	return 0;
}

/* Without a group; values outlive the client. `path`: of the file, which the last client removes; NULL: etcd. */
static void alone(const char *path)
{
	struct far_store *s = NULL, *other = NULL;
	const struct far_store_opts none = {.security = "none"};
	STORE_OK(far_store_open(url, &none, 5 * FAR_SEC, &s, &err));
	STORE_OK(far_store_open(url, &none, 0, &other, &err));
	operations(s);
	watches(s);
	threads(other);
	set(s, "kept", "1");
	far_store_close(s);
	far_store_close(other);
	STORE_OK(far_store_open(url, &none, 0, &s, &err));
	expect(s, "kept", "1");
	STORE_OK(far_store_delete(s, "kept", 0, NULL, &err));
	far_store_close(s);
	CHECK(!path || access(path, F_OK) != 0);
	far_store_close(NULL);
	far_store_watch_end(NULL);
}

/* Nothing answers at a port that nobody listens on. */
static void refused(void)
{
	struct far_store *s = NULL;
	struct far_store_opts opts = {.security = "none"};
	char nobody[64];
	int port, fd = spawn_listen(&port);
	close(fd);
	snprintf(nobody, sizeof nobody, "tcp://127.0.0.1:%d", port);
	CHECK_STATUS(far_store_open(nobody, &opts, 100 * FAR_MS, &s, &err), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "Connection refused");
	CHECK(err.executed == FAR_EXECUTED_NO);
	CHECK_STATUS(far_store_open("file:///nonexistent/store", &opts, 0, &s, &err), FAR_SYSTEM, &err);
	CHECK_STATUS(far_store_open("nowhere://x", &opts, 0, &s, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_store_open(nobody, &opts, 0, NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_store_of(NULL, 0, &s, &err), FAR_SHUTDOWN, &err);
	CHECK_STATUS(far_store_set(NULL, "k", "", 0, 0, &err), FAR_INVALID, &err);
	CHECK(s == NULL);
}

/* The store outlives the group. */
static void clean(void)
{
	struct far_store *s = NULL;
	char key[16];
	STORE_OK(far_store_open(url, &(struct far_store_opts){.security = "none"}, 0, &s, &err));
	for (int r = 0; r < WORLD; r++) {
		snprintf(key, sizeof key, "done/%d", r);
		STORE_OK(far_store_delete(s, key, 0, NULL, &err));
	}
	STORE_OK(far_store_delete(s, "sum", 0, NULL, &err));
	far_store_close(s);
}

/* The store that is given, of a group with a key. */
static int given(const char *store)
{
	snprintf(url, sizeof url, "%s", store);
	unsetenv("FAR_INIT_METHOD");
	alone(NULL);
	setenv("FAR_INIT_METHOD", url, 1);
	struct spawned s = spawn(WORLD, worker);
	CHECK(spawn_wait(&s, -1) == 0);
	clean();
	return 0;
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/farcall-e2e-XXXXXX", path[64];
	alarm(HANG_GUARD_S);
	if (argc > 1)
		return given(argv[1]);
	CHECK(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/store", dir);
	snprintf(url, sizeof url, "file://%s", path);
	unsetenv("FAR_INIT_METHOD");
	refused();
	alone(path);
	struct spawned s = spawn(WORLD, worker);
	CHECK(spawn_wait(&s, -1) == 0);
	setenv("FAR_INIT_METHOD", url, 1);
	s = spawn(WORLD, worker);
	CHECK(spawn_wait(&s, -1) == 0);
	unlink(path);
	snprintf(url, sizeof url, "%s.lock", path);
	unlink(url);
	CHECK(rmdir(dir) == 0);
	return 0;
}
