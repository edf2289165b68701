/* SPDX-License-Identifier: BSD-3-Clause */
/** Collects the pushes of a bulk-synchronous step until all workers have sent theirs. The shard that owns the rows.
 * Shard thread. */
#include "ps_step.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ps_step_add(struct ps_step *s, const struct ps_table *t, int rank, float *const *rows, const float *grads, size_t n,
		float rate)
{
	size_t grad_bytes = n * t->dim * sizeof *grads;
	size_t bytes = sizeof(struct ps_part) + n * sizeof *rows + grad_bytes;
	if (s->bytes + bytes > PS_STEP_BYTES_MAX)
		return -ENOBUFS;
	struct ps_part *p = malloc(bytes);
	if (p == NULL)
		return -ENOMEM;
	p->next = NULL;
	p->n = n;
	p->rate = rate;
	p->grads = (float *)(void *)(p->rows + n);
	if (n) {
		memcpy(p->rows, rows, n * sizeof *rows);
		memcpy(p->grads, grads, grad_bytes);
	}
	struct ps_seat *seat = &s->seats[rank];
	if (seat->first == NULL)
		seat->last = &seat->first;
	*seat->last = p;
	seat->last = &p->next;
	s->bytes += bytes;
	return 0;
}

static void seat_clear(struct ps_seat *seat)
{
	for (struct ps_part *p = seat->first, *next; p; p = next) {
		next = p->next;
		free(p);
	}
	memset(seat, 0, sizeof *seat);
}

/* The rows of a seat's last part, as a reply. */
static void answer_rows(struct far_deferred *reply, const struct ps_table *t, const struct ps_part *part)
{
	while (part->next)
		part = part->next;
	size_t row_bytes = t->dim * sizeof(float);
	char *rows = malloc(part->n * row_bytes + 1);
	if (rows == NULL) {
		far_deferred_fail(reply, FAR_RESOURCE, ENOMEM, "no memory for %zu rows", part->n);
		return;
	}
	for (size_t i = 0; i < part->n; i++)
		memcpy(rows + i * row_bytes, part->rows[i], row_bytes);
	struct far_tensor tensor = far_tensor_2d(FAR_F32, rows, part->n, t->dim);
	struct far_val value = far_tensor_val(&tensor);
	far_deferred_return(reply, &value);
	free(rows);
}

static void step_reset(struct ps_step *s)
{
	s->workers = 0;
	s->arrived = 0;
	s->bytes = 0;
}

void ps_step_finish(struct ps_step *s, const struct ps_table *t, const struct ps_rule *rule)
{
	float share = 1.0f / (float)s->workers;
	for (int r = 0; r < PS_WORLD_MAX; r++)
		for (const struct ps_part *p = s->seats[r].first; p; p = p->next)
			ps_rule_gather(rule, t, p->rows, p->grads, p->n, p->rate, share);
	for (int r = 0; r < PS_WORLD_MAX; r++)
		for (const struct ps_part *p = s->seats[r].first; p; p = p->next)
			ps_rule_settle(rule, t, p->rows, p->n, p->rate);
	struct far_val none = far_none();
	for (int r = 0; r < PS_WORLD_MAX; r++) {
		struct ps_seat *seat = &s->seats[r];
		if (seat->reply && seat->wants_rows)
			answer_rows(seat->reply, t, seat->first);
		else if (seat->reply)
			far_deferred_return(seat->reply, &none);
		seat_clear(seat);
	}
	step_reset(s);
	s->finished++;
	s->number++;
}

void ps_step_abort(struct ps_step *s, enum far_status status, const char *text)
{
	for (int r = 0; r < PS_WORLD_MAX; r++) {
		struct ps_seat *seat = &s->seats[r];
		if (seat->reply)
			far_deferred_fail(seat->reply, status, 0, "%s", text);
		seat_clear(seat);
	}
	step_reset(s);
}

void ps_step_drop(struct ps_step *s)
{
	for (int r = 0; r < PS_WORLD_MAX; r++)
		seat_clear(&s->seats[r]);
	step_reset(s);
}
