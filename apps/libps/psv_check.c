/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks all that a request contains before it is served. The thread that polls the shard. */
#include "psv_job.h"

#include "pst_fail.h"
#include <string.h>

static enum far_status bad_length(const struct psv_request *q, size_t len, struct far_err *err)
{
	return pst_fail(err, FAR_PROTOCOL, 0, "a request of kind %u with %u keys does not take %zu bytes", q->kind,
			q->n, len);
}

static enum far_status check_name(struct psv_job *j, size_t len, struct far_err *err)
{
	const struct psv_request *q = j->q;
	size_t want = sizeof *q + PSV_NAME_BYTES + (q->kind == PSV_CREATE ? sizeof *j->schema : 0);
	if (q->n || len != want)
		return bad_length(q, len, err);
	j->name = (const char *)(q + 1);
	j->schema = (const struct psv_schema *)(j->name + PSV_NAME_BYTES);
	uint64_t id = q->kind == PSV_VIEW ? q->service : q->table;
	if (!psv_name_ok(j->name) || psv_name_id(j->name) != id)
		return pst_fail(err, FAR_PROTOCOL, 0, "a request of kind %u whose name is not that of its id", q->kind);
	return FAR_OK;
}

static enum far_status check_bags(struct psv_job *j, size_t len, struct far_err *err)
{
	const struct psv_request *q = j->q;
	bool weights = q->flags == PSV_WEIGHTS;
	if (q->bags > q->n || len != psv_bags_request_bytes(q->n, q->bags, weights))
		return bad_length(q, len, err);
	j->offsets = (const uint32_t *)(const void *)j->rows;
	j->weights = weights ? (const float *)(const void *)(j->offsets + q->bags + 1) : NULL;
	bool ordered = j->offsets[0] == 0 && j->offsets[q->bags] == q->n;
	for (uint32_t b = 0; b < q->bags; b++)
		ordered = ordered && j->offsets[b] < j->offsets[b + 1];
	return ordered ? FAR_OK
		       : pst_fail(err, FAR_PROTOCOL, 0, "the offsets of %u bags do not cut %u keys", q->bags, q->n);
}

static enum far_status check_keys(const struct psv_shard *s, const struct psv_job *j, struct far_err *err)
{
	bool dense = j->t->schema.full == PSV_DENSE, alone = s->view->slots == 1 && s->slot == 0;
	for (uint32_t i = 0; dense && i < j->q->n; i++)
		if (j->keys[i] >= j->t->schema.rows_max)
			return pst_fail(err, FAR_INVALID, 0, "key %llu; table \"%s\" has %llu rows",
					(unsigned long long)j->keys[i], j->t->name,
					(unsigned long long)j->t->schema.rows_max);
	for (uint32_t i = 0; !alone && i < j->q->n; i++)
		if ((int)psv_slot_of(s->view, pst_hash(j->keys[i])) != s->slot)
			return pst_fail(err, FAR_INVALID, 0, "key %llu does not belong to shard %d",
					(unsigned long long)j->keys[i], s->self.shard);
	return FAR_OK;
}

static enum far_status check_call(struct psv_job *j, size_t len, struct far_err *err)
{
	const struct psv_request *q = j->q;
	if (q->bags > FAR_PS_ARG_MAX || len != psv_call_request_bytes(q->n, q->bags))
		return bad_length(q, len, err);
	j->name = j->rows;
	j->arg = j->rows + PSV_NAME_BYTES;
	if (!psv_name_ok(j->name) || q->worker > FAR_PS_WIDTH_MAX ||
	    psv_call_values(q->n, q->worker, q->wire) > PSV_VALUES_MAX)
		return pst_fail(err, FAR_PROTOCOL, 0, "a call of a function without a name, or of %u numbers for a key",
				q->worker);
	return FAR_OK;
}

/* Lengths at `lens` and the bytes of the values, the last of the request. */
static enum far_status check_values(struct psv_shard *s, struct psv_job *j, const char *lens, size_t room,
				    struct far_err *err)
{
	uint32_t n = j->q->n, max = j->t->layout.value_max;
	const uint32_t *len = (const uint32_t *)(const void *)lens;
	uint64_t all = 0;
	for (uint32_t i = 0; i < n; i++) {
		s->value_at[i] = (uint32_t)all;
		all += len[i];
		if (len[i] > max)
			return pst_fail(err, FAR_INVALID, 0,
					"the value of key %llu has %u bytes; at most %u are possible in table \"%s\"",
					(unsigned long long)j->keys[i], len[i], max, j->t->name);
	}
	s->value_at[n] = (uint32_t)all;
	j->value_at = s->value_at;
	return (all + 7) / 8 * 8 == room && all <= UINT32_MAX
		       ? FAR_OK
		       : pst_fail(err, FAR_PROTOCOL, 0, "%llu bytes of values do not take %zu", (unsigned long long)all,
				  room);
}

/* What a request to a table of values has behind its keys. */
static enum far_status check_of_values(struct psv_shard *s, struct psv_job *j, size_t len, struct far_err *err)
{
	const struct psv_request *q = j->q;
	const struct psv_rows *layout = &j->t->layout;
	size_t fixed = sizeof *q + q->n * sizeof *j->keys;
	bool sends = q->kind == PSV_PUT_VALUES || q->kind == PSV_RESTORE;
	if (q->kind == PSV_PUT_VALUES)
		fixed += q->n * sizeof(uint32_t);
	if (q->kind == PSV_RESTORE)
		fixed = sizeof *q + psv_rows_bytes(layout, q->n);
	if (sends ? len < fixed : len != fixed)
		return bad_length(q, len, err);
	if (q->kind == PSV_GET_VALUES && (q->bags < layout->value_max || q->bags > psv_values_room(layout->value_max)))
		return pst_fail(err, FAR_PROTOCOL, 0, "a reply with room for %u bytes of values of up to %u", q->bags,
				layout->value_max);
	j->values = (const char *)q + fixed;
	return sends ? check_values(s, j, j->rows, len - fixed, err) : FAR_OK;
}

static bool is_of_values(unsigned kind)
{
	return kind == PSV_GET_VALUES || kind == PSV_PUT_VALUES;
}

/* Keys, numbers, scales and state are where the lengths put them. */
static enum far_status check_arrays(struct psv_shard *s, struct psv_job *j, size_t len, struct far_err *err)
{
	const struct psv_request *q = j->q;
	unsigned dim = j->t->schema.dim;
	size_t state = q->flags & PSV_STATE ? pst_table_state(j->t->rows) : 0;
	unsigned flags = q->kind == PSV_ASSIGN ? PSV_STATE
			 : q->kind == PSV_BAGS ? PSV_WEIGHTS
			 : q->kind == PSV_CALL ? PSV_MAKE
					       : 0;
	if (q->wire >= PST_TYPES || q->miss > PST_MISS_MAKE || (q->flags & ~flags) || q->n > PST_CHUNK_KEYS ||
	    (q->n && (q->kind < PSV_PULL || q->kind == PSV_HOT)))
		return pst_fail(err, FAR_PROTOCOL, 0, "a request of kind %u with a field out of range", q->kind);
	bool values = j->t->layout.value_max > 0;
	if (psv_has_keys(q->kind) &&
	    (values ? !is_of_values(q->kind) && q->kind != PSV_ERASE && q->kind != PSV_EXISTS && q->kind != PSV_RESTORE
		    : is_of_values(q->kind)))
		return pst_fail(err, FAR_INVALID, 0, "table \"%s\" has %s", j->t->name,
				values ? "values of bytes, not rows" : "rows, not values of bytes");
	if (values && psv_has_keys(q->kind)) {
		j->keys = (const uint64_t *)(q + 1);
		j->rows = (const char *)(j->keys + q->n);
		enum far_status status = check_of_values(s, j, len, err);
		return status ? status : check_keys(s, j, err);
	}
	if (psv_has_keys(q->kind) && !psv_is_call(q->kind) && q->worker && q->worker != dim)
		return pst_fail(
			err, FAR_GONE, 0,
			"table \"%s\" has rows of %u numbers, not of %u: it was dropped and made anew; open it again",
			j->t->name, dim, q->worker);
	size_t want = q->kind == PSV_RESTORE ? sizeof *q + psv_rows_bytes(&j->t->layout, q->n)
					     : psv_request_bytes(q->kind, q->n, dim, (enum pst_type)q->wire, state);
	if (q->kind != PSV_BAGS && !psv_is_call(q->kind) && len != want)
		return bad_length(q, len, err);
	j->keys = (const uint64_t *)(q + 1);
	const char *at = (const char *)(j->keys + q->n);
	j->rows = at;
	if (q->kind == PSV_BAGS || psv_is_call(q->kind)) {
		enum far_status status = (q->kind == PSV_BAGS ? check_bags : check_call)(j, len, err);
		if (status)
			return status;
	}
	if (psv_has_numbers(q->kind)) {
		j->numbers = at;
		at += psv_numbers_bytes(q->n, dim, (enum pst_type)q->wire);
		j->scales = q->wire == PST_INT8 ? (const float *)(const void *)at : NULL;
		at += q->wire == PST_INT8 ? q->n * sizeof(float) : 0;
		j->state = state ? (const float *)(const void *)at : NULL;
	}
	return check_keys(s, j, err);
}

enum far_status psv_check(struct psv_shard *s, struct psv_job *j, size_t len, struct far_err *err)
{
	const struct psv_request *q = j->q;
	if (q->kind == PSV_VIEW) {
		j->stale = true;
		return check_name(j, len, err);
	}
	if (q->epoch != s->view->epoch) {
		j->stale = true; /* older; newer ones wait */
		return FAR_OK;
	}
	if (q->kind == PSV_CREATE)
		return check_name(j, len, err);
	if (q->kind == PSV_BARRIER)
		return FAR_OK; /* checked when it came to the barrier */
	if (q->kind == PSV_LIST)
		return q->n || len != sizeof *q ? bad_length(q, len, err) : FAR_OK;
	j->t = psv_find_table(s, q->table);
	if (!j->t)
		return pst_fail(err, FAR_GONE, 0, "service \"%s\" has no such table at shard %d: create it",
				s->server->name, s->self.shard);
	if (q->kind == PSV_OPEN) {
		enum far_status status = check_name(j, len, err);
		if (status || !strcmp(j->name, j->t->name))
			return status;
		return pst_fail(err, FAR_GONE, 0, "there is no table \"%s\"; \"%s\" has its id", j->name, j->t->name);
	}
	return check_arrays(s, j, len, err);
}
