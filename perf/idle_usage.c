/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads CPU time, wake-ups and memory of this process from /proc. Any thread. */
#include "idle_usage.h"
#include "floor_ring.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTROL_THREAD "far-ctl" /* as the engine names it */

/* Adds one thread; a thread that has just ended is left out. */
static void add_thread(struct idle_usage *u, const char *tid)
{
	char path[64], line[256];
	bool control = false;
	snprintf(path, sizeof path, "/proc/self/task/%.20s/status", tid);
	FILE *f = fopen(path, "re");
	if (!f)
		return;
	u->threads++;
	while (fgets(line, sizeof line, f)) {
		unsigned long long n;
		if (strcmp(line, "Name:\t" CONTROL_THREAD "\n") == 0)
			control = true;
		if (sscanf(line, "voluntary_ctxt_switches: %llu", &n) == 1) {
			u->switches += n;
			u->ctl_switches += control ? n : 0;
		}
	}
	fclose(f);
}

void idle_usage_read(struct idle_usage *u)
{
	struct timespec cpu;
	*u = (struct idle_usage){.at_ns = floor_now()};
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	u->cpu_ns = (uint64_t)cpu.tv_sec * 1000000000 + (uint64_t)cpu.tv_nsec;
	DIR *d = opendir("/proc/self/task");
	if (d) {
		for (struct dirent *e; (e = readdir(d));)
			if (e->d_name[0] != '.')
				add_thread(u, e->d_name);
		closedir(d);
	}
	FILE *f = fopen("/proc/self/statm", "re");
	if (f) {
		unsigned long long pages;
		if (fscanf(f, "%*u %llu", &pages) == 1)
			u->rss_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
		fclose(f);
	}
}
