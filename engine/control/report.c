/* SPDX-License-Identifier: BSD-3-Clause */
/** Log lines about members and the store, at most REPORTS in REPORT_WINDOW_NS. Control thread. */
#include "control/group.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>

#define REPORTS          16u
#define REPORT_WINDOW_NS (10 * FAR_SEC)

/* True if a line may be logged now. *left_out: lines that were not since the last one. */
static bool may_report(struct group *g, uint32_t *left_out)
{
	struct group_reports *r = &g->reports;
	if (g->now >= r->window_end) {
		r->window_end = time_after(g->now, REPORT_WINDOW_NS);
		r->n = 0;
	}
	if (r->n == REPORTS) {
		r->left_out++;
		return false;
	}
	r->n++;
	*left_out = r->left_out;
	r->left_out = 0;
	return true;
}

void group_report(struct group *g, const struct peer *p, const char *event, const char *why)
{
	char rank[12] = "", more[16] = "", tail[64] = "";
	uint32_t left_out;
	if (!may_report(g, &left_out))
		return;
	if (left_out) {
		snprintf(more, sizeof more, "%" PRIu32, left_out);
		snprintf(tail, sizeof tail, " (%s lines before it were left out)", more);
	}
	struct far_log_field fields[7] = {
		{"worker", g->name}, {"group", g->group}, {"event", event}, {"reason", why}, {"left_out", more}};
	size_t n = 5;
	if (p) {
		snprintf(rank, sizeof rank, "%d", p->rank);
		fields[n++] = (struct far_log_field){"peer", g->members[p->rank].name};
		fields[n++] = (struct far_log_field){"peer_rank", rank};
		log_fields(FAR_LOG_DEBUG, fields, n, "worker \"%s\": worker \"%s\" (rank %s) %s%s%s%s", g->name,
			   g->members[p->rank].name, rank, event, *why ? ": " : "", why, tail);
		return;
	}
	log_fields(FAR_LOG_DEBUG, fields, n, "worker \"%s\": %s%s%s%s", g->name, event, *why ? ": " : "", why, tail);
}
