/* SPDX-License-Identifier: BSD-3-Clause */
/** Where the shards' own threads run, and CPUs that cannot be had. */
#include "api_spawn.h"

#include <dirent.h>
#include <sched.h>

enum { SHARDS = 3 };

static cpu_set_t own;
static struct far_agent *agent;

static int nth_cpu(int n)
{
	for (int cpu = 0;; cpu = (cpu + 1) % CPU_SETSIZE)
		if (CPU_ISSET((size_t)cpu, &own) && n-- == 0)
			return cpu;
}

static int absent_cpu(void)
{
	int cpu = CPU_SETSIZE - 1;
	while (cpu >= 0 && CPU_ISSET((size_t)cpu, &own))
		cpu--;
	return cpu;
}

/* The CPUs of the thread of this name; false: there is none. */
static bool thread_cpus(const char *name, cpu_set_t *set)
{
	DIR *dir = opendir("/proc/self/task");
	bool found = false;
	CHECK(dir);
	for (struct dirent *e; !found && (e = readdir(dir));) {
		char path[300], comm[32] = "";
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
		FILE *f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(comm, sizeof comm, f))
			comm[strcspn(comm, "\n")] = '\0';
		fclose(f);
		found = strcmp(comm, name) == 0 && sched_getaffinity(atoi(e->d_name), sizeof *set, set) == 0;
	}
	closedir(dir);
	return found;
}

static void refused(struct far_opts opts, const char *part)
{
	struct far_err err;
	CHECK_STATUS(far_init_rpc("worker0", 0, 1, &opts, &agent, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, part);
}

static void pinned(struct far_opts opts, const int *cpus)
{
	struct far_err err;
	opts.nic = "shm";
	CHECK_STATUS(far_init_rpc("worker0", 0, 1, &opts, &agent, &err), FAR_OK, &err);
	for (unsigned i = 0; i < opts.shards; i++) {
		char name[32];
		cpu_set_t set;
		snprintf(name, sizeof name, "far-shard%u", i);
		CHECK(thread_cpus(name, &set));
		if (cpus[i] < 0)
			CHECK(CPU_EQUAL(&set, &own));
		else
			CHECK(CPU_COUNT(&set) == 1 && CPU_ISSET((size_t)cpus[i], &set));
	}
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
	cpu_set_t none;
	CHECK(!thread_cpus("far-shard0", &none));
}

int main(void)
{
	char text[80], mask[16];
	alarm(HANG_GUARD_S);
	int port, listener = spawn_listen(&port);
	spawn_env(0, 1, port, listener);
	CHECK(sched_getaffinity(0, sizeof own, &own) == 0);
	int absent = absent_cpu();
	if (absent < 0)
		return 77;
	int wrong[SHARDS] = {nth_cpu(0), -1, absent}, right[SHARDS] = {nth_cpu(1), -1, nth_cpu(0)}, negative[1] = {-2};
	snprintf(text, sizeof text, "shard 2 cannot be pinned to CPU %d: this process may run on CPUs", absent);
	snprintf(mask, sizeof mask, "%d", nth_cpu(0));
	refused((struct far_opts){.shards = SHARDS, .pin_cpus = wrong, .pin_cpus_n = SHARDS}, text);
	refused((struct far_opts){.shards = SHARDS, .pin_cpus = wrong, .pin_cpus_n = SHARDS}, mask);
	refused((struct far_opts){.pin_cpus = negative, .pin_cpus_n = 1}, "CPU -2");
	refused((struct far_opts){.shards = 2, .pin_cpus = right, .pin_cpus_n = SHARDS}, "3 CPUs for 2 shards");
	refused((struct far_opts){.shards = 2, .pin_cpus_n = 2}, "0 CPUs for 2 shards");
	refused((struct far_opts){.pin_cpus = right, .pin_cpus_n = 1, .pin_cpu = 1}, "leave one out");
	refused((struct far_opts){.pin_cpu = -1}, "pin_cpu is -1");
	refused((struct far_opts){.pin_cpu = FAR_CPU(absent)}, "cannot be pinned");
	refused((struct far_opts){.pin_cpu = INT32_MAX, .shards = 1}, "cannot be pinned");
	pinned((struct far_opts){.shards = SHARDS, .pin_cpus = right, .pin_cpus_n = SHARDS}, right);
	pinned((struct far_opts){.shards = 1, .pin_cpu = FAR_CPU(right[0])}, right);
	if (right[0] == right[2] + 1) {
		int both[2] = {right[2], right[0]};
		pinned((struct far_opts){.shards = 2, .pin_cpu = FAR_CPU(both[0])}, both);
	}
	return 0;
}
