/* SPDX-License-Identifier: BSD-3-Clause */
/** Small pulls from some servers, each checked by key. The measuring thread, which polls. */
#include "ps_small.h"

#include "ps_keys.h"

int ps_small_wrong(const struct ps_small *s, const char *what)
{
	fprintf(stderr, "%s: pull of %u keys: %s\n", s->o.what, PS_SMALL_KEYS, what);
	return 1;
}

static int make_table(struct ps_small *s)
{
	struct far_ps_schema schema = {.dim = PS_SMALL_DIM};
	struct far_err err;
	far_ps_rule_defaults(&schema.rule, FAR_PS_ADAGRAD);
	if (far_ps_open(s->peer.agent, PS_SERVICE, NULL, &s->ps, &err) ||
	    far_ps_table_create(s->ps, "small", &schema, 0, &s->table, &err))
		return peer_complain(&s->o, &err);
	return ps_load(&s->o, s->table, s->o.rows, PS_SMALL_DIM);
}

int ps_small_open(struct ps_small *s, const struct perf_opts *o, unsigned servers)
{
	*s = (struct ps_small){.o = *o, .seed = 7};
	s->o.tables = true;
	s->o.servers = servers;
	for (unsigned d = 0; d < PS_SMALL_DIM; d++)
		s->fallback[d] = PS_SMALL_FALLBACK;
	int rc = peer_open(&s->peer, &s->o);
	if (rc)
		return rc;
	rc = make_table(s);
	return rc ? ps_small_close(s, rc) : 0;
}

int ps_small_close(struct ps_small *s, int rc)
{
	far_ps_table_free(s->table);
	far_ps_close(s->ps);
	int closed = peer_close(&s->peer, &s->o);
	return rc ? rc : closed;
}

static void on_done(struct far_future *f, void *user)
{
	struct ps_small_pull *p = user;
	(void)f;
	p->done_ns = floor_now();
	p->done_run_ns = floor_clock(CLOCK_THREAD_CPUTIME_ID);
}

bool ps_small_begin(struct ps_small *s, struct ps_small_pull *p, uint64_t timeout_ns, int *rc)
{
	const struct far_ps_pull_opts opts = {.timeout_ns = timeout_ns, .partial = true, .fallback = s->fallback};
	struct far_err err;
	ps_keys_draw(&s->seed, s->o.rows, false, p->keys, PS_SMALL_KEYS);
	p->done_ns = 0;
	p->begin_ns = floor_now();
	enum far_status status =
		far_ps_pull(s->table, p->keys, PS_SMALL_KEYS, &opts, p->rows, p->status, &p->future, &err);
	if (status == FAR_BUSY)
		return false;
	if (!status)
		status = far_future_on_done(p->future, on_done, p, &err);
	if (status)
		*rc = peer_complain(&s->o, &err);
	s->pulls++;
	return status == FAR_OK;
}

static bool row_is(const struct ps_small *s, const struct ps_small_pull *p, unsigned i)
{
	for (unsigned d = 0; d < PS_SMALL_DIM; d++) {
		float got = p->rows[i * PS_SMALL_DIM + d];
		if (got != (p->status[i] == FAR_PS_ROW ? ps_value(p->keys[i], d) : s->fallback[d]))
			return false;
	}
	return true;
}

int ps_small_end(const struct ps_small *s, struct ps_small_pull *p)
{
	struct far_val answered;
	struct far_err err;
	int64_t rows = 0;
	enum far_status status = far_future_value(p->future, &answered, &err);
	far_future_free(p->future);
	p->future = NULL;
	if (status)
		return peer_complain(&s->o, &err);
	for (unsigned i = 0; i < PS_SMALL_KEYS; i++) {
		if (p->status[i] != FAR_PS_ROW && p->status[i] != FAR_PS_LATE)
			return ps_small_wrong(s, far_ps_status_name(p->status[i]));
		if (!row_is(s, p, i))
			return ps_small_wrong(s, "a row is not that of its status");
		rows += p->status[i] == FAR_PS_ROW;
	}
	return answered.u.i == rows ? 0 : ps_small_wrong(s, "the number of answered keys is wrong");
}
