/* SPDX-License-Identifier: BSD-3-Clause */
/** The CPUs of the shards' threads: checked against those of the process, and set. The test's thread. */
#include "agent/pin.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>

static struct far_err err;
static int cpu; /* the only one that this process may run on */

static void setup(void)
{
	cpu_set_t set;
	cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
	for (cpu = 0; !CPU_ISSET((size_t)cpu, &set); cpu++)
		;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	cr_assert_eq(sched_setaffinity(0, sizeof set, &set), 0);
}

TestSuite(pin, .init = setup);

static void refused(const struct far_opts *o, const char *text)
{
	cr_assert_eq(pin_check(o, &err), FAR_INVALID, "%s", text);
	cr_assert(strstr(err.text, text), "%s", err.text);
}

Test(pin, allowed)
{
	const int cpus[] = {cpu, -1};
	cr_assert_eq(pin_check(&(struct far_opts){.shards = 2}, &err), FAR_OK);
	cr_assert_eq(pin_check(&(struct far_opts){.shards = 1, .pin_cpu = FAR_CPU(cpu)}, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(pin_check(&(struct far_opts){.shards = 2, .pin_cpus = cpus, .pin_cpus_n = 2}, &err), FAR_OK, "%s",
		     err.text);
}

/* pin_cpu is that of shard 0; shard 1 has the next one. Expect shard, CPU and the CPUs of the process named. */
Test(pin, cpus_of_others)
{
	char text[160];
	const int below[] = {-2}, above[] = {CPU_SETSIZE};
	snprintf(text, sizeof text, "shard 1 cannot be pinned to CPU %d: this process may run on CPUs %d (see taskset)",
		 cpu + 1, cpu);
	refused(&(struct far_opts){.shards = 2, .pin_cpu = FAR_CPU(cpu)}, text);
	refused(&(struct far_opts){.shards = 1, .pin_cpus = below, .pin_cpus_n = 1},
		"shard 0 cannot be pinned to CPU -2");
	refused(&(struct far_opts){.shards = 1, .pin_cpus = above, .pin_cpus_n = 1}, "to CPU 1024");
}

Test(pin, options_that_contradict)
{
	const int cpus[] = {cpu};
	refused(&(struct far_opts){.shards = 1, .pin_cpu = -1}, "pin_cpu is -1; set it to FAR_CPU(n)");
	refused(&(struct far_opts){.shards = 1, .pin_cpu = FAR_CPU(cpu), .pin_cpus = cpus, .pin_cpus_n = 1},
		"both set; leave one out");
	refused(&(struct far_opts){.shards = 2, .pin_cpus = cpus, .pin_cpus_n = 1}, "has 1 CPUs for 2 shards");
	refused(&(struct far_opts){.shards = 1, .pin_cpus_n = 1}, "has 0 CPUs for 1 shards");
}

static int cpu_of(const struct far_opts *o, unsigned shard)
{
	pthread_attr_t attr;
	cpu_set_t set;
	int only = -1;
	pthread_attr_init(&attr);
	cr_assert_eq(pin_attr(&attr, o, shard), 0);
	cr_assert_eq(pthread_attr_getaffinity_np(&attr, sizeof set, &set), 0);
	for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&set) == 1; i++)
		only = CPU_ISSET((size_t)i, &set) ? i : only;
	pthread_attr_destroy(&attr);
	return only;
}

/* −1: the thread inherits the CPUs of its parent. */
Test(pin, attributes)
{
	const int cpus[] = {7, -1};
	const struct far_opts in_order = {.shards = 3, .pin_cpu = FAR_CPU(4)},
			      listed = {.pin_cpus = cpus, .pin_cpus_n = 2};
	cr_assert_eq(cpu_of(&(struct far_opts){.shards = 1}, 0), -1);
	cr_assert_eq(cpu_of(&in_order, 0), 4);
	cr_assert_eq(cpu_of(&in_order, 2), 6);
	cr_assert_eq(cpu_of(&listed, 0), 7);
	cr_assert_eq(cpu_of(&listed, 1), -1);
}
