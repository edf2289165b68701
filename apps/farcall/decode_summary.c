/* SPDX-License-Identifier: BSD-3-Clause */
/** Counts the calls of a capture and times them from the first packet of a request to the first of its answer. Main
 * thread. */
#include "decode_summary.h"
#include "base/hash.h"
#include "core/packet.h"
#include "decode_engine.h"
#include "perf/hist.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS_MAX  256
#define FUNCTIONS_MAX 256 /* of all sessions together */
#define ADDRESS_MAX   64
#define PENDING       (1u << 16) /* calls whose answers are looked for; a newer one takes the slot of an older one */

enum target { MESSAGE, FUNCTION, HASHED, ENGINE };

struct calls {
	unsigned session;
	enum target target;
	uint16_t number;
	uint64_t requests, answers, errors, oneways;
	struct hist latency; /* ns */
};

struct session {
	char end[2][ADDRESS_MAX];
	uint64_t packets, bytes, retransmitted;
};

struct summary {
	struct session session[SESSIONS_MAX];
	struct calls *calls[FUNCTIONS_MAX];
	unsigned sessions, functions;
	uint64_t left_out; /* packets and messages beyond these bounds */
	/* The present packet. */
	const char *from, *to;
	unsigned at; /* session; SESSIONS_MAX: beyond the bound */
	uint64_t now_ns;
	bool again;
	struct pending {
		uint64_t key; /* of caller, callee, slot and generation; 0: free */
		uint64_t sent_ns;
		unsigned function;
	} pending[PENDING];
};

struct summary *summary_new(void)
{
	return calloc(1, sizeof(struct summary));
}

void summary_free(struct summary *s)
{
	for (unsigned i = 0; s && i < s->functions; i++)
		free(s->calls[i]);
	free(s);
}

static bool is_between(const struct session *e, const char *a, const char *b)
{
	return (strcmp(e->end[0], a) == 0 && strcmp(e->end[1], b) == 0) ||
	       (strcmp(e->end[0], b) == 0 && strcmp(e->end[1], a) == 0);
}

void summary_packet(struct summary *s, const char *from, const char *to, uint64_t time_ns, uint32_t len,
		    bool retransmitted)
{
	s->from = from;
	s->to = to;
	s->now_ns = time_ns;
	s->again = retransmitted;
	for (s->at = 0; s->at < s->sessions && !is_between(&s->session[s->at], from, to);)
		s->at++;
	if (s->at == SESSIONS_MAX) {
		s->left_out++;
		return;
	}
	struct session *e = &s->session[s->at];
	if (s->at == s->sessions) {
		s->sessions++;
		snprintf(e->end[0], ADDRESS_MAX, "%s", from);
		snprintf(e->end[1], ADDRESS_MAX, "%s", to);
	}
	e->packets++;
	e->bytes += len;
	e->retransmitted += retransmitted;
}

static struct calls *calls_of(struct summary *s, const union packet_head *h, unsigned *index)
{
	enum target target = h->type == PACKET_REQUEST && engine_is_request(h) ? ENGINE
			     : h->flags & PACKET_HASHED                        ? HASHED
			     : h->flags & PACKET_TYPED                         ? FUNCTION
									       : MESSAGE;
	for (unsigned i = 0; i < s->functions; i++) {
		struct calls *c = s->calls[i];
		*index = i;
		if (c->session == s->at && c->target == target && c->number == h->request.handler)
			return c;
	}
	if (s->functions == FUNCTIONS_MAX || !(s->calls[s->functions] = calloc(1, sizeof(struct calls)))) {
		s->left_out++;
		return NULL;
	}
	*index = s->functions++;
	*s->calls[*index] = (struct calls){.session = s->at, .target = target, .number = h->request.handler};
	return s->calls[*index];
}

static struct pending *pending_of(struct summary *s, const char *caller, const char *callee, const union packet_head *h,
				  uint64_t *key)
{
	char text[160];
	int n = snprintf(text, sizeof text, "%s>%s/%u.%u", caller, callee, h->call.slot, h->call.generation);
	*key = hash64(text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1) | 1;
	return &s->pending[(*key >> 1) % PENDING];
}

static void count_request(struct summary *s, const union packet_head *h)
{
	uint64_t key;
	unsigned index;
	struct pending *p = pending_of(s, s->from, s->to, h, &key);
	if (p->key == key) /* another fragment, or a retransmission */
		return;
	struct calls *c = calls_of(s, h, &index);
	if (!c)
		return;
	c->requests++;
	*p = (struct pending){.key = key, .sent_ns = s->now_ns, .function = index};
}

static void answered(struct summary *s, const union packet_head *h)
{
	uint64_t key;
	struct pending *p = pending_of(s, s->to, s->from, h, &key);
	if (p->key != key)
		return;
	struct calls *c = s->calls[p->function];
	c->answers++;
	c->errors += h->type == PACKET_ERROR;
	hist_record(&c->latency, s->now_ns - p->sent_ns);
	p->key = 0;
}

void summary_message(struct summary *s, const union packet_head *h)
{
	unsigned index;
	struct calls *c;
	if (s->at == SESSIONS_MAX)
		return;
	switch ((enum packet_type)h->type) {
	case PACKET_REQUEST:
		count_request(s, h);
		break;
	case PACKET_REPLY:
	case PACKET_ERROR:
		answered(s, h);
		break;
	case PACKET_ONEWAY:
		c = s->again ? NULL : calls_of(s, h, &index);
		if (c)
			c->oneways++;
		break;
	default:
		break;
	}
}

static void print_calls(const struct calls *c, FILE *out)
{
	static const char *const targets[] = {[MESSAGE] = "message", [FUNCTION] = "function", [HASHED] = "by hash"};
	char name[32];
	if (c->target == ENGINE)
		snprintf(name, sizeof name, "engine %s", engine_name(c->number));
	else
		snprintf(name, sizeof name, c->target == HASHED ? "%s" : "%s %u", targets[c->target], c->number);
	fprintf(out, "  %-20s %9" PRIu64 " %9" PRIu64 " %7" PRIu64 " %9" PRIu64, name, c->requests, c->answers,
		c->errors, c->oneways);
	if (c->answers)
		fprintf(out, " %10.1f %10.1f %10.1f", (double)hist_quantile(&c->latency, 0.5) / 1e3,
			(double)hist_quantile(&c->latency, 0.99) / 1e3, (double)c->latency.max / 1e3);
	putc('\n', out);
}

void summary_print(const struct summary *s, FILE *out)
{
	for (unsigned i = 0; i < s->sessions; i++) {
		const struct session *e = &s->session[i];
		fprintf(out, "%s%s - %s: %" PRIu64 " packets, %" PRIu64 " bytes, %" PRIu64 " retransmitted\n",
			i ? "\n" : "", e->end[0], e->end[1], e->packets, e->bytes, e->retransmitted);
		bool head = false;
		for (unsigned k = 0; k < s->functions; k++) {
			if (s->calls[k]->session != i)
				continue;
			if (!head)
				fprintf(out, "  %-20s %9s %9s %7s %9s %10s %10s %10s\n", "", "requests", "answers",
					"errors", "one-way", "p50 us", "p99 us", "max us");
			head = true;
			print_calls(s->calls[k], out);
		}
	}
	if (s->left_out)
		fprintf(out, "%s%" PRIu64 " packets and messages are beyond %d sessions or %d functions\n",
			s->sessions ? "\n" : "", s->left_out, SESSIONS_MAX, FUNCTIONS_MAX);
}
