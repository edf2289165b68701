/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * References to what lies with who holds them: what they are is what their owner made, whatever was said of them on the
 * way here; and what waiting for them, and not waiting, give. Main thread of each process; handlers on shard threads.
 */
#include "api_spawn.h"
#include "features/references/rref.h"
#include "handlers.h"

#include <stdlib.h>

static struct far_err err;
static struct far_agent *agent;

static enum far_status number_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	int64_t *p = malloc(sizeof *p);
	CHECK(p);
	*p = args[0].u.i;
	return far_return_object(req, p);
}

static void number_end(void *object, void *user)
{
	free(object);
}

static size_t number_size(const void *object, void *user)
{
	return sizeof(int64_t);
}

static void number_encode(const void *object, void *dst, size_t len, void *user)
{
	memcpy(dst, object, len);
}

static enum far_status number_decode(const void *src, size_t len, void **object, void *user)
{
	if (len != sizeof(int64_t) || !(*object = malloc(len)))
		return FAR_BAD_ARGS;
	memcpy(*object, src, len);
	return FAR_OK;
}

static void number_free(void *object, void *user)
{
	free(object);
}

static const struct far_function functions[] = {{"w::echo(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL}};
static const struct far_function boxes[] = {{"w::Box(int n) -> w::Box", FAR_KIND_INLINE, number_new, NULL}};
static const struct far_function points[] = {{"w::Point(int n) -> w::Point", FAR_KIND_INLINE, number_new, NULL}};
static const struct far_custom_type point = {"w::Point", number_size, number_encode, number_decode, number_free, NULL};
static const struct far_class classes[] = {
	{.name = "w::Box", .constructors = boxes, .constructors_n = 1, .destroy = number_end},
	{.name = "w::Point", .constructors = points, .constructors_n = 1, .destroy = number_end, .codec = &point},
};
static const struct far_opts opts = {
	.functions = functions, .functions_n = 1, .classes = classes, .classes_n = sizeof classes / sizeof classes[0]};

static struct far_rref *make(const char *fn, const struct far_val *args, size_t n)
{
	struct far_rref *r;
	CHECK_STATUS(far_remote_to(agent, (struct far_to){0, -1}, fn, args, n, NULL, &r, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_OK, &err);
	CHECK(far_rref_is_owner(r));
	return r;
}

/* Expect that the class is what the object is of, and never the one that a peer sent. */
static void expect_is(struct far_rref *r, const char *name, const char *other)
{
	void *object = NULL;
	CHECK_STATUS(far_rref_object(r, other, 0, &object, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, name);
	CHECK_STATUS(far_rref_object(r, name, 0, &object, &err), FAR_OK, &err);
	CHECK(*(int64_t *)object == 5);
	void *again = NULL;
	CHECK_STATUS(far_rref_object(r, NULL, 0, &again, &err), FAR_OK, &err);
	CHECK(again == object);
}

/* The class in a reference comes from its sender and may be wrong. */
static void of_the_wrong_class(void)
{
	struct far_rref *box = make("w::Box", FAR_ARGS(5)), *p = make("w::Point", FAR_ARGS(5)),
			*list = make("w::echo", FAR_ARGS(FAR_LIST(5)));
	struct far_val v;
	void *object = NULL;
	const uint64_t said[] = {rref_class(box), rref_class(p), 0, 77};
	CHECK(said[0] && said[1] && said[0] != said[1] && !rref_class(list));
	for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
		rref_class_set(box, said[i]);
		rref_class_set(p, said[i]);
		rref_class_set(list, said[i]);
		expect_is(box, "w::Box", "w::Point");
		expect_is(p, "w::Point", "w::Box");
		CHECK_STATUS(far_rref_object(list, NULL, 0, &object, &err), FAR_INVALID, &err);
		CHECK_STATUS(far_rref_to_here(list, 0, &v, &err), FAR_OK, &err);
		CHECK(v.type == FAR_TYPE_LIST && v.u.list.n == 1);
		far_val_fini(&v);
		CHECK_STATUS(far_rref_to_here(p, 0, &v, &err), FAR_OK, &err);
		CHECK(v.type == FAR_TYPE_CUSTOM && *(int64_t *)v.u.custom.object == 5);
		far_val_fini(&v);
	}
	far_rref_free(box);
	far_rref_free(p);
	far_rref_free(list);
}

/* Without waiting it is a copy, or none. */
static void without_waiting(void)
{
	struct far_rref *box = make("w::Box", FAR_ARGS(5)), *p = make("w::Point", FAR_ARGS(5));
	struct far_future *f;
	struct far_val v;
	void *object;
	CHECK_STATUS(far_rref_object(p, NULL, 0, &object, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_to_here(p, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.custom.object == object);
	far_val_fini(&v);
	CHECK_STATUS(far_rref_to_here_async(p, 0, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_CUSTOM && v.u.custom.object != object && *(int64_t *)v.u.custom.object == 5);
	far_val_fini(&v);
	far_future_free(f);
	CHECK_STATUS(far_rref_to_here(box, 0, &v, &err), FAR_OK, &err);
	far_val_fini(&v);
	CHECK_STATUS(far_rref_to_here_async(box, 0, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_UNSUPPORTED, &err);
	CHECK_TEXT(&err, "far_rref_object");
	far_future_free(f);
	far_rref_free(box);
	far_rref_free(p);
}

static int worker(int rank)
{
	agent = check_join(&opts);
	of_the_wrong_class();
	without_waiting();
	check_leave(agent);
	return 0;
}

int main(void)
{
	struct spawned s = spawn(1, worker);
	return spawn_wait(&s, -1);
}
