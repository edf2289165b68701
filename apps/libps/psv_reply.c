/* SPDX-License-Identifier: BSD-3-Clause */
/** Fills the replies to requests. The thread that polls the shard. */
#include "psv_job.h"

#include <farcall/rpc.h>
#include <string.h>

size_t psv_job_bytes(const struct psv_job *j, const struct psv_shard *s)
{
	if (j->stale)
		return sizeof(struct psv_reply) + 16 + (size_t)12 * s->view->slots;
	switch (j->q->kind) {
	case PSV_CREATE:
	case PSV_OPEN:
		return sizeof(struct psv_reply) + sizeof(struct psv_schema);
	case PSV_STATS:
		return sizeof(struct psv_reply) + sizeof(struct psv_stats);
	case PSV_CLOCK:
	case PSV_DROP:
	case PSV_BARRIER:
		return sizeof(struct psv_reply);
	case PSV_LIST:
	case PSV_SCAN:
	case PSV_HOT:
		return sizeof(struct psv_reply) + j->made_len;
	case PSV_CALL:
	case PSV_CALL_READ:
	case PSV_GET_VALUES:
		return sizeof(struct psv_reply) + j->made_len + j->q->n;
	case PSV_BAGS:
		return psv_bags_reply_bytes(j->q->bags, j->t->schema.dim, (enum pst_type)j->q->wire);
	default:
		return psv_reply_bytes(j->q->kind, j->q->n, j->t->schema.dim, (enum pst_type)j->q->wire);
	}
}

static void put_stats(const struct psv_table *t, void *to)
{
	struct pst_stats s;
	pst_table_stats(t->rows, &s);
	struct psv_stats out = {.rows = s.rows,
				.bytes = s.bytes,
				.row_bytes = s.row_bytes + s.value_bytes,
				.state_bytes = s.state_bytes,
				.index_bytes = s.index_bytes,
				.made = s.made,
				.erased = s.erased,
				.evicted = s.evicted,
				.expired = s.expired,
				.refused = s.refused,
				.waited = s.waited,
				.keys_pulled = t->keys_pulled,
				.keys_pushed = t->keys_pushed,
				.duplicates = t->duplicates,
				.clock = t->clock,
				.pulls = t->pulls,
				.pushes = t->pushes,
				.scans = t->scans,
				.served = t->served,
				.served_ns = t->served_ns};
	memcpy(to, &out, sizeof out);
}

/* Rows and scales; returns their end. A pull that made rows, and a push, know the status already. */
static char *put_rows(struct psv_shard *s, const struct psv_job *j, char *to)
{
	const struct psv_request *q = j->q;
	enum pst_type wire = (enum pst_type)q->wire;
	bool known = q->kind == PSV_PUSH_PULL || q->miss == PST_MISS_MAKE;
	struct pst_pull how = {
		.wire = wire, .miss = known ? PST_MISS_INITIAL : (enum pst_miss)q->miss, .now_ms = j->now_ms};
	char *end = to + psv_numbers_bytes(q->n, j->t->schema.dim, wire);
	float *scales = wire == PST_INT8 ? (float *)(void *)end : NULL;
	/* Cannot fail: everything was checked. */
	(void)pst_pull(j->t->rows, j->keys, q->n, &how, to, scales, known ? NULL : s->status, NULL);
	return end + (scales ? q->n * sizeof *scales : 0);
}

/* Of each bag the weight of keys for which the client's fallback row stands, and the highest status. */
static void put_bag_ends(const struct psv_shard *s, const struct psv_job *j, char *to)
{
	const struct psv_request *q = j->q;
	char *status = to + q->bags * sizeof(float);
	for (uint32_t b = 0, i = 0; b < q->bags; b++) {
		float missing = 0;
		uint8_t most = 0;
		for (; i < j->offsets[b + 1]; i++) {
			if (s->status[i] == PST_MISSING && q->miss == PST_MISS_FALLBACK)
				missing += j->weights ? j->weights[i] : 1;
			most = s->status[i] > most ? s->status[i] : most;
		}
		memcpy(to + b * sizeof missing, &missing, sizeof missing);
		status[b] = (char)most;
	}
}

static void put_bags(struct psv_shard *s, const struct psv_job *j, char *to)
{
	const struct psv_request *q = j->q;
	enum pst_type wire = (enum pst_type)q->wire;
	bool known = q->miss == PST_MISS_MAKE;
	struct pst_pull how = {
		.wire = wire, .miss = known ? PST_MISS_INITIAL : (enum pst_miss)q->miss, .now_ms = j->now_ms};
	char *end = to + psv_numbers_bytes(q->bags, j->t->schema.dim, wire);
	float *scales = wire == PST_INT8 ? (float *)(void *)end : NULL;
	/* Cannot fail: everything was checked. */
	(void)pst_pull_bags(j->t->rows, j->keys, q->n, j->offsets, q->bags, j->weights, PST_POOL_SUM, &how, to, scales,
			    known ? NULL : s->status, NULL);
	put_bag_ends(s, j, end + (scales ? q->bags * sizeof *scales : 0));
}

void psv_job_fill(struct psv_shard *s, const struct psv_job *j, void *reply)
{
	char *to = (char *)reply + sizeof(struct psv_reply);
	struct psv_reply head = {.magic = PSV_MAGIC, .answer = j->stale ? PSV_STALE : PSV_DONE, .count = j->made_count};
	memcpy(reply, &head, sizeof head);
	if (j->stale) {
		psv_view_encode(s->view, to);
		return;
	}
	if (j->q->kind == PSV_CREATE || j->q->kind == PSV_OPEN)
		memcpy(to, &j->t->schema, sizeof j->t->schema);
	else if (j->q->kind == PSV_STATS)
		put_stats(j->t, to);
	else if (j->made) {
		memcpy(to, j->made, j->made_len);
		to += j->made_len;
	} else if (j->q->kind == PSV_BAGS) {
		put_bags(s, j, to);
		return;
	} else if (psv_has_rows(j->q->kind))
		to = put_rows(s, j, to);
	if (j->q->n)
		memcpy(to, s->status, j->q->n);
}

void psv_reply_fail(const struct psv_reply_to *a, const struct far_err *err)
{
	if (a->req)
		far_fail(a->req, err->status, err->code, "%s", err->text);
	else
		far_deferred_fail(a->reply, err->status, err->code, "%s", err->text);
}
