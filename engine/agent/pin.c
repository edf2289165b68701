/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks and sets the CPUs of the shards' threads. Application thread, at start. */
#include "agent/pin.h"

#include "base/error.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

#define PIN_NONE (-1)

static int cpu_of(const struct far_opts *o, unsigned i)
{
	if (o->pin_cpus_n)
		return o->pin_cpus[i];
	return o->pin_cpu ? (int)((unsigned)o->pin_cpu - 1 + i) : PIN_NONE;
}

/* Writes a set of CPUs in the format of taskset, 0-3,8; a long one is cut. */
static void mask_print(const cpu_set_t *set, char *out, size_t cap)
{
	size_t len = 0;
	out[0] = '\0';
	for (int from = 0; from < CPU_SETSIZE && len + 1 < cap; from++) {
		int to = from;
		if (!CPU_ISSET((size_t)from, set))
			continue;
		while (to + 1 < CPU_SETSIZE && CPU_ISSET((size_t)to + 1, set))
			to++;
		len += (size_t)snprintf(out + len, cap - len, to > from ? "%s%d-%d" : "%s%d", len ? "," : "", from, to);
		from = to;
	}
}

enum far_status pin_check(const struct far_opts *o, struct far_err *err)
{
	char mask[128];
	cpu_set_t set;
	if (o->pin_cpu < 0)
		return err_set(err, FAR_INVALID, "pin_cpu is %d; set it to FAR_CPU(n) for CPU n, or 0 for none",
			       o->pin_cpu);
	if (o->pin_cpus_n && o->pin_cpu)
		return err_set(err, FAR_INVALID, "pin_cpu and pin_cpus are both set; leave one out");
	if (o->pin_cpus_n && (!o->pin_cpus || o->pin_cpus_n != o->shards))
		return err_set(err, FAR_INVALID, "pin_cpus has %zu CPUs for %u shards; give one for each, -1 for none",
			       o->pin_cpus ? o->pin_cpus_n : 0, o->shards);
	if (!o->pin_cpus_n && !o->pin_cpu)
		return FAR_OK;
	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof set, &set))
		return err_sys(err, errno, "cannot read the CPUs of this process");
	for (unsigned i = 0; i < o->shards; i++) {
		int cpu = cpu_of(o, i);
		if (cpu == PIN_NONE || (cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET((size_t)cpu, &set)))
			continue;
		mask_print(&set, mask, sizeof mask);
		return err_set(err, FAR_INVALID,
			       "shard %u cannot be pinned to CPU %d: this process may run on CPUs %s (see taskset)", i,
			       cpu, mask);
	}
	return FAR_OK;
}

int pin_attr(pthread_attr_t *attr, const struct far_opts *o, unsigned i)
{
	int cpu = cpu_of(o, i);
	cpu_set_t set;
	if (cpu == PIN_NONE)
		return 0;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	return pthread_attr_setaffinity_np(attr, sizeof set, &set);
}
