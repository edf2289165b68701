/* SPDX-License-Identifier: BSD-3-Clause */
/** Tables of values of a parameter server: assigned, read, erased, bounded, scanned, saved and loaded; bad input. One
 * server of two shards, one client. Main thread of each process. */
#include "api_spawn.h"

#include <farcall/message.h>
#include <farcall/ps.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { KEYS = 3000, LONGEST = 20000, FEW = 200 };

static struct far_agent *agent;
static struct far_err err;
static struct far_ps *ps;
static _Atomic int *ended;

static uint64_t keys[2 * KEYS], offsets[2 * KEYS + 1];
static uint32_t lens[2 * KEYS];
static uint8_t status[2 * KEYS];
static char bytes[KEYS * 4000], out[(size_t)KEYS * LONGEST];

static int64_t done(enum far_status started, struct far_future *const *f)
{
	struct far_val v;
	CHECK_STATUS(started, FAR_OK, &err);
	CHECK_STATUS(far_future_wait(*f, 0, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_INT);
	far_future_free(*f);
	return v.u.i;
}

#define DONE(call, want) CHECK(done(call, &f) == (int64_t)(want))
#define BAD(call, want, text)                                                                                          \
	do {                                                                                                           \
		CHECK_STATUS(call, want, &err);                                                                        \
		CHECK_TEXT(&err, text);                                                                                \
	} while (0)

static struct far_ps_table *table(const char *name, const struct far_ps_schema *schema)
{
	struct far_ps_table *t;
	CHECK_STATUS(far_ps_table_create(ps, name, schema, 0, &t, &err), FAR_OK, &err);
	return t;
}

/* The value of a key: some are empty, some as long as they may be. Those of version 1 differ. */
static uint32_t length_of(uint64_t key, int version)
{
	return key % 500 == 0 ? LONGEST : (uint32_t)((key * 7919 + (uint64_t)version * 13) % 400);
}

static char byte_of(uint64_t key, uint32_t i, int version)
{
	return (char)(key * 31 + i * 7 + (uint64_t)version);
}

static void assign(struct far_ps_table *t, uint64_t first, size_t n, int version, const struct far_ps_push_opts *opts)
{
	struct far_future *f;
	offsets[0] = 0;
	for (size_t k = 0; k < n; k++) {
		uint32_t len = length_of(keys[first + k], version);
		offsets[k + 1] = offsets[k] + len;
		for (uint32_t i = 0; i < len; i++)
			bytes[offsets[k] + i] = byte_of(keys[first + k], i, version);
	}
	CHECK(offsets[n] <= sizeof bytes);
	DONE(far_ps_assign_values(t, keys + first, n, bytes, offsets, opts, status, &f, &err), n);
}

static void is_value(uint64_t key, const char *value, uint32_t len, int version)
{
	CHECK(len == length_of(key, version));
	for (uint32_t i = 0; i < len; i++)
		CHECK(value[i] == byte_of(key, i, version));
}

/* Keys [0, n). Those below `erased` have no value. */
static void check_pulls(struct far_ps_table *t, size_t n, size_t erased, int version)
{
	struct far_future *f;
	memset(out, 0x55, n * LONGEST);
	DONE(far_ps_pull_values(t, keys, n, NULL, out, LONGEST, lens, status, &f, &err), n);
	for (size_t k = 0; k < n; k++) {
		CHECK(status[k] == (k < erased ? FAR_PS_MISSING : FAR_PS_ROW));
		if (k < erased)
			CHECK(lens[k] == 0);
		else
			is_value(keys[k], out + k * LONGEST, lens[k], version);
		for (uint32_t i = lens[k]; i < LONGEST && i < lens[k] + 8; i++)
			CHECK(out[k * LONGEST + i] == 0x55);
	}
}

/* More requests than are in flight at once; each answer outlasts those behind it. */
static void many_at_once(struct far_ps_table *t)
{
	enum { PULLS = 300, EACH = 20, STRIDE = 400, FIRST = 100, RANGE = 2000 };
	static struct far_future *f[PULLS];
	struct far_val v;
	for (size_t i = 0; i < PULLS; i++)
		CHECK_STATUS(far_ps_pull_values(t, keys + FIRST + i * 7 % RANGE, EACH, NULL, out + i * EACH * STRIDE,
						STRIDE, lens + i * EACH, NULL, &f[i], &err),
			     FAR_OK, &err);
	for (size_t i = 0; i < PULLS; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == EACH);
		far_future_free(f[i]);
		for (size_t k = i * EACH; k < (i + 1) * EACH; k++) {
			uint64_t key = keys[FIRST + i * 7 % RANGE + k % EACH];
			if (key % 500)
				is_value(key, out + k * STRIDE, lens[k], 1);
		}
	}
}

static void reads_and_writes(struct far_ps_table *t)
{
	struct far_future *f;
	assign(t, 0, KEYS, 0, NULL);
	for (size_t k = 0; k < KEYS; k++)
		CHECK(status[k] == FAR_PS_NEW);
	check_pulls(t, KEYS, 0, 0);
	assign(t, 0, KEYS, 1, NULL);
	CHECK(status[0] == FAR_PS_ROW && status[KEYS - 1] == FAR_PS_ROW);
	check_pulls(t, KEYS, 0, 1);
	/* Keys that repeat: the last position counts, and each position gets the value. */
	const uint64_t same[4] = {77, 78, 77, 77}, at[5] = {0, 3, 6, 9, 11};
	DONE(far_ps_assign_values(t, same, 4, "onetwosixen", at, NULL, status, &f, &err), 4);
	char small[4][3];
	DONE(far_ps_pull_values(t, same, 4, NULL, small, 3, lens, NULL, &f, &err), 4);
	CHECK(lens[0] == 2 && lens[3] == 2 && lens[1] == 3 && !memcmp(small[0], "en", 2) &&
	      !memcmp(small[3], "en", 2) && !memcmp(small[1], "two", 3));
	/* Values that are longer than the stride; lengths alone. */
	memset(small, 'x', sizeof small);
	DONE(far_ps_pull_values(t, same, 4, NULL, small, 1, lens, NULL, &f, &err), 4);
	CHECK(lens[1] == 3 && !memcmp(small, "eteexx", 6));
	DONE(far_ps_pull_values(t, same, 4, NULL, NULL, 0, lens, NULL, &f, &err), 4);
	CHECK(lens[0] == 2 && lens[1] == 3);
	DONE(far_ps_pull_values(t, NULL, 0, NULL, NULL, 0, NULL, NULL, &f, &err), 0);
	assign(t, 77, 2, 1, NULL);
}

static void erasure(struct far_ps_table *t)
{
	struct far_future *f;
	DONE(far_ps_erase(t, keys, FEW, NULL, status, &f, &err), FEW);
	CHECK(status[0] == FAR_PS_ROW && status[FEW - 1] == FAR_PS_ROW);
	DONE(far_ps_exists(t, keys, KEYS, NULL, status, &f, &err), KEYS);
	for (size_t k = 0; k < KEYS; k++)
		CHECK(status[k] == (k < FEW ? FAR_PS_MISSING : FAR_PS_ROW));
	check_pulls(t, KEYS, FEW, 1);
}

/* A repeated assignment is not made again. */
static void tokens(struct far_ps_table *t)
{
	uint64_t token = 0, again;
	struct far_ps_push_opts opts = {.token = &token};
	assign(t, 0, FEW, 0, &opts);
	CHECK(token != 0);
	assign(t, 0, FEW, 1, NULL);
	again = token;
	opts.token = &again;
	assign(t, 0, FEW, 0, &opts);
	CHECK(status[0] == FAR_PS_ROW);
	check_pulls(t, KEYS, 0, 1);
}

static void scans(struct far_ps_table *t)
{
	struct far_ps_rows rows;
	size_t n = 0;
	for (unsigned partition = 0; partition < FAR_PS_PARTITIONS;) {
		CHECK_STATUS(far_ps_scan(t, &partition, 0, &rows, &err), FAR_OK, &err);
		for (size_t i = 0; i < rows.n; i++)
			is_value(rows.keys[i], rows.values + rows.offsets[i],
				 (uint32_t)(rows.offsets[i + 1] - rows.offsets[i]), 1);
		n += rows.n;
		far_ps_rows_free(&rows);
	}
	CHECK(n == KEYS);
}

static void saves(struct far_ps_table **t, const struct far_ps_schema *schema)
{
	char dir[64], command[128];
	const char *tmp = getenv("TMPDIR");
	struct far_ps_saved saved, loaded;
	snprintf(dir, sizeof dir, "%.40s/api-ps-values-XXXXXX", tmp ? tmp : "/tmp");
	CHECK(mkdtemp(dir) != NULL);
	CHECK_STATUS(far_ps_save(ps, dir, NULL, &saved, &err), FAR_OK, &err);
	CHECK(saved.rows == KEYS && saved.tables == 1);
	far_ps_table_free(*t);
	CHECK_STATUS(far_ps_table_drop(ps, "values", 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_ps_load(ps, dir, NULL, &loaded, &err), FAR_OK, &err);
	CHECK(loaded.rows == KEYS && loaded.refused == 0);
	*t = table("values", schema);
	check_pulls(*t, KEYS, 0, 1);
	snprintf(command, sizeof command, "rm -r %s", dir);
	CHECK(system(command) == 0);
}

static size_t count(size_t n, enum far_ps_status of)
{
	size_t found = 0;
	for (size_t i = 0; i < n; i++)
		found += status[i] == of;
	return found;
}

static void bounds(void)
{
	struct far_ps_schema schema = {.value_max = LONGEST, .rows_max = FEW};
	struct far_future *f;
	struct far_ps_table *refuses = table("refuses", &schema);
	assign(refuses, 0, KEYS, 0, NULL);
	size_t made = count(KEYS, FAR_PS_NEW);
	CHECK(made == FEW && count(KEYS, FAR_PS_REFUSED) == KEYS - FEW);
	DONE(far_ps_exists(refuses, keys, KEYS, NULL, status, &f, &err), KEYS);
	CHECK(count(KEYS, FAR_PS_ROW) == FEW);
	far_ps_table_free(refuses);
	schema.full = FAR_PS_FULL_LRU;
	struct far_ps_table *evicts = table("evicts", &schema);
	assign(evicts, 0, KEYS, 0, NULL);
	CHECK(count(KEYS, FAR_PS_REFUSED) == 0);
	DONE(far_ps_exists(evicts, keys, KEYS, NULL, status, &f, &err), KEYS);
	CHECK(count(KEYS, FAR_PS_ROW) == FEW);
	far_ps_table_free(evicts);
	/* A tenant's bytes: each new value counts as one of the longest. */
	schema = (struct far_ps_schema){.value_max = LONGEST};
	struct far_ps_table *bounded = table("few/values", &schema);
	for (size_t k = 0; k < KEYS; k++)
		DONE(far_ps_assign_values(bounded, keys + k, 1, "abc", (uint64_t[]){0, 3}, NULL, status + k, &f, &err),
		     1);
	made = count(KEYS, FAR_PS_NEW);
	CHECK(made > 0 && made < KEYS && count(KEYS, FAR_PS_REFUSED) == KEYS - made);
	far_ps_table_free(bounded);
}

static void bad_schemas(void)
{
	struct far_ps_schema schema = {.value_max = FAR_PS_VALUE_MAX + 1};
	struct far_ps_table *t;
	BAD(far_ps_table_create(ps, "bad", &schema, 0, &t, &err), FAR_INVALID, "value_max is 1048577");
	schema = (struct far_ps_schema){.value_max = 10, .dim = 1};
	BAD(far_ps_table_create(ps, "bad", &schema, 0, &t, &err), FAR_INVALID, "without dim");
	schema = (struct far_ps_schema){.value_max = 10, .dense_rows = 1};
	BAD(far_ps_table_create(ps, "bad", &schema, 0, &t, &err), FAR_INVALID, "dense_rows");
	schema = (struct far_ps_schema){.value_max = 10, .admit = 2};
	BAD(far_ps_table_create(ps, "bad", &schema, 0, &t, &err), FAR_INVALID, "admit");
	schema = (struct far_ps_schema){.value_max = 10};
	far_ps_rule_defaults(&schema.rule, FAR_PS_ADAM);
	BAD(far_ps_table_create(ps, "bad", &schema, 0, &t, &err), FAR_INVALID, "rule");
}

static void bad_input(struct far_ps_table *t)
{
	struct far_ps_schema rows_schema = {.dim = 1};
	far_ps_rule_defaults(&rows_schema.rule, FAR_PS_SGD);
	struct far_ps_table *of_rows = table("rows", &rows_schema);
	struct far_future *f;
	float row = 1;
	const uint64_t at[3] = {0, 1, LONGEST + 2}, down[3] = {1, 0, 0};
	const char of_values[] = "has values of bytes";
	BAD(far_ps_pull_values(of_rows, keys, 1, NULL, out, 1, lens, NULL, &f, &err), FAR_INVALID, "rows, not values");
	BAD(far_ps_assign_values(of_rows, keys, 1, bytes, at, NULL, NULL, &f, &err), FAR_INVALID, "rows, not values");
	BAD(far_ps_pull(t, keys, 1, NULL, &row, NULL, &f, &err), FAR_INVALID, of_values);
	BAD(far_ps_push(t, keys, 1, &row, NULL, NULL, &f, &err), FAR_INVALID, of_values);
	BAD(far_ps_push_pull(t, keys, 1, &row, NULL, &row, NULL, &f, &err), FAR_INVALID, of_values);
	BAD(far_ps_assign(t, keys, 1, &row, NULL, NULL, NULL, &f, &err), FAR_INVALID, of_values);
	BAD(far_ps_call(t, "f", keys, 1, NULL, NULL, NULL, &f, &err), FAR_INVALID, of_values);
	BAD(far_ps_pull_bags(t, keys, &(struct far_ps_bags){.offsets = (uint64_t[]){0, 1}, .n = 1}, NULL, &row, NULL,
			     &f, &err),
	    FAR_INVALID, of_values);
	BAD(far_ps_pull_range(t, 0, 1, NULL, &row, &f, &err), FAR_INVALID, "");
	BAD(far_ps_pull_values(t, NULL, 1, NULL, out, 1, lens, NULL, &f, &err), FAR_INVALID, "keys is NULL");
	BAD(far_ps_pull_values(t, keys, 1, NULL, NULL, 1, lens, NULL, &f, &err), FAR_INVALID, "values is NULL");
	BAD(far_ps_pull_values(t, keys, 1, NULL, out, 1, NULL, NULL, &f, &err), FAR_INVALID, "lens is NULL");
	BAD(far_ps_pull_values(t, keys, 1, &(struct far_ps_pull_opts){.clock = 1}, out, 1, lens, NULL, &f, &err),
	    FAR_INVALID, "no clock");
	BAD(far_ps_assign_values(t, keys, 1, bytes, NULL, NULL, NULL, &f, &err), FAR_INVALID, "offsets is NULL");
	BAD(far_ps_assign_values(t, keys, 1, NULL, at, NULL, NULL, &f, &err), FAR_INVALID, "bytes is NULL");
	BAD(far_ps_assign_values(t, keys, 2, bytes, at, NULL, NULL, &f, &err), FAR_INVALID, "the value of key 1 ");
	BAD(far_ps_assign_values(t, keys, 2, bytes, down, NULL, NULL, &f, &err), FAR_INVALID, "the value of key 0 ");
	far_ps_table_free(of_rows);
	/* A handle of a table that was dropped. */
	CHECK_STATUS(far_ps_table_drop(ps, "values", 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_ps_pull_values(t, keys, 1, NULL, out, 1, lens, NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_GONE, &err);
	far_future_free(f);
}

/* The deadline comes before the answer: the length is 0, the status that of a key that was not answered. */
static void late(struct far_ps_table *t)
{
	struct far_future *f;
	struct far_ps_pull_opts opts = {.timeout_ns = 1, .partial = true};
	memset(status, 0xff, KEYS);
	memset(lens, 0xff, sizeof lens);
	int64_t n = done(far_ps_pull_values(t, keys, KEYS, &opts, out, LONGEST, lens, status, &f, &err), &f);
	for (size_t k = 0; k < KEYS; k++) {
		CHECK(status[k] == FAR_PS_ROW || status[k] == FAR_PS_LATE);
		n -= status[k] == FAR_PS_ROW;
		if (status[k] == FAR_PS_LATE)
			CHECK(lens[k] == 0);
		else
			is_value(keys[k], out + k * LONGEST, lens[k], 1);
	}
	CHECK(n == 0);
}

static void expiry(void)
{
	struct far_ps_schema schema = {.value_max = 100, .ttl_ms = 64};
	struct far_ps_table *t = table("expires", &schema);
	struct far_future *f;
	DONE(far_ps_assign_values(t, keys, 1, "abc", (uint64_t[]){0, 3}, NULL, status, &f, &err), 1);
	do
		DONE(far_ps_pull_values(t, keys, 1, NULL, out, 3, lens, status, &f, &err), 1);
	while (status[0] == FAR_PS_ROW && usleep(1000) == 0);
	CHECK(status[0] == FAR_PS_MISSING && lens[0] == 0);
	far_ps_table_free(t);
	CHECK_STATUS(far_ps_table_drop(ps, "expires", 0, &err), FAR_OK, &err);
}

static void serve(void)
{
	struct far_ps_server *server;
	struct far_ps_tenant tenant = {.prefix = "few/", .bytes_max = 5 * LONGEST};
	struct far_ps_serve_opts opts = {.tenants = &tenant, .tenants_n = 1};
	CHECK_STATUS(far_ps_serve(agent, "rows", &opts, &server, &err), FAR_OK, &err);
	while (!atomic_load(ended))
		usleep(1000);
	CHECK_STATUS(far_ps_server_stop(server, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	far_ps_server_free(server);
}

static int together(int rank)
{
	agent = check_join(&(struct far_opts){.shards = rank == 0 ? 2 : 1});
	if (rank == 0) {
		serve();
		return 0;
	}
	for (uint64_t i = 0; i < 2 * KEYS; i++)
		keys[i] = i;
	CHECK_STATUS(far_ps_open(agent, "rows", NULL, &ps, &err), FAR_OK, &err);
	struct far_ps_schema schema = {.value_max = LONGEST};
	struct far_ps_table *t = table("values", &schema);
	CHECK(far_ps_table_schema(t)->value_max == LONGEST && far_ps_table_state(t) == 0);
	reads_and_writes(t);
	many_at_once(t);
	erasure(t);
	tokens(t);
	scans(t);
	saves(&t, &schema);
	late(t);
	expiry();
	bounds();
	bad_schemas();
	bad_input(t);
	far_ps_table_free(t);
	far_ps_close(ps);
	atomic_store(ended, 1);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

int main(void)
{
	ended = mmap(NULL, sizeof *ended, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(ended != MAP_FAILED);
	struct spawned s = spawn(2, together);
	return spawn_wait(&s, -1);
}
