/* SPDX-License-Identifier: BSD-3-Clause */
/** Maps keys to servers and shards, and groups the keys of an operation. The thread that owns the client. */
#include "ps_split.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ps_split_init(struct ps_split *s, unsigned parts)
{
	memset(s, 0, sizeof *s);
	s->parts = parts;
	s->start = calloc((size_t)parts + 1, sizeof *s->start);
	return s->start ? 0 : -ENOMEM;
}

void ps_split_fini(struct ps_split *s)
{
	free(s->start);
	free(s->position);
	free(s->key);
	free(s->owner);
	memset(s, 0, sizeof *s);
}

static int reserve(struct ps_split *s, size_t n)
{
	if (n <= s->cap)
		return 0;
	size_t *position = reallocarray(NULL, n, sizeof *position);
	uint64_t *key = reallocarray(NULL, n, sizeof *key);
	unsigned *owner = reallocarray(NULL, n, sizeof *owner);
	if (position == NULL || key == NULL || owner == NULL) {
		free(position);
		free(key);
		free(owner);
		return -ENOMEM;
	}
	free(s->position);
	free(s->key);
	free(s->owner);
	s->position = position;
	s->key = key;
	s->owner = owner;
	s->cap = n;
	return 0;
}

int ps_split_keys(struct ps_split *s, const uint64_t *keys, size_t n)
{
	int rc = reserve(s, n);
	if (rc)
		return rc;
	s->n = n;
	memset(s->start, 0, (s->parts + (size_t)1) * sizeof *s->start);
	/* A counting sort: start[o + 1] counts, becomes the running end while placing, and ends as the next start. */
	for (size_t i = 0; i < n; i++) {
		s->owner[i] = ps_owner(keys[i], s->parts);
		s->start[s->owner[i] + 1]++;
	}
	for (unsigned o = 1; o <= s->parts; o++)
		s->start[o] += s->start[o - 1];
	for (size_t i = n; i-- > 0;) {
		size_t at = --s->start[s->owner[i] + 1];
		s->position[at] = i;
		s->key[at] = keys[i];
	}
	/* Every start[o + 1] now holds the beginning of group o: move them down and close with n. */
	memmove(s->start, s->start + 1, s->parts * sizeof *s->start);
	s->start[s->parts] = n;
	return 0;
}
