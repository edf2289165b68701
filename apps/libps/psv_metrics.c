/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads the statistics of a server's tables for the worker's metrics, by calls to its own shards. The thread that
 * reads the metrics. */
#include "psv_metrics.h"

#include "psv_env.h"
#include "psv_op.h"
#include <farcall/message.h>
#include <farcall/metrics.h>
#include <string.h>

#define READ_NS (80 * FAR_MS) /* of all calls of a reading */

#define METRIC(field, name, kind, divisor, help) {name, NULL, help, FAR_METRIC_##kind},
static const struct far_metric metrics[] = {METRICS_PS(METRIC)};

static const struct {
	size_t at;
	double divisor;
} fields[] = {
#define FIELD(field, name, kind, divisor, help) {offsetof(struct far_ps_stats, field), divisor},
	METRICS_PS(FIELD)};

/* What a shard of a server, for one reading, has replied with. */
struct reply {
	size_t len;
	struct psv_reply head;
	union {
		struct psv_stats stats;
		char names[FAR_PS_TABLES_MAX][PSV_NAME_BYTES];
	} u;
};

struct table {
	char name[PSV_NAME_BYTES];
	struct far_ps_stats stats;
};

struct reading {
	const struct far_ps_server *server;
	uint64_t end_ns;
	struct reply reply;
	unsigned tables_n;
	struct table table[FAR_PS_TABLES_MAX];
};

/* False: the shard does not answer in time, or has no such table. */
static bool request(struct reading *r, unsigned shard, enum psv_kind kind, uint64_t table)
{
	const struct far_ps_server *server = r->server;
	struct psv_request q = {.magic = PSV_MAGIC,
				.kind = (uint8_t)kind,
				.service = server->service,
				.table = table,
				.epoch = atomic_load(&((struct far_ps_server *)(uintptr_t)server)->view)->epoch};
	uint64_t now = psv_now_ns();
	struct far_call_opts opts = {.timeout_ns = r->end_ns - now};
	return now < r->end_ns &&
	       far_msg_call(server->agent, server->shard[shard].self, server->message, &q, sizeof q, &opts,
			    &r->reply.head, sizeof r->reply - offsetof(struct reply, head), &r->reply.len,
			    NULL) == FAR_OK &&
	       r->reply.len >= sizeof r->reply.head && r->reply.head.answer == PSV_DONE;
}

static struct table *find_table(struct reading *r, const char *name)
{
	for (unsigned i = 0; i < r->tables_n; i++)
		if (strcmp(r->table[i].name, name) == 0)
			return &r->table[i];
	if (r->tables_n == FAR_PS_TABLES_MAX)
		return NULL;
	struct table *t = &r->table[r->tables_n++];
	*t = (struct table){.stats.clock = UINT64_MAX};
	strcpy(t->name, name);
	return t;
}

static void read_shard(struct reading *r, unsigned shard)
{
	char names[FAR_PS_TABLES_MAX][PSV_NAME_BYTES];
	if (!request(r, shard, PSV_LIST, 0) || r->reply.head.count > FAR_PS_TABLES_MAX)
		return;
	size_t n = (size_t)r->reply.head.count;
	memcpy(names, r->reply.u.names, n * sizeof *names);
	for (size_t i = 0; i < n; i++) {
		struct table *t = find_table(r, names[i]);
		if (t && request(r, shard, PSV_STATS, psv_name_id(names[i])))
			psv_stats_add(&t->stats, &r->reply.u.stats);
	}
}

static void read_tables(struct far_metrics_sink *sink, void *user)
{
	static struct reading r; /* one reading at a time */
	r.server = user;
	r.end_ns = psv_now_ns() + READ_NS;
	r.tables_n = 0;
	for (unsigned i = 0; i < r.server->shards; i++)
		read_shard(&r, i);
	for (unsigned i = 0; i < r.tables_n; i++) {
		const char *labels[] = {"service", r.server->name, "table", r.table[i].name, NULL};
		for (size_t k = 0; k < sizeof metrics / sizeof *metrics; k++) {
			uint64_t value;
			memcpy(&value, (const char *)&r.table[i].stats + fields[k].at, sizeof value);
			far_metrics_put(sink, k, (double)value / fields[k].divisor, labels);
		}
	}
}

enum far_status psv_metrics_add(struct far_ps_server *server, struct far_err *err)
{
	return far_metrics_add(server->agent, metrics, sizeof metrics / sizeof *metrics, read_tables, server, err);
}

void psv_metrics_remove(struct far_ps_server *server)
{
	(void)far_metrics_remove(server->agent, read_tables, server, NULL);
}
