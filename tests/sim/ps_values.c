/* SPDX-License-Identifier: BSD-3-Clause */
/** Values of different lengths of a simulated parameter server: each begins with the number of its assignment, from
 * which its length and its bytes follow. On fibers. */
#include "ps_world.h"

#include <string.h>

/* One in two is long. */
static uint32_t length_of(uint64_t number)
{
	uint64_t x = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
	if (x % 2)
		return (uint32_t)(VALUE_MAX / 2 + x / 2 % (VALUE_MAX / 2 + 1));
	return (uint32_t)(sizeof number + x / 2 % (VALUE_SHORT_MAX - sizeof number + 1));
}

static char byte_of(uint64_t number, uint32_t i)
{
	return (char)(number * 31 + i * 7 + i / 251);
}

enum far_status values_put(unsigned c, struct far_ps_table *t, const struct far_ps_push_opts *opts,
			   struct far_future **f, struct far_err *err)
{
	struct client *me = &run.client[c];
	const struct disk *d = &me->disk;
	for (unsigned i = 0; i < d->n; i++) {
		uint64_t number = d->event[i];
		char *value = me->values + me->offsets[i];
		uint32_t len = length_of(number);
		for (uint32_t k = sizeof number; k < len; k++)
			value[k] = byte_of(number, k);
		memcpy(value, &number, sizeof number);
		me->offsets[i + 1] = me->offsets[i] + len;
	}
	return far_ps_assign_values(t, me->keys, d->n, me->values, me->offsets, opts, me->status, f, err);
}

enum far_status values_get(struct reader *r, struct far_ps_table *t, unsigned n, const struct far_ps_pull_opts *opts,
			   struct far_future **f, struct far_err *err)
{
	return far_ps_pull_values(t, r->keys, n, opts, r->bytes, VALUE_MAX, r->lens, r->status, f, err);
}

/* The number of a value; PS_NEVER: it is none. */
static uint64_t number_of(const char *value, uint32_t len)
{
	uint64_t number = PS_NEVER;
	if (len < sizeof number)
		return PS_NEVER;
	memcpy(&number, value, sizeof number);
	if (number >= run.history.n || len != length_of(number))
		return PS_NEVER;
	for (uint32_t k = sizeof number; k < len; k++)
		if (value[k] != byte_of(number, k))
			return PS_NEVER;
	return number;
}

void values_check(const struct reader *r, unsigned n, uint64_t begin)
{
	for (unsigned i = 0; i < n; i++) {
		struct ps_event e = {.kind = PS_GOT,
				     .key = r->number[i],
				     .begin = begin,
				     .end = cluster_now(run.c),
				     .value = PS_NEVER};
		if (r->status[i] >= FAR_PS_LATE)
			continue;
		if (r->status[i] == FAR_PS_ROW)
			e.value = number_of(r->bytes + (size_t)i * VALUE_MAX, r->lens[i]);
		if (r->status[i] == FAR_PS_ROW ? e.value == PS_NEVER : r->lens[i] != 0)
			wrong("a value of %u bytes with status %s was never assigned", r->lens[i],
			      far_ps_status_name((enum far_ps_status)r->status[i]));
		ps_note(&run.history, &e);
	}
}
