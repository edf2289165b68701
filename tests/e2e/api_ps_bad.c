/* SPDX-License-Identifier: BSD-3-Clause */
/** Bad schemas, numbers, messages and lists of servers of a parameter server. Main thread of each process. */
#include "api_ps.h"

#include <math.h>

static void bad_schema(struct far_ps_schema s, enum far_status want, const char *text)
{
	struct far_ps_table *t;
	BAD(far_ps_table_create(ps, "bad", &s, 0, &t, &err), want, text);
}

static void bad_schemas(void)
{
	struct far_ps_schema s = schema_of(FAR_PS_SGD), b;
#define BAD_FIELD(field, value, want, text)                                                                            \
	b = s;                                                                                                         \
	b.field = value;                                                                                               \
	bad_schema(b, want, text)
	BAD_FIELD(dim, 0, FAR_INVALID, "dim is 0");
	BAD_FIELD(dim, 65537, FAR_INVALID, "dim is 65537");
	BAD_FIELD(stored, FAR_I8, FAR_INVALID, "stored is");
	BAD_FIELD(rule.kind, (enum far_ps_rule_kind)9, FAR_INVALID, "no rule has the number 9");
	BAD_FIELD(rule.rate, 0, FAR_INVALID, "rate");
	BAD_FIELD(init.kind, (enum far_ps_init_kind)9, FAR_INVALID, "init.kind is 9");
	BAD_FIELD(full, (enum far_ps_full)9, FAR_INVALID, "full is 9");
	BAD_FIELD(admit, 256, FAR_INVALID, "admit is 256");
	BAD_FIELD(workers, FAR_PS_WORKERS_MAX + 1, FAR_INVALID, "workers is 4097");
	BAD_FIELD(staleness, 1, FAR_INVALID, "staleness 1");
	BAD_FIELD(replicas, 2, FAR_UNSUPPORTED, "replicas is 2");
	BAD_FIELD(hedge_after_ns, 1, FAR_UNSUPPORTED, "hedge_after_ns");
	BAD_FIELD(dense_rows, (UINT64_C(1) << 32) + 1, FAR_INVALID, "dense_rows is 4294967297");
	s.rows_max = 5;
	BAD_FIELD(dense_rows, 5, FAR_INVALID, "without rows_max");
	s.rows_max = 0;
	BAD_FIELD(reserved[1], 1, FAR_INVALID, "reserved");
}

/* A table that exists: the first field that differs, with both values. */
static void other_schemas(void)
{
	struct far_ps_schema s = schema_of(FAR_PS_SGD), b;
	struct far_ps_table *t = table("same", &s), *dense_table;
#define OTHER(field, value, text)                                                                                      \
	b = s;                                                                                                         \
	b.field = value;                                                                                               \
	BAD(far_ps_table_create(ps, "same", &b, 0, &t, &err), FAR_INVALID, "exists with another schema: its " text)
	OTHER(stored, FAR_BF16, "stored is f32, not bf16");
	OTHER(dim, 5, "dim is 4, not 5");
	OTHER(rule, schema_of(FAR_PS_ADAM).rule, "rule.kind is sgd, not adam");
	OTHER(rule.rate, 0.5f, "rule.rate is 1, not 0.5");
	OTHER(rule.clip_norm, 2, "rule.clip_norm is 0, not 2");
	OTHER(init.kind, FAR_PS_INIT_NORMAL, "init.kind is constant, not normal");
	OTHER(init.seed, UINT64_MAX, "init.seed is 0, not 18446744073709551615");
	OTHER(full, FAR_PS_FULL_LFU, "full is refuse, not lfu");
	OTHER(rows_max, 9, "rows_max is 0, not 9");
	OTHER(admit, 255, "admit is 0, not 255");
	OTHER(ttl_ms, 7, "ttl_ms is 0, not 7");
	OTHER(workers, 3, "workers is 0, not 3");
	far_ps_table_free(t);
	s.dense_rows = 10;
	dense_table = table("same_dense", &s);
	s.dense_rows = 11;
	BAD(far_ps_table_create(ps, "same_dense", &s, 0, &t, &err), FAR_INVALID, "its dense_rows is 10, not 11");
	far_ps_table_free(dense_table);
}

static void not_finite(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	struct far_ps_table *t = table("calls", &schema);
	struct far_future *f;
	struct far_ps_stats stats;
	struct far_ps_push_opts push = {.wire = FAR_F16};
	keys[0] = 11, keys[1] = 12;
	/* Not finite: as it is, as a sum, in the type of the wire. */
	memset(grads, 0, sizeof grads);
	grads[DIM + 2] = NAN;
	BAD(far_ps_push(t, keys, 2, grads, NULL, NULL, &f, &err), FAR_INVALID, "element 2 of the gradient of key 12");
	BAD(far_ps_assign(t, keys, 2, grads, NULL, NULL, NULL, &f, &err), FAR_INVALID,
	    "element 2 of the row of key 12");
	keys[0] = 12;
	grads[1] = grads[DIM + 1] = 3e38f;
	grads[DIM + 2] = 0;
	BAD(far_ps_push(t, keys, 2, grads, NULL, NULL, &f, &err), FAR_INVALID, "element 1 of the gradient of key 12");
	grads[1] = 70000;
	BAD(far_ps_push(t, keys, 1, grads, &push, NULL, &f, &err), FAR_INVALID, "element 1 of the gradient of key 12");
	/* Among the rows of a request. */
	for (unsigned i = 0; i < MANY; i++)
		keys[i] = 100 + i;
	grads[1] = 0;
	grads[DIM + 1] = 0;
	grads[(MANY - 1) * DIM + 3] = INFINITY;
	BAD(far_ps_push(t, keys, MANY, grads, NULL, NULL, &f, &err), FAR_INVALID, "element 3 of the gradient of key");
	stats = stats_of(t);
	CHECK(stats.rows == 0 && stats.keys_pushed == 0);
	/* Of equal keys in an assignment the last position counts, and it alone is looked at. */
	keys[0] = keys[1] = 12;
	grads[0] = NAN;
	for (unsigned d = 0; d < DIM; d++)
		grads[DIM + d] = (float)d;
	DONE(far_ps_assign(t, keys, 2, grads, NULL, NULL, NULL, &f, &err), 2);
	DONE(far_ps_pull(t, keys, 2, NULL, rows, NULL, &f, &err), 2);
	CHECK(rows[2] == 2 && rows[DIM + 3] == 3);
	CHECK(!strcmp(far_ps_status_name(FAR_PS_LATE), "LATE") &&
	      !strcmp(far_ps_status_name((enum far_ps_status)9), "?"));
	far_ps_table_free(t);
}

/* An assignment that the table cannot hold, or whose state would make the next push NaN. */
static void not_to_be_held(void)
{
	static const struct {
		enum far_ps_rule_kind rule;
		unsigned from; /* element of the state whose root is taken */
		const char *table, *text;
	} rules[] = {{FAR_PS_ADAGRAD, DIM - 1, "roots0", "adagrad takes its root"},
		     {FAR_PS_ROWWISE_ADAGRAD, 0, "roots1", "rowwise_adagrad takes"},
		     {FAR_PS_RMSPROP, 0, "roots2", "rmsprop takes"},
		     {FAR_PS_FTRL, DIM, "roots3", "ftrl takes"},
		     {FAR_PS_ADAM, 2 * DIM + 1, "roots4", "adam takes"}};
	static float state[2 * DIM + 2];
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	schema.stored = FAR_F16;
	struct far_ps_table *t = table("halves", &schema);
	struct far_future *f;
	keys[0] = keys[1] = 12;
	memset(grads, 0, sizeof grads);
	grads[DIM + 2] = 70000;
	BAD(far_ps_assign(t, keys, 2, grads, NULL, NULL, NULL, &f, &err), FAR_INVALID,
	    "element 2 of the row of key 12 is 70000: more than the f16 of table \"halves\" can hold");
	CHECK(stats_of(t).rows == 0);
	grads[DIM + 2] = 65504;
	grads[2] = 70000; /* of the earlier position, which does not count */
	DONE(far_ps_assign(t, keys, 2, grads, NULL, NULL, NULL, &f, &err), 2);
	far_ps_table_free(t);
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		schema = schema_of(rules[i].rule);
		t = table(rules[i].table, &schema);
		memset(grads, 0, sizeof grads);
		memset(state, 0, sizeof state);
		state[rules[i].from] = -1;
		BAD(far_ps_assign(t, keys, 1, grads, state, NULL, NULL, &f, &err), FAR_INVALID, rules[i].text);
		state[rules[i].from] = 1;
		if (rules[i].from >= DIM)
			state[0] = -1; /* a mean, or FTRL's z */
		DONE(far_ps_assign(t, keys, 1, grads, state, NULL, NULL, &f, &err), 1);
		far_ps_table_free(t);
	}
}

static uint64_t id_of(const char *name)
{
	uint64_t id = UINT64_C(0xcbf29ce484222325);
	for (; *name; name++)
		id = (id ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return id;
}

/* The head of a request. */
struct head {
	char magic[4];
	uint8_t kind, wire, miss, flags;
	uint64_t service, table, epoch, client, token, clock;
	uint32_t n, rate, worker, bags;
};

static enum far_status send_head(struct head h, size_t len)
{
	char bytes[400] = {0}, reply[4096];
	memcpy(bytes, &h, sizeof h);
	return far_msg_call(agent, (struct far_to){0, 1}, FAR_PS_MESSAGE, bytes, len, NULL, reply, sizeof reply, NULL,
			    &err);
}

static enum far_status send_barrier(struct head h, const char *name)
{
	char bytes[sizeof h + FAR_PS_NAME_MAX] = {0}, reply[64];
	memcpy(bytes, &h, sizeof h);
	strcpy(bytes + sizeof h, name);
	return far_msg_call(agent, (struct far_to){0, 1}, FAR_PS_MESSAGE, bytes, sizeof bytes, NULL, reply,
			    sizeof reply, NULL, &err);
}

/* What a peer can send. */
static void bad_messages(void)
{
	struct head good = {.magic = "FPS1", .service = id_of("ads"), .table = id_of("sums"), .epoch = 1, .token = 1},
		    h;
	CHECK_STATUS(send_head(good, 3), FAR_PROTOCOL, &err);
	h = good;
	h.service = 1;
	CHECK_STATUS(send_head(h, 72), FAR_NO_FUNCTION, &err);
	h = good;
	h.kind = 3; /* statistics */
	CHECK_STATUS(send_head(h, 72), FAR_OK, &err);
	h.table = 5;
	CHECK_STATUS(send_head(h, 72), FAR_GONE, &err);
	h = good;
	h.kind = 15; /* a server wakes its own shards */
	CHECK_STATUS(send_head(h, 72), FAR_DENIED, &err);
	for (unsigned kind = 0; kind < 256; kind++)
		for (unsigned field = 0; field < 6; field++) {
			h = good;
			h.kind = (uint8_t)kind;
			h.wire = field == 0 ? 4 : 0;
			h.miss = field == 1 ? 3 : 0;
			h.flags = field == 2 ? 2 : 0;
			h.clock = kind == 18 ? UINT64_MAX : 0; /* the time of a barrier */
			h.n = field == 3 ? UINT32_MAX : field == 4 ? 8193 : field == 5 ? 9 : 0;
			enum far_status got = send_head(h, 73);
			bool values = kind == 21 || kind == 22; /* this table has rows */
			CHECK(got == FAR_PROTOCOL || (got == FAR_DENIED && kind == 15) ||
			      (got == FAR_INVALID && values));
		}
	/* Zero keys in the right length: a number is needed for a change. */
	h = good;
	h.kind = 13;
	CHECK_STATUS(send_head(h, 72), FAR_OK, &err);
	h.token = 0;
	CHECK_STATUS(send_head(h, 72), FAR_PROTOCOL, &err);
	/* Bags: no keys, and an offset that must be 0. */
	h = good;
	h.kind = 16;
	CHECK_STATUS(send_head(h, 76), FAR_OK, &err);
	h.bags = 1;
	CHECK_STATUS(send_head(h, 80), FAR_PROTOCOL, &err);
	/* A barrier: by its name, at the first shard of the view alone; the member in range. */
	h = good;
	h.kind = 18;
	h.clock = UINT64_MAX;
	h.bags = 1;
	CHECK_STATUS(send_barrier(h, "other"), FAR_PROTOCOL, &err);
	BAD(send_barrier(h, "sums"), FAR_INVALID, "shard 1 does not have the barriers");
	h.worker = 1;
	BAD(send_barrier(h, "sums"), FAR_INVALID, "member 1 of 1");
	/* Key 0 is of the first partition, and this is the second shard. */
	h = good;
	h.kind = 9;
	h.n = 1;
	CHECK_STATUS(send_head(h, 80), FAR_INVALID, &err);
}

void bad_requests(void)
{
	bad_schemas();
	other_schemas();
	bad_input();
	not_finite();
	not_to_be_held();
	bad_messages();
}

void bad_serves(struct far_ps_server *server)
{
	static const char *const twice[] = {"worker0", "worker1", "worker0"};
	static const char *const without[] = {"worker2"};
	static const char *const unknown[] = {"nobody"};
	struct far_ps_server *out;
	struct far_ps_serve_opts o = {.servers = twice, .servers_n = 3, .message = 7};
	BAD(far_ps_serve(agent, "x", &o, &out, &err), FAR_INVALID, "twice");
	o = (struct far_ps_serve_opts){.servers = without, .servers_n = 1, .message = 7};
	BAD(far_ps_serve(agent, "x", &o, &out, &err), FAR_INVALID, "lacks this worker");
	o.servers = unknown;
	CHECK_STATUS(far_ps_serve(agent, "x", &o, &out, &err), FAR_UNKNOWN_WORKER, &err);
	o.servers_n = 0;
	BAD(far_ps_serve(agent, "x", &o, &out, &err), FAR_INVALID, "servers_n");
	BAD(far_ps_serve(agent, "", NULL, &out, &err), FAR_INVALID, "name");
	CHECK_STATUS(far_ps_serve(agent, "x", NULL, &out, &err), FAR_INVALID, &err); /* the id is in use */
	BAD(far_ps_server_view(server, servers, 2, 1, &err), FAR_INVALID, "epoch 1 is not later than 1");
	BAD(far_ps_server_view(server, NULL, 0, 2, &err), FAR_INVALID, "empty");
	BAD(far_ps_server_stop(NULL, &err), FAR_INVALID, "NULL");
	far_ps_server_free(NULL);
}
