/* SPDX-License-Identifier: BSD-3-Clause */
/** The handlers that api_large calls, and what they noted. Handlers: shard threads, fibers and threads of the agent. */
#ifndef LARGE_HANDLERS_H
#define LARGE_HANDLERS_H

#include "check.h"
#include "pattern.h"

#include <pthread.h>

enum { ECHO = 1, CHECKED, MAKE, SMALL, NOTE, NOTE_LARGE, NOTES, PLACED, LATER };
enum { MIB = 1 << 20 };

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK((uintptr_t)data % 8 == 0);
	CHECK(far_reply(req, data, len) == FAR_OK);
}

/* Answers whether the bytes are the pattern. */
static void checked(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t ok[2] = {pattern_holds(data, len, len), len};
	CHECK(far_reply(req, ok, sizeof ok) == FAR_OK);
}

/* Answers with so many bytes of the pattern. */
static void make(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t bytes;
	void *at;
	CHECK(len == sizeof bytes);
	memcpy(&bytes, data, sizeof bytes);
	enum far_status status = far_reply_alloc(req, bytes, &at);
	if (status)
		far_fail(req, status, 0, "no room");
	else
		pattern_fill(at, 0, bytes, bytes);
}

static void *answer_later(void *d)
{
	enum { BYTES = 40 * MIB + 1 };
	void *bytes = malloc(BYTES);
	CHECK(bytes);
	pattern_fill(bytes, 0, BYTES, BYTES);
	CHECK(far_deferred_reply(d, bytes, BYTES) == FAR_OK);
	free(bytes);
	return NULL;
}

static pthread_t threads[8];
static unsigned threads_n;

static void later(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_deferred *d;
	CHECK(far_defer(req, &d) == FAR_OK);
	CHECK(pthread_create(&threads[threads_n++], NULL, answer_later, d) == 0);
}

static uint64_t noted, recorded_large;

static void record_message(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_deferred *d;
	void *at;
	uint64_t n;
	CHECK(len >= sizeof n);
	memcpy(&n, data, sizeof n);
	CHECK(n == noted); /* in order, none lost, none twice */
	noted++;
	CHECK(far_reply(req, "x", 1) == FAR_INVALID);
	CHECK(far_reply_alloc(req, 100, &at) == FAR_INVALID);
	CHECK(far_fail(req, FAR_REMOTE, 0, "no") == FAR_INVALID);
	CHECK(far_defer(req, &d) == FAR_INVALID);
	CHECK(far_req_from(req).worker == 0);
}

/* Its first word is its number among the notes. */
static void record_large(struct far_req *req, const void *data, size_t len, void *user)
{
	record_message(req, data, len, user);
	CHECK(pattern_holds((const uint8_t *)data + 8, len - 8, 5));
	recorded_large++;
}

static void notes(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t n[2] = {noted, recorded_large};
	far_reply(req, n, sizeof n);
}

static uint8_t *place_memory;
static int places, abandons;

static void *get_buffer(struct far_to from, uint16_t id, size_t len, void *user)
{
	CHECK(from.worker == 0 && id == PLACED && user == &places);
	places++;
	if (len > 50 * MIB)
		return NULL;
	place_memory = malloc(len);
	return place_memory;
}

static void abandon(void *memory, void *user)
{
	CHECK(user == &places && memory == place_memory);
	abandons++;
	free(memory);
	place_memory = NULL;
}

static void on_placed(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t ok[4] = {pattern_holds(data, len, len), data == place_memory, (uint64_t)places, (uint64_t)abandons};
	if (data == place_memory) {
		free(place_memory);
		place_memory = NULL;
	}
	far_reply(req, ok, sizeof ok);
}

static const struct far_msg_handler handlers[] = {
	{ECHO, FAR_KIND_INLINE, echo, NULL},           {CHECKED, FAR_KIND_INLINE, checked, NULL},
	{MAKE, FAR_KIND_INLINE, make, NULL},           {SMALL, FAR_KIND_INLINE, echo, NULL},
	{NOTE, FAR_KIND_INLINE, record_message, NULL}, {NOTE_LARGE, FAR_KIND_INLINE, record_large, NULL},
	{NOTES, FAR_KIND_INLINE, notes, NULL},         {PLACED, FAR_KIND_INLINE, on_placed, NULL},
	{LATER, FAR_KIND_INLINE, later, NULL},
};
static const struct far_msg_placement placement = {PLACED, get_buffer, abandon, &places};

static enum far_status total(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const double *x = args[0].u.t.data;
	uint64_t count = far_tensor_count(&args[0].u.t);
	double sum = 0;
	for (uint64_t i = 0; i < count; i++)
		sum += x[i];
	struct far_val v = far_float(sum);
	return far_return(req, &v);
}

static const struct far_function functions[] = {{"t::total(Tensor x) -> float", FAR_KIND_INLINE, total, NULL}};

#endif
