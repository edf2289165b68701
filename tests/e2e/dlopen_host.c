/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 1 -- dlopen_host LIBRARY. Main thread of each process; handlers on shard threads; threads that it starts. */
/** A host program of many threads that loads the library when they run, uses it from all of them, unloads it and loads
 * it again. */
#include <dlfcn.h>
#include <farcall/farcall.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 12, ECHO = 1, ROUNDS = 2, CALLS = 50 };

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                  \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

/* What the host looks up. */
static struct {
	__typeof__(far_init_rpc_sized) *init_rpc;
	__typeof__(far_shutdown) *shutdown;
	__typeof__(far_msg_call) *msg_call;
	__typeof__(far_reply) *reply;
	__typeof__(far_alloc) *alloc;
	__typeof__(far_free) *free;
	__typeof__(far_memory_stats_sized) *memory_stats;
} far;

static pthread_barrier_t barrier;
static _Thread_local uint64_t of_the_host[64];
static struct far_agent *agent;

static void *find(void *library, const char *name)
{
	void *p = dlsym(library, name);
	CHECK(p);
	return p;
}

static void *load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(library);
	*(void **)&far.init_rpc = find(library, "far_init_rpc_sized");
	*(void **)&far.shutdown = find(library, "far_shutdown");
	*(void **)&far.msg_call = find(library, "far_msg_call");
	*(void **)&far.reply = find(library, "far_reply");
	*(void **)&far.alloc = find(library, "far_alloc");
	*(void **)&far.free = find(library, "far_free");
	*(void **)&far.memory_stats = find(library, "far_memory_stats_sized");
	return library;
}

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	(void)user;
	far.reply(req, data, len);
}

static void one_call(unsigned thread, unsigned i)
{
	struct far_to self = {0, -1};
	struct far_err err;
	size_t bytes = i % 10 == 0 ? (size_t)3 << 20 : 1 + i * 97, len = 0;
	uint8_t *out = far.alloc(bytes, &err), *in = far.alloc(bytes, &err);
	CHECK(out && in);
	memset(out, (int)(thread + i), bytes);
	enum far_status status = far.msg_call(agent, self, ECHO, out, bytes, NULL, in, bytes, &len, &err);
	if (status)
		fprintf(stderr, "%s\n", err.text);
	CHECK(status == FAR_OK && len == bytes && memcmp(in, out, bytes) == 0);
	far.free(out);
	far.free(in);
}

static void *thread_main(void *arg)
{
	unsigned thread = (unsigned)(uintptr_t)arg;
	for (unsigned i = 0; i < 64; i++)
		of_the_host[i] = thread;
	for (int round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&barrier); /* the host loads the library, and joins */
		pthread_barrier_wait(&barrier);
		for (unsigned i = 0; i < CALLS; i++)
			one_call(thread, i);
		pthread_barrier_wait(&barrier); /* and leaves, and unloads it */
	}
	for (unsigned i = 0; i < 64; i++)
		CHECK(of_the_host[i] == thread);
	return NULL;
}

static void check_memory(void)
{
	struct far_memory m;
	far.memory_stats(&m, sizeof m);
	CHECK(strcmp(m.allocator, "page runs") == 0);
	CHECK(strstr(m.allocator_why, "farcall-jemalloc"));
	CHECK(m.large_used == 0 && m.reserved > 0);
}

int main(int argc, char **argv)
{
	static const struct far_msg_handler m = {ECHO, FAR_KIND_INLINE, echo, NULL};
	struct far_opts opts = {.messages = &m, .messages_n = 1};
	pthread_t t[THREADS];
	struct far_err err;
	CHECK(argc == 2);
	alarm(150);
	CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, thread_main, (void *)i) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		char name[16];
		pthread_barrier_wait(&barrier);
		void *library = load(argv[1]);
		snprintf(name, sizeof name, "round%d", round);
		opts.group = name; /* another group: the store of the first may live on under `farcall run` */
		if (far.init_rpc(FAR_VERSION_NUMBER, name, FAR_RANK_ENV, FAR_WORLD_ENV, &opts, sizeof opts, &agent,
				 &err)) {
			fprintf(stderr, "%s\n", err.text);
			return 1;
		}
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		check_memory();
		CHECK(far.shutdown(agent, 0, &err) == FAR_OK);
		memset(&far, 0, sizeof far);
		CHECK(dlclose(library) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	return 0;
}
