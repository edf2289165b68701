/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pending WAITs of the store's server. Control thread of rank 0. They are indexed by key (a balanced tree, so that
 * chosen keys do not make it slow), by client (a list) and by deadline (a heap): no operation touches WAITs that it
 * does not end.
 */
#include "control/store_conn.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* A key with pending WAITs: a record of the tree. */
struct wait_key {
	struct kv_bytes key; /* in `bytes` */
	struct wait *first;  /* never NULL: the record goes with its last WAIT */
	uint8_t bytes[];
};

/* A pending WAIT. */
struct wait {
	struct wait_key *of;
	struct wait *next, **at;           /* list of the same key: next, and the pointer to this one */
	struct wait *conn_next, **conn_at; /* the same in the list of its connection */
	struct conn *conn;
	uint64_t id;       /* of the request */
	uint64_t deadline; /* absolute, ns */
	size_t heap_i;
};

static int key_compare(const void *a, const void *b)
{
	const struct kv_bytes *x = &((const struct wait_key *)a)->key, *y = &((const struct wait_key *)b)->key;
	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return memcmp(x->data, y->data, x->len);
}

/* ---- the heap: the earliest deadline first ---- */

static void heap_set(struct waits *ws, size_t i, struct wait *w)
{
	ws->heap[i] = w;
	w->heap_i = i;
}

static void heap_up(struct waits *ws, size_t i, struct wait *w)
{
	for (; i && ws->heap[(i - 1) / 2]->deadline > w->deadline; i = (i - 1) / 2)
		heap_set(ws, i, ws->heap[(i - 1) / 2]);
	heap_set(ws, i, w);
}

static void heap_down(struct waits *ws, size_t i, struct wait *w)
{
	for (size_t child; (child = 2 * i + 1) < ws->n; i = child) {
		if (child + 1 < ws->n && ws->heap[child + 1]->deadline < ws->heap[child]->deadline)
			child++;
		if (ws->heap[child]->deadline >= w->deadline)
			break;
		heap_set(ws, i, ws->heap[child]);
	}
	heap_set(ws, i, w);
}

static bool heap_has_room(struct waits *ws)
{
	if (ws->n < ws->cap)
		return true;
	size_t cap = ws->cap ? 2 * ws->cap : 64;
	struct wait **heap = realloc(ws->heap, cap * sizeof *heap);
	if (!heap)
		return false;
	ws->heap = heap;
	ws->cap = cap;
	return true;
}

static void heap_remove(struct waits *ws, const struct wait *w)
{
	size_t i = w->heap_i;
	struct wait *last = ws->heap[--ws->n];
	if (last != w) {
		heap_down(ws, i, last);
		heap_up(ws, last->heap_i, last);
	}
	if (ws->n == 0) {
		free(ws->heap);
		ws->heap = NULL;
		ws->cap = 0;
	}
}

/* ---- begin and end ---- */

/* The key's record in the tree, made when it is missing; NULL: no memory. */
static struct wait_key *key_get(struct waits *ws, struct kv_bytes key)
{
	struct wait_key *k = malloc(sizeof *k + key.len), **at;
	if (!k)
		return NULL;
	memcpy(k->bytes, key.data, key.len);
	k->key = (struct kv_bytes){k->bytes, key.len};
	k->first = NULL;
	at = tsearch(k, &ws->keys, key_compare);
	struct wait_key *found = at ? *at : NULL;
	if (found != k)
		free(k);
	return found;
}

static void key_settle(struct waits *ws, struct wait_key *k)
{
	if (k->first)
		return;
	tdelete(k, &ws->keys, key_compare);
	free(k);
}

int wait_add(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now)
{
	struct waits *ws = &s->waits;
	struct wait *w = heap_has_room(ws) ? malloc(sizeof *w) : NULL;
	struct wait_key *k = w ? key_get(ws, (struct kv_bytes){m->key, m->key_len}) : NULL;
	if (!k) {
		free(w);
		return -ENOMEM;
	}
	*w = (struct wait){.of = k,
			   .next = k->first,
			   .at = &k->first,
			   .conn_next = c->waits,
			   .conn_at = &c->waits,
			   .conn = c,
			   .id = m->id,
			   .deadline = time_after(now, m->timeout_ns)};
	if (k->first)
		k->first->at = &w->next;
	k->first = w;
	if (c->waits)
		c->waits->conn_at = &w->conn_next;
	c->waits = w;
	c->waits_n++;
	heap_up(ws, ws->n++, w);
	return 0;
}

static void wait_end(struct store_server *s, struct wait *w)
{
	heap_remove(&s->waits, w);
	*w->at = w->next;
	if (w->next)
		w->next->at = w->at;
	*w->conn_at = w->conn_next;
	if (w->conn_next)
		w->conn_next->conn_at = w->conn_at;
	w->conn->waits_n--;
	free(w);
}

/* If the reply finds no room, the client's own deadline or connection ends its request. */
static void wait_answer(struct store_server *s, struct wait *w, enum store_status status, struct kv_bytes value)
{
	store_reply(w->conn, STORE_WAIT, w->id, status, (struct kv_bytes){0}, value, 0);
	wait_end(s, w);
}

void waits_answer(struct store_server *s, struct kv_bytes key)
{
	struct wait_key wanted = {.key = key}, **at = tfind(&wanted, &s->waits.keys, key_compare), *k;
	struct kv_bytes value;
	if (!at || kv_get(s->kv, key, &value))
		return;
	k = *at;
	while (k->first)
		wait_answer(s, k->first, STORE_OK, value);
	key_settle(&s->waits, k);
}

void store_written(struct store_server *s, struct kv_bytes key)
{
	if (backup_concerns(key.data, key.len) && backup_is_awaited(s))
		s->backup.is_unsettled = true;
	else
		waits_answer(s, key);
}

void waits_expire(struct store_server *s, uint64_t now, bool *busy)
{
	struct waits *ws = &s->waits;
	while (ws->n && ws->heap[0]->deadline <= now) {
		struct wait_key *k = ws->heap[0]->of;
		wait_answer(s, ws->heap[0], STORE_TIMEOUT, (struct kv_bytes){0});
		key_settle(ws, k);
		*busy = true;
	}
}

uint64_t waits_until(const struct store_server *s)
{
	return s->waits.n ? s->waits.heap[0]->deadline : TIME_NEVER;
}

void waits_forget(struct store_server *s, struct conn *c)
{
	while (c->waits) {
		struct wait_key *k = c->waits->of;
		wait_end(s, c->waits);
		key_settle(&s->waits, k);
	}
}
