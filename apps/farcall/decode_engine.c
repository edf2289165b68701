/* SPDX-License-Identifier: BSD-3-Clause */
/** Decodes engine requests about references and objects, and matches replies with their requests. Main thread. */
#include "decode_engine.h"
#include "base/hash.h"
#include "decode.h"
#include "features/references/wire.h"
#include <stdlib.h>
#include <string.h>

enum before { NOTHING, VALUES, SAME };
enum reply { VALUE, EMPTY, STATUSES };

/* Of each number, what its request and its reply are. */
struct message {
	const char *name;
	const struct layout *layout;
	enum before before; /* what stands before the layout: typed values, or more of the same */
	enum reply reply;
};

static const struct message messages[] = {
	[RREF_CALL - RREF_CALL] = {"CALL", &layout_hash, VALUES, VALUE},
	[RREF_REMOTE - RREF_CALL] = {"REMOTE", &layout_rref_remote, VALUES, EMPTY},
	[RREF_FETCH - RREF_CALL] = {"FETCH", &layout_rref_fetch, NOTHING, VALUE},
	[RREF_CONTROL - RREF_CALL] = {"CONTROL", &layout_rref_op, SAME, STATUSES},
	[RREF_METHOD - RREF_CALL] = {"METHOD", &layout_rref_method, VALUES, VALUE},
	[RREF_METHOD_REMOTE - RREF_CALL] = {"METHOD_REMOTE", &layout_rref_method_remote, VALUES, EMPTY},
	[RREF_TYPE - RREF_CALL] = {"TYPE", &layout_rref_fetch, NOTHING, VALUE},
};
static_assert(sizeof messages / sizeof *messages == RREF_LAST - RREF_CALL + 1, "each has a row");

/* ---- requests ---- */

/* Call slots of caller and callee, by hash; gen is that of the last request seen. With three quarters of them in use
 * all are forgotten: replies to earlier requests are bytes then. */
#define CALLS (1u << 16)
struct decode_calls {
	unsigned n;
	struct engine_call {
		uint64_t key; /* 0: free */
		uint32_t gen;
		uint16_t fn;
	} of[CALLS];
};

struct decode_calls *decode_calls_new(void)
{
	return calloc(1, sizeof(struct decode_calls));
}

void decode_calls_free(struct decode_calls *calls)
{
	free(calls);
}

/* Its place, or the free one where it belongs. */
static struct engine_call *call_find(struct decode_calls *c, const char *caller, const char *callee, uint32_t call,
				     uint64_t *key_out)
{
	char text[160];
	int n = snprintf(text, sizeof text, "%s>%s/%u", caller, callee, call);
	uint64_t key = hash64(text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1) | 1;
	uint32_t at = (uint32_t)(key >> 1) % CALLS;
	while (c->of[at].key && c->of[at].key != key)
		at = (at + 1) % CALLS;
	*key_out = key;
	return &c->of[at];
}

bool engine_is_request(const union packet_head *h)
{
	return !(h->flags & PACKET_TYPED) && h->request.handler >= RREF_CALL && h->request.handler <= RREF_LAST;
}

const char *engine_name(uint16_t fn)
{
	return messages[fn - RREF_CALL].name;
}

void engine_note(const struct printer *p, const union packet_head *h)
{
	if (h->type != PACKET_REQUEST || !engine_is_request(h))
		return;
	uint64_t key;
	struct engine_call *a = call_find(p->calls, p->from, p->to, h->call.slot, &key);
	if (!a->key && p->calls->n >= CALLS / 4 * 3) {
		memset(p->calls, 0, sizeof *p->calls);
		a = call_find(p->calls, p->from, p->to, h->call.slot, &key);
	}
	p->calls->n += !a->key;
	*a = (struct engine_call){key, h->call.generation, h->request.handler};
}

uint16_t engine_answered(const struct printer *p, const union packet_head *h)
{
	uint64_t key;
	const struct engine_call *a = call_find(p->calls, p->to, p->from, h->call.slot, &key);
	return a->key && a->gen == h->call.generation ? a->fn : 0;
}

/* ---- bodies ---- */

bool engine_request(struct printer *p, const union packet_head *h, const uint8_t *bytes, uint64_t len)
{
	const struct message *m = &messages[h->request.handler - RREF_CALL];
	const struct layout *l = m->layout;
	fprintf(p->out, " [engine] request=%s", m->name);
	if (m->before == NOTHING)
		return print_exactly(p, l, bytes, len, 0);
	if (m->before == SAME) {
		if (len % l->bytes || len == 0 || len > (uint64_t)RREF_OPS_MAX * l->bytes)
			return wrong(p, l->name, "size");
		bool good = true;
		for (uint64_t at = 0; good && at < len; at += l->bytes)
			good = print_layout(p, l, bytes + at, l->bytes, 0);
		return good;
	}
	if (len < l->bytes)
		return wrong(p, l->name, "size");
	len -= l->bytes;
	return print_layout(p, l, bytes + len, l->bytes, 0) &&
	       (decode_values(p->out, bytes, len, false) || wrong(p, "values", NULL));
}

static bool print_statuses(struct printer *p, const uint8_t *bytes, uint64_t len)
{
	if (len == 0 || len > RREF_OPS_MAX)
		return wrong(p, "statuses", NULL);
	for (uint64_t i = 0; i < len; i++) {
		fputs(i ? "," : " [statuses] ", p->out);
		print_status(p->out, bytes[i]);
	}
	return true;
}

bool engine_reply(struct printer *p, uint16_t fn, const uint8_t *bytes, uint64_t len)
{
	const struct message *m = &messages[fn - RREF_CALL];
	fprintf(p->out, " [engine] reply=%s", m->name);
	switch (m->reply) {
	case VALUE:
		return decode_values(p->out, bytes, len, true) || wrong(p, "values", NULL);
	case STATUSES:
		return print_statuses(p, bytes, len);
	case EMPTY:
		break;
	}
	return len == 0 || wrong(p, "engine", "size");
}
