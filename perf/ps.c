/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf ps`: pulls and pushes of a parameter server beside floors of the same run: the same keys and rows
 * exchanged through shared memory with a flat array, one pass of Adagrad over such an array in this process, and memcpy
 * of as many bytes. Operations and floors alternate in rounds; ratios are medians of the rounds. The measuring thread.
 */
#include "ps.h"

#include "ps_keys.h"
#include "ps_small.h"
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD_KEYS   8192u
#define WARM_NS     UINT64_C(50000000)
#define AT_LEAST    3u   /* operations of a round, however short it is */
#define BYTES_A_ROW 520u /* of memory in all: tables, their index and state, floors in two processes */

const struct ps_kind ps_kinds[PS_WORKLOADS] = {
	{"pull", "pull of 2000 x 16 floats", 2000, 16, true, false, 0},
	{"push", "push of 2000 x 16 floats, Adagrad", 2000, 16, false, true, 0},
	{"get", "get of 500 x 512 bytes", 500, 128, true, false, 0},
	{"step", "training step of 128 x 26 keys", 3328, 16, true, true, 128},
};

static int complain(const struct ps_run *r, const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", r->o->what, r->kind->text, what);
	return 1;
}

/* ---- Loading ---- */

int ps_load(const struct perf_opts *o, struct far_ps_table *table, uint64_t rows, unsigned dim)
{
	static uint64_t keys[LOAD_KEYS];
	static float values[LOAD_KEYS * 128];
	struct far_err err;
	for (uint64_t at = 0; at < rows; at += LOAD_KEYS) {
		size_t n = rows - at < LOAD_KEYS ? rows - at : LOAD_KEYS;
		for (size_t i = 0; i < n; i++) {
			keys[i] = at + i;
			for (unsigned d = 0; d < dim; d++)
				values[i * dim + d] = ps_value(keys[i], d);
		}
		struct far_future *f;
		enum far_status status = far_ps_assign(table, keys, n, values, NULL, NULL, NULL, &f, &err);
		if (!status) {
			status = far_future_wait(f, 0, NULL, &err);
			far_future_free(f);
		}
		if (status)
			return peer_complain(o, &err);
	}
	return 0;
}

static bool wanted(const struct perf_opts *o, enum ps_workload w)
{
	return (o->workload == 0 || o->workload == 1 + (int)w) && !(o->rates.n && ps_kinds[w].samples);
}

static int make_table(struct ps_run *r, int i, const char *name, const struct ps_kind *k)
{
	struct far_ps_schema schema = {.dim = k->dim};
	struct far_err err;
	far_ps_rule_defaults(&schema.rule, i ? FAR_PS_SGD : FAR_PS_ADAGRAD);
	enum far_status status = far_ps_table_create(r->ps, name, &schema, 0, &r->tables[i], &err);
	return status ? peer_complain(r->o, &err) : ps_load(r->o, r->tables[i], ps_rows(r->o, k), k->dim);
}

static int make_tables(struct ps_run *r)
{
	struct far_err err;
	if (far_ps_open(r->peer.agent, PS_SERVICE, NULL, &r->ps, &err))
		return peer_complain(r->o, &err);
	int rc = wanted(r->o, PS_PULL) || wanted(r->o, PS_PUSH) || wanted(r->o, PS_STEP)
			 ? make_table(r, 0, "rows16", &ps_kinds[PS_PULL])
			 : 0;
	return rc == 0 && wanted(r->o, PS_GET) ? make_table(r, 1, "rows128", &ps_kinds[PS_GET]) : rc;
}

/* ---- One after the other ---- */

static const uint64_t *next_keys(struct ps_run *r)
{
	return r->keys[r->turn++ % PS_BATCHES];
}

static int await(struct ps_run *r, enum far_status status, struct far_future *const *f, struct far_err *err)
{
	struct far_val answered = far_none();
	if (!status) {
		status = far_future_wait(*f, 0, &answered, err);
		far_future_free(*f);
	}
	if (status)
		return peer_complain(r->o, err);
	return answered.u.i == (int64_t)r->kind->n ? 0 : complain(r, "not every key was answered");
}

static int operate(struct ps_run *r, const uint64_t *keys)
{
	struct far_future *f = NULL;
	struct far_err err;
	int rc = 0;
	if (r->kind->reads)
		rc = await(r, far_ps_pull(r->table, keys, r->kind->n, NULL, r->out, NULL, &f, &err), &f, &err);
	if (rc == 0 && r->kind->writes)
		rc = await(r, far_ps_push(r->table, keys, r->kind->n, r->grads, NULL, NULL, &f, &err), &f, &err);
	return rc;
}

/* Rows that were not pushed have their first values; those that were have less. */
static int check(struct ps_run *r, const uint64_t *keys, bool pushed)
{
	for (unsigned i = 0; i < r->kind->n; i += pushed ? 1 : r->kind->n - 1)
		for (unsigned d = 0; d < r->kind->dim; d++) {
			float want = ps_value(keys[i], d), got = r->out[i * r->kind->dim + d];
			if (pushed ? !(got < want) : got != want)
				return complain(r, "a row is wrong");
		}
	return 0;
}

void ps_took(struct ps_run *r, struct hist *h, uint64_t ns)
{
	hist_record(h, ns);
	r->late += ns > r->o->limit_ns;
}

static int operations(struct ps_run *r, uint64_t ns)
{
	uint64_t start = floor_now(), after = start;
	for (unsigned n = 0; n < AT_LEAST || after - start < ns; n++) {
		const uint64_t *keys = next_keys(r);
		uint64_t before = floor_now();
		int rc = operate(r, keys);
		after = floor_now();
		ps_took(r, &r->round, after - before);
		if (rc == 0 && !r->kind->writes)
			rc = check(r, keys, false);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- Floors ---- */

static int exchange(struct ps_run *r, uint64_t ns, struct hist *h)
{
	struct floor_shared *s = r->peer.shared;
	uint32_t bytes = ps_row_bytes(r->kind);
	int rc = floor_rows_open(s, &(struct floor_rows){r->rows, bytes});
	uint64_t start = floor_now();
	for (unsigned n = 0; rc == 0 && (n < AT_LEAST || floor_now() - start < ns); n++) {
		const uint64_t *keys = next_keys(r);
		uint64_t pull = 0, push = 0;
		if (r->kind->reads)
			rc = floor_rows_exchange(s, keys, r->kind->n, bytes, NULL, r->out, &pull);
		if (rc == 0 && r->kind->writes)
			rc = floor_rows_exchange(s, keys, r->kind->n, bytes, r->grads, NULL, &push);
		hist_record(h, pull + push);
	}
	if (rc == 0)
		rc = floor_rows_close(s);
	if (rc == 0)
		return 0;
	fprintf(stderr, "%s: the floor failed: %s\n", r->o->what, rc < 0 ? strerror(-rc) : "its mode has changed");
	return 1;
}

static void apply(struct ps_run *r, uint64_t ns, struct hist *h)
{
	uint64_t start = floor_now(), after = start;
	for (unsigned n = 0; n < AT_LEAST || after - start < ns; n++) {
		const uint64_t *keys = next_keys(r);
		uint64_t before = floor_now();
		ps_flat_push(&r->flat, keys, r->kind->n, ps_row_bytes(r->kind), r->grads);
		after = floor_now();
		hist_record(h, after - before);
	}
}

static void copy(struct ps_run *r, uint64_t ns, struct hist *h)
{
	uint64_t start = floor_now(), after = start;
	for (unsigned n = 0; n < AT_LEAST || after - start < ns; n++) {
		uint64_t before = floor_now();
		memcpy(r->copy, r->out, (size_t)r->kind->n * ps_row_bytes(r->kind));
		__asm__ volatile("" : : "r"(r->copy) : "memory");
		after = floor_now();
		hist_record(h, after - before);
	}
}

/* ---- Rounds ---- */

struct medians {
	double op[ROUNDS], exchange[ROUNDS], ratio[ROUNDS], apply[ROUNDS], apply_ratio[ROUNDS], copy[ROUNDS];
};

static double p50(const struct hist *h)
{
	return (double)hist_quantile(h, 0.5);
}

static int one_round(struct ps_run *r, struct medians *m, unsigned i, uint64_t ns)
{
	static struct hist floor; /* large for a stack */
	hist_reset(&floor);
	int rc = exchange(r, ns / 4, &floor);
	m->exchange[i] = p50(&floor);
	hist_reset(&floor);
	copy(r, ns / 8, &floor);
	m->copy[i] = p50(&floor);
	hist_reset(&floor);
	if (r->kind->writes)
		apply(r, ns / 8, &floor);
	m->apply[i] = p50(&floor);
	hist_reset(&r->round);
	if (rc == 0)
		rc = operations(r, ns / 2);
	hist_merge(&r->all, &r->round);
	m->op[i] = p50(&r->round);
	m->ratio[i] = m->op[i] / m->exchange[i];
	m->apply_ratio[i] = r->kind->writes ? m->op[i] / m->apply[i] : 0;
	return rc;
}

static void quantiles(const struct hist *h, struct ps_result *result)
{
	result->ops = h->count;
	result->p50_ns = hist_quantile(h, 0.5);
	result->p99_ns = hist_quantile(h, 0.99);
	result->max_ns = h->max;
}

static int closed_loop(struct ps_run *r, struct ps_result *result)
{
	struct medians m;
	hist_reset(&r->round);
	int rc = operations(r, WARM_NS);
	hist_reset(&r->all);
	r->late = 0;
	for (unsigned i = 0; i < ROUNDS && rc == 0; i++)
		rc = one_round(r, &m, i, r->o->duration_ns / ROUNDS);
	if (rc)
		return rc;
	quantiles(&r->all, result);
	result->within = 1 - (double)r->late / (double)result->ops;
	result->noise = perf_noise(m.op, ROUNDS);
	result->ops_per_s = 1e9 / perf_median(m.op, ROUNDS);
	result->exchange_ns = perf_median(m.exchange, ROUNDS);
	result->ratio = perf_median(m.ratio, ROUNDS);
	result->copy_ns = perf_median(m.copy, ROUNDS);
	result->apply_ns = perf_median(m.apply, ROUNDS);
	result->apply_ratio = perf_median(m.apply_ratio, ROUNDS);
	return 0;
}

/* ---- All of one number of owners ---- */

static int check_pushed(struct ps_run *r)
{
	struct far_future *f = NULL;
	struct far_err err;
	const uint64_t *keys = r->keys[0];
	int rc = await(r, far_ps_pull(r->table, keys, r->kind->n, NULL, r->out, NULL, &f, &err), &f, &err);
	return rc ? rc : check(r, keys, true);
}

static int measure(struct ps_run *r, enum ps_workload w, bool is_zipf, uint64_t rate)
{
	struct ps_result *result = &r->results->row[r->results->n];
	uint64_t seed = 7;
	*result = (struct ps_result){.owners = r->owners, .workload = w, .is_zipf = is_zipf, .rate = rate};
	r->kind = &ps_kinds[w];
	r->is_zipf = is_zipf;
	r->table = r->tables[w == PS_GET];
	r->rows = ps_rows(r->o, r->kind);
	r->turn = 0;
	for (unsigned b = 0; b < PS_BATCHES; b++)
		ps_keys_draw(&seed, r->rows, is_zipf, r->keys[b], r->kind->n);
	int rc = rate ? ps_open_loop(r, result) : closed_loop(r, result);
	if (rc == 0 && r->kind->writes)
		rc = check_pushed(r);
	if (rc)
		return rc;
	ps_print(r->o, result);
	r->results->n++;
	return 0;
}

static int measure_all(struct ps_run *r)
{
	int rc = 0;
	for (int w = 0; w < PS_WORKLOADS; w++)
		for (int is_zipf = 1; is_zipf >= 0; is_zipf--) {
			if (!wanted(r->o, (enum ps_workload)w) || r->o->keys == (is_zipf ? 1 : 2))
				continue;
			for (unsigned i = 0; rc == 0 && i < (r->o->rates.n ? r->o->rates.n : 1); i++)
				rc = measure(r, (enum ps_workload)w, is_zipf, r->o->rates.n ? r->o->rates.value[i] : 0);
		}
	return rc;
}

static int run(struct ps_run *r)
{
	struct far_worker_info info = {.nic = "?"};
	int rc = ps_flat_open(&r->flat, r->o->rows, ps_row_bytes(&ps_kinds[PS_PUSH]));
	if (rc) {
		fprintf(stderr, "%s: no memory for a floor of %" PRIu64 " rows\n", r->o->what, r->o->rows);
		return 1;
	}
	far_worker_by_rank(r->peer.agent, r->peer.to.worker, &info, NULL);
	snprintf(r->results->nic, sizeof r->results->nic, "%s", info.nic);
	if (r->results->n == 0)
		ps_print_head(r->o, info.nic);
	rc = make_tables(r);
	if (rc == 0)
		rc = measure_all(r);
	for (int i = 0; i < 2; i++)
		far_ps_table_free(r->tables[i]);
	far_ps_close(r->ps);
	ps_flat_close(&r->flat);
	return rc;
}

/* In a process of its own: a process hosts the store of one group. */
static int run_owners(const struct perf_opts *given, unsigned owners, struct ps_results *results)
{
	static struct ps_run r; /* large for a stack */
	struct perf_opts o = *given;
	o.server_shards = owners;
	o.tables = true;
	r.o = &o;
	r.owners = owners;
	r.results = results;
	for (unsigned i = 0; i < PS_VALUES_MAX; i++)
		r.grads[i] = (float)(1 + i % 17) * 0.001f;
	int rc = peer_open(&r.peer, &o);
	if (rc)
		return rc;
	rc = run(&r);
	int close_rc = peer_close(&r.peer, &o);
	return rc ? rc : close_rc;
}

static int fork_owners(const struct perf_opts *o, unsigned owners, struct ps_results *results)
{
	int status = 1;
	fflush(NULL);
	pid_t parent = getpid(), pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(1);
		exit(run_owners(o, owners, results));
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status)) {
		fprintf(stderr, "%s: the measuring process %s\n", o->what, pid < 0 ? "could not start" : "died");
		return 1;
	}
	return WEXITSTATUS(status);
}

/* ---- Options ---- */

/* Bytes of memory that new processes can have; 0: unknown. */
static uint64_t available(void)
{
	char line[128];
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/meminfo", "re");
	while (f && kib == 0 && fgets(line, sizeof line, f))
		if (sscanf(line, "MemAvailable: %llu", &kib) != 1)
			kib = 0;
	if (f)
		fclose(f);
	return kib * 1024;
}

static int check_options(const struct perf_opts *o)
{
	uint64_t have = available();
	if (o->rates.n && o->workload > PS_STEP)
		return options_wrong(o->what, "--rate measures single operations; leave --workload %s out",
				     o->workload == 1 + PS_STEP ? "step" : "dense");
	uint64_t dense = o->memory_bytes ? o->memory_bytes : PS_DENSE_BYTES;
	if (have && o->workload == 1 + PS_WORKLOADS && dense > have / PS_DENSE_TIMES)
		return options_wrong(o->what,
				     "--memory: a dense table of %.1f GiB is in memory %u times, %.1f GiB are "
				     "available; give less",
				     (double)dense / 0x1p30, PS_DENSE_TIMES, (double)have / 0x1p30);
	if (have && o->workload != 1 + PS_WORKLOADS && o->rows > have / BYTES_A_ROW)
		return options_wrong(o->what,
				     "--rows: %" PRIu64 " rows and their floors take some %.1f GiB, %.1f GiB are "
				     "available; give at most %" PRIu64,
				     o->rows, (double)o->rows * BYTES_A_ROW / 0x1p30, (double)have / 0x1p30,
				     have / BYTES_A_ROW);
	if ((o->stop_ns || o->beside) && (o->rates.n || o->workload || o->keys || (o->stop_ns && o->beside)))
		return options_wrong(o->what, "--%s measures pulls of its own; leave %s out",
				     o->stop_ns ? "stop" : "beside",
				     o->rates.n    ? "--rate"
				     : o->workload ? "--workload"
				     : o->keys     ? "--keys"
						   : "--beside");
	if ((uint64_t)o->owners.n * (o->rates.n ? o->rates.n : 1) * PS_WORKLOADS * 2 > PS_RESULTS_MAX)
		return options_wrong(o->what, "more than %u results; give fewer of --owners or --rate", PS_RESULTS_MAX);
	return 0;
}

int perf_ps(const struct perf_opts *given)
{
	struct perf_opts rows = *given, *o = &rows;
	if (o->memory_bytes)
		o->rows = o->memory_bytes / BYTES_A_ROW;
	int rc = check_options(o);
	if (rc)
		return rc;
	if (o->stop_ns || o->beside)
		return (o->stop_ns ? ps_stop : ps_beside)(o);
	if (o->workload == 1 + PS_WORKLOADS)
		return ps_dense(o);
	struct ps_results *results =
		mmap(NULL, sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED) {
		fprintf(stderr, "%s: no memory for results\n", o->what);
		return 1;
	}
	for (unsigned i = 0; i < o->owners.n && rc == 0; i++)
		rc = fork_owners(o, (unsigned)o->owners.value[i], results);
	if (rc == 0 && o->json)
		ps_print_json(o, results);
	munmap(results, sizeof *results);
	return rc;
}
