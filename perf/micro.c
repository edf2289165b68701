/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the structures of a call cost, each alone and warm. usage: micro [count]. Prints ticks of an operation, the
 * median of batches; with `count`, runs each OPERATIONS times, for micro.sh under callgrind, which knows them by the
 * names of their functions. One thread.
 */
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "core/timer.h"
#include "memory/buf.h"
#include "memory/region.h"
#include "sync/future.h"
#include "sync/mailbox.h"
#include "sync/submit.h"
#include "ticks.h"
#include "value/encoding.h"
#include "value/registry.h"

#include <farcall/farcall.h>
#include <stdio.h>
#include <string.h>

enum { OPERATIONS = 1000, BATCHES = 101, WARM = 3, FUNCTIONS = 64, TIMERS = 64 };

static struct registry registry;
static const struct function *add;
static struct submit_cell cells[64];
static struct submit_ring ring;
static struct mail mails[64];
static struct mailbox box;
static struct timer_wheel wheel;
static struct timer timers[TIMERS];
static unsigned char bytes[65536], payload[256];
static size_t payload_bytes;
static float numbers[2] = {1, 2};
static struct far_tensor tensor;
static struct far_val pair[2];

/* Makes the compiler keep what computes `p`. */
static inline void used(const void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

static void must_be(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "micro: %s failed\n", what);
	exit(1);
}

#define OPERATION(name)                                                                                                \
	static inline void name##_once(unsigned i);                                                                    \
	__attribute__((noinline)) static void name(void)                                                               \
	{                                                                                                              \
		for (unsigned i = 0; i < OPERATIONS; i++)                                                              \
			name##_once(i);                                                                                \
	}                                                                                                              \
	static inline void name##_once(unsigned i)

OPERATION(clock_read)
{
	uint64_t now = clock_now(&clock_monotonic);
	(void)i;
	used(&now);
}

OPERATION(name_hash)
{
	static const char *volatile name = "far::add"; /* not known when it is compiled */
	uint64_t h = hash64(name, 8);
	(void)i;
	used(&h);
}

OPERATION(name_lookup)
{
	(void)i;
	used(registry_find(&registry, "far::add"));
}

OPERATION(arguments)
{
	(void)i;
	const struct far_val v[] = {far_arg(&tensor), far_arg(&tensor)};
	used(v);
}

OPERATION(overload)
{
	const struct function *fn = add;
	const struct far_val *v;
	struct far_val converted[FAR_ARGS_MAX];
	struct far_err err;
	(void)i;
	must_be(registry_fit(&fn, pair, 2, converted, &v, &err) == FAR_OK, "registry_fit()");
	used(v);
}

OPERATION(encode)
{
	static struct values_plan plan;
	struct far_err err;
	(void)i;
	payload_bytes = values_size(pair, 2, &plan, &err);
	values_write(pair, 2, &plan, payload);
	used(payload);
}

OPERATION(decode)
{
	struct far_val v[2];
	size_t n;
	(void)i;
	must_be(values_read(payload, payload_bytes, v, 2, &n, NULL) == 0, "values_read()");
	used(v);
}

OPERATION(future_create_free)
{
	struct far_future *f = future_alloc(NULL);
	(void)i;
	buf_unref(&f->head);
}

OPERATION(future_completed)
{
	struct far_future *f = future_alloc(NULL);
	(void)i;
	future_complete(f, &(struct completion){.status = FAR_OK, .origin = -1, .data = bytes, .len = 32});
	used(future_bytes(f));
	buf_unref(&f->head);
}

static void on_future(struct future_listener *l, struct far_future *f)
{
	(void)l;
	used(f);
}

OPERATION(future_callback)
{
	struct far_future *f = future_alloc(NULL);
	struct future_listener l = {.f = f, .fn = on_future};
	(void)i;
	future_listen(f, &l);
	future_complete(f, &(struct completion){.status = FAR_OK, .origin = -1, .data = bytes, .len = 32});
	buf_unref(&f->head);
}

static void completed(void *user, const struct completion *completion)
{
	(void)user;
	(void)completion;
}

OPERATION(submission)
{
	static struct far_future f;
	const struct call_start c = {.worker = 1,
				     .fn = 1,
				     .deadline = TIME_NEVER,
				     .left = TIME_NEVER,
				     .done = completed,
				     .user = &f,
				     .id = &f.call,
				     .data = bytes,
				     .len = 32};
	(void)i;
	must_be(submit_put(&ring, &c) == 0, "submit_put()");
	struct submit_cell *cell = submit_peek(&ring);
	used(cell);
	submit_pop(&ring, cell);
}

OPERATION(mail)
{
	static struct mail in = {.type = MAIL_PROBE}, out;
	(void)i;
	must_be(mailbox_put(&box, &in) && mailbox_get(&box, &out), "a mailbox");
	used(&out);
}

OPERATION(timer)
{
	struct timer *t = &timers[i % TIMERS];
	timer_arm(&wheel, t, (uint64_t)i << TIMER_TICK_SHIFT);
	used(t);
	timer_disarm(&wheel, t);
}

OPERATION(slab_256)
{
	(void)i;
	buf_unref(buf_alloc(256));
}

OPERATION(slab_64k)
{
	(void)i;
	buf_unref(buf_alloc(65536));
}

OPERATION(crc_64)
{
	uint32_t crc = crc32c(i, bytes, 64);
	used(&crc);
}

OPERATION(crc_4k)
{
	uint32_t crc = crc32c(i, bytes, 4096);
	used(&crc);
}

OPERATION(copy_4k)
{
	(void)i;
	memcpy(bytes + 32768, bytes, 4096);
	used(bytes);
}

static const struct operation {
	const char *function, *what;
	void (*run)(void);
} operations[] = {
	{"clock_read", "clock", clock_read},
	{"name_hash", "hash of a name", name_hash},
	{"name_lookup", "name lookup", name_lookup},
	{"arguments", "FAR_ARGS of two tensors", arguments},
	{"overload", "overload, exact match", overload},
	{"encode", "encode two tensors", encode},
	{"decode", "decode two tensors", decode},
	{"future_create_free", "future, allocate and free", future_create_free},
	{"future_completed", "future, complete with 32 B", future_completed},
	{"future_callback", "future, complete with callback", future_callback},
	{"submission", "submission ring, put and take", submission},
	{"mail", "mailbox, put and take", mail},
	{"timer", "timer, arm and disarm", timer},
	{"slab_256", "slab, 256 B", slab_256},
	{"slab_64k", "slab, 64 KiB", slab_64k},
	{"crc_64", "CRC32C, 64 B", crc_64},
	{"crc_4k", "CRC32C, 4 KiB", crc_4k},
	{"copy_4k", "memcpy, 4 KiB", copy_4k},
};

static enum far_status nothing(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)req, (void)args, (void)n, (void)user;
	return FAR_OK;
}

static void prepare(void)
{
	struct far_err err;
	char text[64];
	must_be(region_reserve(&err) == FAR_OK && future_reserve(), "reserving memory");
	registry_init(&registry);
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		snprintf(text, sizeof text, "micro::f%u(int a) -> none", i);
		const struct far_function f = {text, FAR_KIND_INLINE, nothing, NULL};
		must_be(registry_add(&registry, &f, &err) == FAR_OK, "registry_add()");
	}
	const struct far_function f = {"far::add(Tensor a, Tensor b) -> Tensor", FAR_KIND_INLINE, nothing, NULL};
	must_be(registry_add(&registry, &f, &err) == FAR_OK, "registry_add()");
	add = registry_find(&registry, "far::add");
	must_be(add != NULL, "registry_find()");
	submit_init(&ring, cells, 64, completed);
	mailbox_init(&box, mails, 64);
	tensor = far_tensor_1d(FAR_F32, numbers, 2);
	pair[0] = pair[1] = far_tensor_val(&tensor);
	encode_once(0);
}

int main(int argc, char **argv)
{
	bool count = argc == 2 && strcmp(argv[1], "count") == 0;
	if (argc > 1 && !count) {
		bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
		fprintf(help ? stdout : stderr, "usage: micro [count]\n");
		return help ? 0 : 2;
	}
	prepare();
	for (size_t k = 0; k < sizeof operations / sizeof *operations; k++) {
		const struct operation *o = &operations[k];
		uint64_t batch[BATCHES] = {0};
		for (unsigned i = 0; i < WARM && !count; i++)
			o->run();
		for (unsigned i = 0; i < (count ? 1 : BATCHES); i++) {
			uint64_t from = ticks_now();
			o->run();
			batch[i] = ticks_now() - from;
		}
		printf("%s\t%s\t%.1f\t" TICKS_UNIT "\n", o->function, o->what,
		       (double)ticks_median(batch, count ? 1 : BATCHES) / OPERATIONS);
	}
	registry_fini(&registry);
	return 0;
}
