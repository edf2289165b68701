/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf group`: dynamic groups in which members end, come back and join. Main thread.
 *
 * Each figure is measured in rounds, by turns with the others; each round is a group of new processes.
 */
#include "group.h"
#include "floor_ring.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FIGURES_MAX 16
#define ROUND_NS    (60 * UINT64_C(1000000000))

struct result {
	double ns[GROUP_VALUES_MAX][PERF_ROUNDS_MAX];
	const char *skipped; /* why it was not measured; NULL: it was */
};

/* Waits for the first process of a run: 0, or the exit status. Its members end with it. */
static int await(const struct perf_opts *o, const char *figure, pid_t pid)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	uint64_t until = floor_now() + ROUND_NS;
	int status;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (floor_now() >= until) {
			fprintf(stderr, "%s: %s did not end within %u s\n", o->what, figure,
				(unsigned)(ROUND_NS / UINT64_C(1000000000)));
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return 1;
		}
		nanosleep(&nap, NULL);
	}
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s: %s: a process was killed by signal %d\n", o->what, figure, WTERMSIG(status));
	return status ? 1 : 0;
}

static int one_round(const struct perf_opts *o, const struct group_figure *f, struct result *r, unsigned round)
{
	struct group_shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED) {
		fprintf(stderr, "%s: no memory: %s\n", o->what, strerror(errno));
		return 1;
	}
	fflush(NULL);
	pid_t parent = getpid(), pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		_exit(f->run(o, s));
	}
	if (pid < 0)
		fprintf(stderr, "%s: cannot start a process: %s\n", o->what, strerror(errno));
	int rc = pid < 0 ? 1 : await(o, f->name, pid);
	for (unsigned v = 0; f->value[v] && rc == 0; v++)
		r->ns[v][round] = s->value[v];
	munmap(s, sizeof *s);
	return rc;
}

static double worst(const double *ns, unsigned n)
{
	double max = 0;
	for (unsigned i = 0; i < n; i++)
		max = ns[i] > max ? ns[i] : max;
	return max;
}

static void print_value(const struct perf_opts *o, const struct group_figure *f, unsigned v, struct result *r)
{
	double max = worst(r->ns[v], (unsigned)o->rounds), noise = perf_noise(r->ns[v], (unsigned)o->rounds);
	fprintf(perf_human(o), "%-10s %-16s %14.1f %14.1f %8s\n", f->name, f->value[v],
		perf_median(r->ns[v], (unsigned)o->rounds) / 1e3, max / 1e3, perf_noise_text(noise).text);
}

static void print(const struct perf_opts *o, struct result *results)
{
	FILE *out = perf_human(o);
	fprintf(out, "%-10s %-16s %14s %14s %8s\n", "figure", "time", "median us", "worst us", "noise");
	for (unsigned i = 0; i < group_figures_n; i++) {
		const struct group_figure *f = &group_figures[i];
		if (results[i].skipped)
			fprintf(out, "%-10s not measured: %s\n", f->name, results[i].skipped);
		for (unsigned v = 0; f->value[v] && !results[i].skipped; v++)
			print_value(o, f, v, &results[i]);
	}
	for (unsigned i = 0; i < group_figures_n; i++)
		fprintf(out, "%s%s: %s", i ? "\n" : "", group_figures[i].name, group_figures[i].about);
	fprintf(out, "\n");
}

static void write_value(struct json *j, const struct perf_opts *o, const struct group_figure *f, unsigned v,
			struct result *r)
{
	double max = worst(r->ns[v], (unsigned)o->rounds);
	json_object(j, NULL);
	json_string(j, "figure", f->name);
	json_string(j, "time", f->value[v]);
	json_u64(j, "rounds", o->rounds);
	json_double(j, "noise", perf_noise(r->ns[v], (unsigned)o->rounds));
	json_double(j, "median_ns", perf_median(r->ns[v], (unsigned)o->rounds));
	json_double(j, "max_ns", max);
	json_close(j);
}

static void write_json(const struct perf_opts *o, struct result *results)
{
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "group");
	json_string(&j, "nic", o->nic);
	json_u64(&j, "lease_ns", GROUP_LEASE_NS);
	json_double(&j, "seconds", (double)o->duration_ns / 1e9);
	json_array(&j, "results");
	for (unsigned i = 0; i < group_figures_n; i++)
		for (unsigned v = 0; group_figures[i].value[v] && !results[i].skipped; v++)
			write_value(&j, o, &group_figures[i], v, &results[i]);
	json_close(&j);
	json_end(&j);
}

int perf_group(const struct perf_opts *o)
{
	static struct result results[FIGURES_MAX];
	const char *lacks = group_no_namespaces();
	for (unsigned round = 0; round < o->rounds; round++) {
		for (unsigned i = 0; i < group_figures_n; i++) {
			const struct group_figure *f = &group_figures[i];
			results[i].skipped = f->wants_namespaces ? lacks : NULL;
			if (!results[i].skipped && one_round(o, f, &results[i], round))
				return 1;
		}
	}
	print(o, results);
	if (o->json)
		write_json(o, results);
	return 0;
}
