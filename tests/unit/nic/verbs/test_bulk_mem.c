/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory regions of a port: registered by the application, on request of a poller, used, and given back.
 * The test's thread. */
#include "verbs_fixture.h"

#include "nic/verbs/bulk.h"

#include <stdlib.h>

enum { BYTES = 1 << 16 };

static struct verbs_port *p;
static uint8_t *engine, *own; /* memory of the engine, 2 × BYTES, and of the application, BYTES */
static unsigned requests;

/* A block of the engine's memory is BYTES large. */
static bool block(const void *at, size_t len, void **base, size_t *bytes)
{
	size_t from = (size_t)((const uint8_t *)at - engine);
	requests++;
	if (from >= 2 * (size_t)BYTES || from / BYTES != (from + len - 1) / BYTES)
		return false;
	*base = engine + from / BYTES * BYTES;
	*bytes = BYTES;
	return true;
}

static void setup(void)
{
	struct nic_port *port = NULL;
	engine = aligned_alloc(4096, 2 * (size_t)BYTES);
	own = aligned_alloc(4096, BYTES);
	const struct nic_config config = {.queues = 2,
					  .args = "fake0,gid=2,bulk=65536",
					  .memory_block = block,
					  .memory = engine,
					  .memory_bytes = 2 * (size_t)BYTES};
	cr_assert_eq(verbs_port_ops.open(&config, &port, &err), 0, "%s", err.text);
	p = (struct verbs_port *)port;
}

static void teardown(void)
{
	if (p)
		fixture_close(p);
	free(engine);
	free(own);
}

TestSuite(verbs_bulk_mem, .init = setup, .fini = teardown);

static int add(void *at, size_t len)
{
	return verbs_mem_register(&p->base, at, len, &err);
}

static int remove_at(void *at, size_t len)
{
	return verbs_mem_unregister(&p->base, at, len, &err);
}

/* A region with these bytes, or NULL with *error. */
static struct verbs_mem *get(const void *at, uint64_t len, int *error)
{
	*error = 0;
	return verbs_mem_get(p->queues[0], at, len, error);
}

Test(verbs_bulk_mem, of_the_application)
{
	int error;
	unsigned before = fake_verbs.mrs;
	cr_assert_null(get(own, 10, &error));
	cr_assert_eq(error, -ENOMEM, "it is registered by the application alone");
	cr_assert_eq(requests, 0u);
	cr_assert_eq(add(own, BYTES), 0, "%s", err.text);
	cr_assert_eq(fake_verbs.mrs, before + 1);
	struct verbs_mem *whole = get(own, BYTES, &error), *end = get(own + BYTES - 1, 1, &error);
	cr_assert(whole && whole == end);
	cr_assert_null(get(own + 1, BYTES, &error));
	cr_assert_null(get(own + BYTES, 1, &error));
	cr_assert_null(get(own, UINT64_MAX, &error));
	cr_assert_eq(remove_at(own, BYTES), -EBUSY);
	cr_assert(strstr(err.text, "in use"), "%s", err.text);
	verbs_mem_put(whole);
	cr_assert_eq(remove_at(own, BYTES), -EBUSY, "it has another user");
	verbs_mem_put(end);
	cr_assert_eq(remove_at(own, BYTES - 1), -EINVAL);
	cr_assert_eq(remove_at(own, BYTES), 0);
	cr_assert_eq(fake_verbs.mrs, before);
	cr_assert_null(get(own, 10, &error));
	cr_assert_eq(remove_at(own, BYTES), -EINVAL);
	cr_assert(strstr(err.text, "not registered"), "%s", err.text);
}

Test(verbs_bulk_mem, ranges_that_are_none)
{
	cr_assert_eq(add(NULL, 10), -EINVAL);
	cr_assert_eq(add(own, 0), -EINVAL);
	cr_assert_eq(add(own, SIZE_MAX), -EINVAL);
	cr_assert(strstr(err.text, "not a valid range"), "%s", err.text);
}

Test(verbs_bulk_mem, as_many_as_there_are)
{
	for (unsigned i = 0; i < VERBS_MEMS_MAX; i++)
		cr_assert_eq(add(own + i, 1), 0);
	cr_assert_eq(add(own + VERBS_MEMS_MAX, 1), -ENOSPC);
	cr_assert(strstr(err.text, "1024 memory regions") && strstr(err.text, "fewer, larger ones"), "%s", err.text);
	int error;
	struct verbs_mem *last = get(own + VERBS_MEMS_MAX - 1, 1, &error);
	cr_assert_not_null(last);
	verbs_mem_put(last);
	cr_assert_eq(remove_at(own + 5, 1), 0);
	cr_assert_eq(add(own + VERBS_MEMS_MAX, 1), 0, "its entry is used again");
	cr_assert_not_null(get(own + VERBS_MEMS_MAX, 1, &error));
	cr_assert_null(get(own + 5, 1, &error));
}

/* A poller asks, the control thread registers a whole block, once for all queues. */
Test(verbs_bulk_mem, of_the_engine_on_request)
{
	int error;
	unsigned before = fake_verbs.mrs;
	cr_assert_null(get(engine + 100, 1000, &error));
	cr_assert_eq(error, -EAGAIN);
	cr_assert_null(get(engine + BYTES, 1, &error));
	cr_assert_eq(error, -EAGAIN, "one at a time");
	cr_assert_null(verbs_mem_get(p->queues[1], engine + 200, 10, &error));
	verbs_mems_step(p, 1000);
	cr_assert_eq(requests, 1u);
	cr_assert_eq(fake_verbs.mrs, before + 1);
	struct verbs_mem *mem = get(engine, BYTES, &error);
	cr_assert_not_null(mem);
	verbs_mem_put(mem);
	cr_assert_null(get(engine + BYTES - 1, 2, &error), "of two blocks");
	verbs_mems_step(p, 2000);
	cr_assert_eq(fake_verbs.mrs, before + 1);
	cr_assert_eq(atomic_load(&p->mems->retry_at), 2000 + VERBS_MEM_RETRY_NS, "it is in no block");
}

/* After a failure nothing is asked for a while; then it is tried again. */
Test(verbs_bulk_mem, locked_memory_is_short)
{
	int error;
	fake_verbs.reg_refused = 1;
	cr_assert_null(get(engine, 10, &error));
	verbs_mems_step(p, verbs_now());
	cr_assert(strstr(p->mems->why.text, "bulk=off"), "%s", p->mems->why.text);
	cr_assert_null(get(engine, 10, &error));
	cr_assert_eq(error, -ENOMEM);
	cr_assert_not(atomic_load(&p->queues[0]->rc->mem_requested));
	atomic_store(&p->mems->retry_at, 1); /* that time has passed */
	cr_assert_null(get(engine, 10, &error));
	cr_assert_eq(error, -EAGAIN);
	verbs_mems_step(p, verbs_now());
	cr_assert_not_null(get(engine, 10, &error));
}

Test(verbs_bulk_mem, the_device_is_closed)
{
	cr_assert_eq(add(own, BYTES), 0);
	unsigned before = fake_verbs.mrs;
	verbs_mems_close(p);
	cr_assert_eq(fake_verbs.mrs, before - 1);
	cr_assert_eq(add(own, 10), -ENODEV);
	cr_assert_eq(remove_at(own, BYTES), -ENODEV);
	cr_assert(strstr(err.text, "was removed or has failed"), "%s", err.text);
}

Test(verbs_bulk_mem, a_port_without_bulk)
{
	fixture_close(p);
	p = fixture_open("fake0,gid=2,bulk=off", 1);
	cr_assert_eq(add(own, BYTES), -EOPNOTSUPP);
	cr_assert(strstr(err.text, "see bulk="), "%s", err.text);
	verbs_mems_step(p, 1);
	verbs_mems_close(p);
}
