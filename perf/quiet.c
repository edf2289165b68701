/* SPDX-License-Identifier: BSD-3-Clause */
/* Separates disturbed rounds of a floor from quiet ones. The measuring thread. */
#include "quiet.h"

#include "floor_ring.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* The fields of /proc/stat: user nice system idle iowait irq softirq steal. */
void quiet_machine(uint64_t *all_ns, uint64_t *stolen_ns)
{
	uint64_t t[8] = {0}, sum = 0;
	long hz = sysconf(_SC_CLK_TCK);
	uint64_t tick = hz > 0 ? UINT64_C(1000000000) / (uint64_t)hz : UINT64_C(10000000);
	FILE *f = fopen("/proc/stat", "re");
	*all_ns = *stolen_ns = 0;
	if (!f)
		return;
	int n = fscanf(
		f, "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
		&t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]);
	fclose(f);
	if (n != 8)
		return;
	for (int i = 0; i < 8; i++)
		sum += t[i];
	*all_ns = sum * tick;
	*stolen_ns = t[7] * tick;
}

static uint64_t nanoseconds(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_usec * 1000;
}

static void read_thread(uint64_t *cpu_ns, uint64_t *switches)
{
	struct rusage u = {0};
	getrusage(RUSAGE_THREAD, &u);
	*cpu_ns = nanoseconds(u.ru_utime) + nanoseconds(u.ru_stime);
	*switches = (uint64_t)u.ru_nivcsw;
}

bool quiet_steady(const double *values, unsigned n)
{
	double least = values[0], most = values[0];
	for (unsigned i = 1; i < n; i++) {
		least = values[i] < least ? values[i] : least;
		most = values[i] > most ? values[i] : most;
	}
	return most <= QUIET_SPREAD * least;
}

void quiet_begin(struct quiet *q)
{
	*q = (struct quiet){.n = 0};
	quiet_machine(&q->machine_at, &q->stolen_at);
}

void quiet_round_begin(struct quiet *q)
{
	read_thread(&q->cpu_at, &q->switches_at);
	q->wall_at = floor_now();
}

void quiet_round_end(struct quiet *q, double line_ns, double ring_ns)
{
	struct quiet_round *r = &q->round[q->n];
	uint64_t cpu, switches, wall = floor_now();
	if (q->n == QUIET_ROUNDS)
		return;
	read_thread(&cpu, &switches);
	*r = (struct quiet_round){.line_ns = line_ns,
				  .ring_ns = ring_ns,
				  .wall_ns = wall - q->wall_at,
				  .cpu_ns = cpu - q->cpu_at,
				  .switches = switches - q->switches_at};
	q->n++;
}

void quiet_end(struct quiet *q)
{
	uint64_t machine, stolen;
	quiet_machine(&machine, &stolen);
	q->machine_ns = machine - q->machine_at;
	q->stolen_ns = stolen - q->stolen_at;
}

static bool is_quiet(const struct quiet_round *r, const struct quiet_verdict *best)
{
	return (double)r->cpu_ns >= QUIET_CPU * (double)r->wall_ns && r->line_ns <= QUIET_SPREAD * best->line_ns &&
	       r->ring_ns <= QUIET_SPREAD * best->ring_ns && r->ring_ns <= FLOOR_RING_MAX * best->line_ns;
}

void quiet_judge(const struct quiet *q, struct quiet_verdict *out)
{
	uint64_t wall = 0, cpu = 0;
	*out = (struct quiet_verdict){.noise = 1, .rounds = q->n};
	for (unsigned i = 0; i < q->n; i++) {
		const struct quiet_round *r = &q->round[i];
		out->line_ns = i == 0 || r->line_ns < out->line_ns ? r->line_ns : out->line_ns;
		out->ring_ns = i == 0 || r->ring_ns < out->ring_ns ? r->ring_ns : out->ring_ns;
		out->switches += r->switches;
		wall += r->wall_ns;
		cpu += r->cpu_ns;
	}
	for (unsigned i = 0; i < q->n; i++)
		out->quiet += is_quiet(&q->round[i], out);
	if (q->n)
		out->noise = 1 - (double)out->quiet / q->n;
	if (wall > cpu)
		out->lost = (double)(wall - cpu) / (double)wall;
	if (q->machine_ns)
		out->stolen = (double)q->stolen_ns / (double)q->machine_ns;
}
