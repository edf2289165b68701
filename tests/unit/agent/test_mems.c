/* SPDX-License-Identifier: BSD-3-Clause */
/** Registered memory: which calls a device gets, what is undone when one of them refuses, where a message lies.
 * The test's thread. */
#include "agent/mems.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 3, DEVICE_MEMS = 8 };

/* A port whose device knows regions, or says why not. */
struct device {
	struct nic_port base;
	int error, busy;
	unsigned n, requests;
	struct {
		void *base;
		size_t bytes;
	} at[DEVICE_MEMS];
};

static struct device devices[PORTS];
static struct nic_port *ports[PORTS];
static struct mems *mems;
static struct far_err err;
static char memory[1 << 16];

static int learn(struct nic_port *port, void *base, size_t bytes, struct nic_err *why)
{
	struct device *d = (struct device *)(void *)port;
	d->requests++;
	if (d->error) {
		snprintf(why->text, sizeof why->text, "%s", d->error == -ENOMEM ? "raise ulimit -l" : "");
		return d->error;
	}
	cr_assert_lt(d->n, (unsigned)DEVICE_MEMS);
	d->at[d->n].base = base;
	d->at[d->n++].bytes = bytes;
	return 0;
}

static int forget(struct nic_port *port, void *base, size_t bytes, struct nic_err *why)
{
	struct device *d = (struct device *)(void *)port;
	for (unsigned i = 0; i < d->n; i++) {
		if (d->at[i].base != base || d->at[i].bytes != bytes)
			continue;
		if (d->busy) {
			snprintf(why->text, sizeof why->text, "in use");
			return d->busy;
		}
		d->at[i] = d->at[--d->n];
		return 0;
	}
	return -EINVAL;
}

static const struct nic_port_ops with = {.name = "with", .mem_register = learn, .mem_unregister = forget},
				 without = {.name = "without"};

static void begin(void)
{
	memset(devices, 0, sizeof devices);
	for (unsigned i = 0; i < PORTS; i++) {
		devices[i].base.ops = i == 1 ? &without : &with;
		ports[i] = &devices[i].base;
	}
	mems = calloc(1, sizeof *mems);
	mems_init(mems);
}

static void end(void)
{
	mems_fini(mems);
	free(mems);
}

TestSuite(mems, .init = begin, .fini = end);

static enum far_status add(size_t from, size_t bytes)
{
	return mems_register(mems, ports, PORTS, memory + from, bytes, &err);
}

static enum far_status take(size_t from)
{
	return mems_unregister(mems, ports, PORTS, memory + from, &err);
}

static bool holds(size_t from, size_t bytes)
{
	return mems_hold(mems, memory + from, bytes);
}

Test(mems, what_lies_where)
{
	cr_assert(!holds(0, 1));
	/* In no order, next to each other, with gaps. */
	cr_assert(!add(4000, 1000) && !add(1000, 500) && !add(3000, 1000) && !add(9000, 1));
	cr_assert(devices[0].n == 4 && devices[2].n == 4);
	cr_assert(holds(1000, 500) && holds(1100, 400) && holds(4999, 1) && holds(9000, 1) && holds(3000, 0));
	cr_assert(!holds(999, 1) && !holds(1000, 501) && !holds(1499, 2) && !holds(1500, 1) && !holds(9001, 1));
	cr_assert(!holds(3500, 1000), "it lies in two of them");
	cr_assert(!mems_hold(mems, memory + 4000, SIZE_MAX));
	cr_assert(!take(3000) && !holds(3000, 1) && holds(4000, 1000) && holds(1000, 500));
	cr_assert(devices[0].n == 3 && devices[2].n == 3);
	cr_assert(!take(1000) && !take(9000) && !take(4000) && devices[0].n == 0 && !holds(4000, 1));
}

Test(mems, nonsense)
{
	cr_assert_eq(mems_register(mems, ports, PORTS, NULL, 100, &err), FAR_INVALID);
	cr_assert_eq(add(0, 0), FAR_INVALID);
	cr_assert_eq(add(0, SIZE_MAX), FAR_INVALID);
	cr_assert_eq(take(0), FAR_INVALID);
	cr_assert_eq(add(1000, 1000), FAR_OK);
	static const size_t overlapping[][2] = {{0, 1001}, {1000, 1000}, {1999, 1}, {1500, 10}, {0, 5000}};
	for (unsigned i = 0; i < sizeof overlapping / sizeof *overlapping; i++) {
		cr_assert_eq(add(overlapping[i][0], overlapping[i][1]), FAR_INVALID, "%u", i);
		cr_assert(strstr(err.text, "registered already"));
	}
	cr_assert_eq(take(1001), FAR_INVALID);
	cr_assert(add(0, 1000) == FAR_OK && add(2000, 1) == FAR_OK);
}

Test(mems, too_many)
{
	ports[0] = ports[2] = ports[1];
	for (size_t i = 0; i < FAR_MEM_REGIONS_MAX; i++)
		cr_assert_eq(add(2 * i, 1), FAR_OK);
	cr_assert_eq(add((size_t)2 * FAR_MEM_REGIONS_MAX, 1), FAR_RESOURCE);
	cr_assert(strstr(err.text, "fewer, larger"));
	cr_assert(!take(0) && !add(1, 1) && holds(1, 1));
}

/* What one device refuses no other one knows; those that copy do not count. */
Test(mems, refused)
{
	static const struct {
		int error;
		enum far_status status;
		const char *text;
	} cases[] = {{-ENOMEM, FAR_RESOURCE, "ulimit -l"},
		     {-ENOSPC, FAR_RESOURCE, "with: "},
		     {-EINVAL, FAR_INVALID, "with: "}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		devices[2].error = cases[i].error;
		cr_assert_eq(add(0, 100), cases[i].status);
		cr_assert(strstr(err.text, cases[i].text), "%s", err.text);
		cr_assert(devices[0].requests == i + 1 && devices[0].n == 0 && !holds(0, 1));
	}
	static const int copies[] = {-EOPNOTSUPP, -ENODEV};
	for (unsigned i = 0; i < 2; i++) {
		devices[2].error = copies[i];
		cr_assert(add(0, 100) == FAR_OK && holds(0, 100) && devices[0].n == 1);
		cr_assert(take(0) == FAR_OK && devices[0].n == 0);
	}
}

/* Kept until no device uses it; those that have let go of it are not called twice. */
Test(mems, busy)
{
	cr_assert_eq(add(0, 100), FAR_OK);
	devices[2].busy = -EBUSY;
	cr_assert_eq(take(0), FAR_BUSY);
	cr_assert(strstr(err.text, "in use") && holds(0, 100) && devices[0].n == 0);
	cr_assert_eq(take(0), FAR_BUSY);
	devices[2].busy = 0;
	cr_assert(take(0) == FAR_OK && !holds(0, 1) && devices[2].n == 0);
}

/* The engine's own memory is the devices' as it is. */
Test(mems, of_the_engine)
{
	char *p = far_alloc(1000, &err);
	cr_assert(p && !mems_register(mems, ports, PORTS, p, 1000, &err));
	cr_assert(devices[0].requests == 0 && mems_hold(mems, p, 1000));
	cr_assert(!mems_unregister(mems, ports, PORTS, p, &err) && !mems_hold(mems, p, 1));
	far_free(p);
}
