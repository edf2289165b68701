/* SPDX-License-Identifier: BSD-3-Clause */
/** Numbers the changes of a client. Any thread. */
#include "psv_op.h"

#include "ps_mutant.h"
#include "pst_fail.h"

void psv_number_end(struct psv_op *op)
{
	pthread_mutex_lock(&op->ps->lock);
	if (op->link) {
		*op->link = op->next;
		if (op->next)
			op->next->link = op->link;
		op->link = NULL;
	}
	pthread_mutex_unlock(&op->ps->lock);
}

/* With the lock. Numbers [first, first + n): new ones, unless the caller repeats a change. */
static enum far_status take_numbers(struct psv_op *op, uint32_t n, uint64_t again, struct far_err *err)
{
	struct far_ps *ps = op->ps;
	uint64_t oldest = ps->next;
	for (const struct psv_op *c = ps->changes; c; c = c->next)
		if (c != op && c->first < oldest)
			oldest = c->first;
	if (again && !PS_MUTANT(REPEAT_NUMBERED)) {
		if (again + n > ps->next)
			return pst_fail(err, FAR_INVALID, 0, "token %llu is of no change of this client",
					(unsigned long long)again);
		if (again < ps->floor || ps->next - again > PSV_AGAIN)
			return pst_fail(err, FAR_GONE, 0,
					"change %llu cannot be repeated: it is too old, or the view has changed",
					(unsigned long long)again);
		op->first = again;
		return FAR_OK;
	}
	if (ps->next + n - oldest > PSV_SPAN_MAX)
		return pst_fail(err, FAR_BUSY, 0, "the numbers of pending changes would span more than %u",
				PSV_SPAN_MAX);
	op->first = ps->next;
	ps->next += n;
	return FAR_OK;
}

/* Numbers the chunks of a round. `again`: 0, or the token of the change that is repeated. */
enum far_status psv_number(struct psv_op *op, uint64_t again, struct far_err *err)
{
	struct far_ps *ps = op->ps;
	if (!psv_is_change(op->kind))
		return FAR_OK;
	pthread_mutex_lock(&ps->lock);
	enum far_status status =
		take_numbers(op, op->d.chunk[op->to - 1].index - op->d.chunk[op->from].index + 1, again, err);
	if (!status && !op->link) {
		op->next = ps->changes;
		op->link = &ps->changes;
		if (op->next)
			op->next->link = &op->next;
		ps->changes = op;
	}
	pthread_mutex_unlock(&ps->lock);
	return status;
}
