/* SPDX-License-Identifier: BSD-3-Clause */
/** Bad input of each public call of a client of a parameter server, as one table: the call, its error, and what its
 * text names. */
#include "api_ps.h"

#include <math.h>

static struct far_ps_table *t, *dense_table, *clocked, *gone;
static struct far_future *f;
static char long_name[FAR_PS_NAME_MAX + 1];
static char names[FAR_PS_TABLES_MAX][FAR_PS_NAME_MAX];
static struct far_ps_hot_key hot_keys[4];
static struct far_ps_rows scanned;
static struct far_ps_stats stats;
static uint64_t bad_offsets[] = {0, 2, 1}, late_offsets[] = {1, 2}, offsets[] = {0, 2};
static float bad_weights[] = {1, INFINITY};
static double numbers[16];
static size_t count;
static unsigned partition;

#define PULL(...)                                                                                                      \
	&(struct far_ps_pull_opts)                                                                                     \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}
#define PUSH(...)                                                                                                      \
	&(struct far_ps_push_opts)                                                                                     \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}
#define CALL(...)                                                                                                      \
	&(struct far_ps_call_opts)                                                                                     \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}
#define OPEN(...)                                                                                                      \
	&(struct far_ps_open_opts)                                                                                     \
	{                                                                                                              \
		.timeout_ns = FAR_SEC, __VA_ARGS__                                                                     \
	}
#define BAGS(...)                                                                                                      \
	&(struct far_ps_bags)                                                                                          \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}

/* Errors of the call itself: its future is not made. */
#define NOW(X)                                                                                                         \
	X(far_ps_open(NULL, "ads", NULL, &other, &err), FAR_INVALID, "agent")                                          \
	X(far_ps_open(agent, NULL, NULL, &other, &err), FAR_INVALID, "name of 1 to 63 bytes")                          \
	X(far_ps_open(agent, "", NULL, &other, &err), FAR_INVALID, "name of 1 to 63 bytes")                            \
	X(far_ps_open(agent, long_name, NULL, &other, &err), FAR_INVALID, "name of 1 to 63 bytes")                     \
	X(far_ps_open(agent, "ads", NULL, NULL, &err), FAR_INVALID, "place for the service")                           \
	X(far_ps_open(agent, "other", OPEN(0), &other, &err), FAR_TIMEOUT, "no member of the group serves \"other\"")  \
	X(far_ps_open(agent, "ads", OPEN(.message = 5), &other, &err), FAR_TIMEOUT, "by message 5")                    \
	X(far_ps_open(agent, "ads", OPEN(.reserved = {1}), &other, &err), FAR_INVALID, "reserved")                     \
	X(far_ps_open(agent, "ads", OPEN(.next = 7), &other, &err), FAR_INVALID, "next is 7 without a client")         \
	X(far_ps_open(agent, "ads", OPEN(.epoch = 9), &other, &err), FAR_GONE, "the view has epoch 1, not 9")          \
	X(far_ps_table_create(NULL, "t", &schema, 0, &made, &err), FAR_INVALID, "service")                             \
	X(far_ps_table_create(ps, NULL, &schema, 0, &made, &err), FAR_INVALID, "is NULL")                              \
	X(far_ps_table_create(ps, "", &schema, 0, &made, &err), FAR_INVALID, "1 to 63 bytes; \"\" has 0")              \
	X(far_ps_table_create(ps, long_name, &schema, 0, &made, &err), FAR_INVALID, "has 64")                          \
	X(far_ps_table_create(ps, "t", NULL, 0, &made, &err), FAR_INVALID, "schema")                                   \
	X(far_ps_table_create(ps, "t", &schema, 0, NULL, &err), FAR_INVALID, "the table is NULL")                      \
	X(far_ps_table_create(ps, "input", &wide, 0, &made, &err), FAR_INVALID,                                        \
	  "table \"input\" exists with another schema: its dim is 4, not 5")                                           \
	X(far_ps_table_open(ps, "none", 0, &made, &err), FAR_GONE, "no such table")                                    \
	X(far_ps_table_open(ps, long_name, 0, &made, &err), FAR_INVALID, "has 64")                                     \
	X(far_ps_table_open(NULL, "none", 0, &made, &err), FAR_INVALID, "service")                                     \
	X(far_ps_table_drop(ps, "none", 0, &err), FAR_GONE, "none")                                                    \
	X(far_ps_table_drop(ps, long_name, 0, &err), FAR_INVALID, "name")                                              \
	X(far_ps_table_drop(NULL, "none", 0, &err), FAR_INVALID, "service")                                            \
	X(far_ps_tables(NULL, 0, names, &count, &err), FAR_INVALID, "service")                                         \
	X(far_ps_tables(ps, 0, NULL, &count, &err), FAR_INVALID, "place for names")                                    \
	X(far_ps_tables(ps, 0, names, NULL, &err), FAR_INVALID, "NULL")                                                \
	X(far_ps_hot(NULL, 0, hot_keys, &count, &err), FAR_INVALID, "table")                                           \
	X(far_ps_hot(t, 0, NULL, &count, &err), FAR_INVALID, "NULL")                                                   \
	X(far_ps_hot(t, 0, hot_keys, NULL, &err), FAR_INVALID, "NULL")                                                 \
	X(far_ps_hot(gone, 0, hot_keys, &count, &err), FAR_GONE, "table \"gone\": service \"ads\"")                    \
	X(far_ps_scan(NULL, &partition, 0, &scanned, &err), FAR_INVALID, "table")                                      \
	X(far_ps_scan(t, NULL, 0, &scanned, &err), FAR_INVALID, "NULL")                                                \
	X(far_ps_scan(t, &partition, 0, NULL, &err), FAR_INVALID, "NULL")                                              \
	X(far_ps_scan(t, (partition = FAR_PS_PARTITIONS, &partition), 0, &scanned, &err), FAR_INVALID, "4096")         \
	X(far_ps_scan(gone, (partition = 0, &partition), 0, &scanned, &err), FAR_GONE,                                 \
	  "table \"gone\": service \"ads\"")                                                                           \
	X(far_ps_pull(NULL, keys, 1, NULL, rows, status, &f, &err), FAR_INVALID, "the table is NULL")                  \
	X(far_ps_pull(t, NULL, 1, NULL, rows, status, &f, &err), FAR_INVALID, "keys is NULL, and n is 1")              \
	X(far_ps_pull(t, keys, 1, NULL, NULL, status, &f, &err), FAR_INVALID, "rows is NULL")                          \
	X(far_ps_pull(t, keys, 1, NULL, rows, status, NULL, &err), FAR_INVALID, "place for the future")                \
	X(far_ps_pull(t, keys, FAR_PS_KEYS_MAX + 1, NULL, rows, status, &f, &err), FAR_INVALID, "67108865 keys")       \
	X(far_ps_pull(t, keys, 1, PULL(.wire = FAR_I64), rows, status, &f, &err), FAR_INVALID, "wire is dtype")        \
	X(far_ps_pull(t, keys, 1, PULL(.miss = (enum far_ps_miss)3), rows, status, &f, &err), FAR_INVALID,             \
	  "miss is 3")                                                                                                 \
	X(far_ps_pull(t, keys, 1, PULL(.clock = 1), rows, status, &f, &err), FAR_INVALID,                              \
	  "table \"input\" has no clock")                                                                              \
	X(far_ps_pull(t, keys, 1, PULL(.reserved = {0, 0, 0, 1}), rows, status, &f, &err), FAR_INVALID, "reserved")    \
	X(far_ps_pull(dense_table, keys, 1, NULL, rows, status, &f, &err), FAR_INVALID, "key 11")                      \
	X(far_ps_pull_range(NULL, 0, 1, NULL, rows, &f, &err), FAR_INVALID, "the table is NULL")                       \
	X(far_ps_pull_range(t, 0, 1, NULL, rows, &f, &err), FAR_INVALID, "has 0 dense rows")                           \
	X(far_ps_pull_range(dense_table, 8, 3, NULL, rows, &f, &err), FAR_INVALID, "3 rows from 8 on")                 \
	X(far_ps_pull_range(dense_table, UINT64_MAX, 1, NULL, rows, &f, &err), FAR_INVALID, "has 10 dense rows")       \
	X(far_ps_pull_range(dense_table, 0, 1, NULL, NULL, &f, &err), FAR_INVALID, "rows is NULL")                     \
	X(far_ps_pull_range(dense_table, 0, 1, PULL(.partial = true), rows, &f, &err), FAR_INVALID, "partial")         \
	X(far_ps_push_range(t, 0, 1, grads, NULL, &f, &err), FAR_INVALID, "has 0 dense rows")                          \
	X(far_ps_push_range(dense_table, 10, 1, grads, NULL, &f, &err), FAR_INVALID, "1 rows from 10 on")              \
	X(far_ps_push_range(dense_table, 0, 1, NULL, NULL, &f, &err), FAR_INVALID, "NULL")                             \
	X(far_ps_push_range(dense_table, 0, 1, grads, PUSH(.partial = true), &f, &err), FAR_INVALID, "partial")        \
	X(far_ps_pull_bags(t, keys, NULL, NULL, rows, status, &f, &err), FAR_INVALID, "bags")                          \
	X(far_ps_pull_bags(t, keys, BAGS(NULL, 1), NULL, rows, status, &f, &err), FAR_INVALID, "offsets are NULL")     \
	X(far_ps_pull_bags(t, keys, BAGS(late_offsets, 1), NULL, rows, status, &f, &err), FAR_INVALID,                 \
	  "offset 0 is 1")                                                                                             \
	X(far_ps_pull_bags(t, keys, BAGS(bad_offsets, 2), NULL, rows, status, &f, &err), FAR_INVALID,                  \
	  "offset 2 is 1, less than the one before, 2")                                                                \
	X(far_ps_pull_bags(t, keys, BAGS(offsets, 1, bad_weights), NULL, rows, status, &f, &err), FAR_INVALID,         \
	  "weight 1 is not finite")                                                                                    \
	X(far_ps_pull_bags(t, keys, BAGS(offsets, 1, NULL, (enum far_ps_pool)2), NULL, rows, status, &f, &err),        \
	  FAR_INVALID, "pool is 2")                                                                                    \
	X(far_ps_pull_bags(t, NULL, BAGS(offsets, 1), NULL, rows, status, &f, &err), FAR_INVALID, "keys is NULL")      \
	X(far_ps_pull_bags(NULL, keys, BAGS(offsets, 1), NULL, rows, status, &f, &err), FAR_INVALID, "table is NULL")  \
	X(far_ps_exists(NULL, keys, 1, NULL, status, &f, &err), FAR_INVALID, "the table is NULL")                      \
	X(far_ps_exists(t, NULL, 1, NULL, status, &f, &err), FAR_INVALID, "keys is NULL")                              \
	X(far_ps_exists(t, keys, 1, PULL(.clock = 1), status, &f, &err), FAR_INVALID, "has no clock")                  \
	X(far_ps_push(NULL, keys, 1, grads, NULL, status, &f, &err), FAR_INVALID, "the table is NULL")                 \
	X(far_ps_push(t, NULL, 1, grads, NULL, status, &f, &err), FAR_INVALID, "keys is NULL")                         \
	X(far_ps_push(t, keys, 1, NULL, NULL, status, &f, &err), FAR_INVALID, "gradients")                             \
	X(far_ps_push(t, keys, 1, grads, NULL, status, NULL, &err), FAR_INVALID, "future")                             \
	X(far_ps_push(t, keys, FAR_PS_KEYS_MAX + 1, grads, NULL, status, &f, &err), FAR_INVALID, "67108865 keys")      \
	X(far_ps_push(t, keys, 1, grads, PUSH(.rate = -1), status, &f, &err), FAR_INVALID, "rate is -1")               \
	X(far_ps_push(t, keys, 1, grads, PUSH(.rate = NAN), status, &f, &err), FAR_INVALID, "rate is")                 \
	X(far_ps_push(t, keys, 1, grads, PUSH(.wire = FAR_BOOL), status, &f, &err), FAR_INVALID, "wire is dtype")      \
	X(far_ps_push(t, keys, 1, grads, PUSH(.reserved = {1}), status, &f, &err), FAR_INVALID, "reserved")            \
	X(far_ps_push(t, keys, 1, grads, PUSH(.token = &(uint64_t){1000000}), status, &f, &err), FAR_INVALID,          \
	  "token 1000000")                                                                                             \
	X(far_ps_push_pull(t, keys, 1, grads, NULL, NULL, status, &f, &err), FAR_INVALID, "rows is NULL")              \
	X(far_ps_push_pull(t, keys, 1, NULL, NULL, rows, status, &f, &err), FAR_INVALID, "gradients")                  \
	X(far_ps_assign(t, keys, 1, NULL, NULL, NULL, status, &f, &err), FAR_INVALID, "rows are NULL")                 \
	X(far_ps_assign(t, keys, 1, rows, NULL, PUSH(.wire = FAR_BOOL), status, &f, &err), FAR_INVALID, "wire")        \
	X(far_ps_erase(NULL, keys, 1, NULL, status, &f, &err), FAR_INVALID, "the table is NULL")                       \
	X(far_ps_erase(t, NULL, 1, NULL, status, &f, &err), FAR_INVALID, "keys is NULL")                               \
	X(far_ps_call(NULL, "f", keys, 1, NULL, NULL, status, &f, &err), FAR_INVALID, "the table is NULL")             \
	X(far_ps_call(t, "f", NULL, 1, NULL, NULL, status, &f, &err), FAR_INVALID, "keys is NULL")                     \
	X(far_ps_call(t, NULL, keys, 1, NULL, NULL, status, &f, &err), FAR_INVALID, "1 to 63 bytes")                   \
	X(far_ps_call(t, "", keys, 1, NULL, NULL, status, &f, &err), FAR_INVALID, "1 to 63 bytes")                     \
	X(far_ps_call(t, long_name, keys, 1, NULL, NULL, status, &f, &err), FAR_INVALID, "1 to 63 bytes")              \
	X(far_ps_call(t, "f", keys, 1, NULL, NULL, status, NULL, &err), FAR_INVALID, "future")                         \
	X(far_ps_call(t, "f", keys, 1, CALL(.arg_len = 1), NULL, status, &f, &err), FAR_INVALID,                       \
	  "function \"f\": arg is NULL")                                                                               \
	X(far_ps_call(t, "f", keys, 1, CALL(.arg = rows, .arg_len = 16385), NULL, status, &f, &err), FAR_INVALID,      \
	  "function \"f\": arg has 16385 bytes")                                                                       \
	X(far_ps_call(t, "f", keys, 1, CALL(.width = 4097), numbers, status, &f, &err), FAR_INVALID, "width is 4097")  \
	X(far_ps_call(t, "f", keys, 1, CALL(.width = 1), NULL, status, &f, &err), FAR_INVALID, "values is NULL")       \
	X(far_ps_call(t, "f", keys, 1, CALL(.reduce = (enum far_ps_reduce)4), NULL, status, &f, &err), FAR_INVALID,    \
	  "reduce is 4")                                                                                               \
	X(far_ps_call(t, "f", keys, 1, CALL(.read = true, .make = true), NULL, status, &f, &err), FAR_INVALID,         \
	  "make does not go with read")                                                                                \
	X(far_ps_call(t, "f", keys, 1, CALL(.read = true, .token = &(uint64_t){0}), NULL, status, &f, &err),           \
	  FAR_INVALID, "a token does not go with read")                                                                \
	X(far_ps_call(t, "f", keys, 1, CALL(.reserved = {1}), NULL, status, &f, &err), FAR_INVALID, "reserved")        \
	X(far_ps_call(t, "f", keys, FAR_PS_KEYS_MAX + 1, NULL, NULL, status, &f, &err), FAR_INVALID, "67108865 keys")  \
	X(far_ps_clock(NULL, 0, 1, 0, &f, &err), FAR_INVALID, "the table is NULL")                                     \
	X(far_ps_clock(t, 0, 1, 0, &f, &err), FAR_INVALID, "worker is 0; table \"input\" has a clock for 0")           \
	X(far_ps_clock(clocked, 2, 1, 0, &f, &err), FAR_INVALID, "worker is 2")                                        \
	X(far_ps_clock(clocked, 0, 1, 0, NULL, &err), FAR_INVALID, "future")                                           \
	X(far_ps_barrier(NULL, "b", 0, 1, 0, &f, &err), FAR_INVALID, "service")                                        \
	X(far_ps_barrier(ps, NULL, 0, 1, 0, &f, &err), FAR_INVALID, "name of 1 to 63 bytes")                           \
	X(far_ps_barrier(ps, long_name, 0, 1, 0, &f, &err), FAR_INVALID, "name of 1 to 63 bytes")                      \
	X(far_ps_barrier(ps, "b", 0, 0, 0, &f, &err), FAR_INVALID, "member 0 of 0")                                    \
	X(far_ps_barrier(ps, "b", 3, 3, 0, &f, &err), FAR_INVALID, "member 3 of 3")                                    \
	X(far_ps_barrier(ps, "b", 0, FAR_PS_WORKERS_MAX + 1, 0, &f, &err), FAR_INVALID, "member 0 of 4097")            \
	X(far_ps_barrier(ps, "b", 0, 1, 0, NULL, &err), FAR_INVALID, "future")                                         \
	X(far_ps_table_stats(NULL, 0, &stats, &f, &err), FAR_INVALID, "the table is NULL")                             \
	X(far_ps_table_stats(t, 0, NULL, &f, &err), FAR_INVALID, "stats is NULL")                                      \
	X(far_ps_table_stats(t, 0, &stats, NULL, &err), FAR_INVALID, "future")                                         \
	X(far_ps_fn_register(NULL, &err), FAR_INVALID, "name of 1 to 63 bytes")                                        \
	X(far_ps_fn_register(&(struct far_ps_fn){.name = long_name}, &err), FAR_INVALID, "name of 1 to 63 bytes")      \
	X(far_ps_fn_register(&(struct far_ps_fn){.name = "f"}, &err), FAR_INVALID, "function \"f\": run is NULL")      \
	X(far_ps_fn_register(&(struct far_ps_fn){.name = "f", .run = run, .width = 4097}, &err), FAR_INVALID,          \
	  "width is 4097")                                                                                             \
	X(far_ps_fn_register(&(struct far_ps_fn){.name = "f", .run = run, .reserved = {1}}, &err), FAR_INVALID,        \
	  "reserved")                                                                                                  \
	X(far_ps_fn_unregister("f", &err), FAR_GONE, "no function \"f\"")                                              \
	X(far_ps_rule_register(NULL, &err), FAR_INVALID, "name of 1 to 63 bytes")                                      \
	X(far_ps_rule_register(&(struct far_ps_rule_fn){.name = "r"}, &err), FAR_INVALID, "apply is NULL")             \
	X(far_ps_rule_unregister(NULL, &err), FAR_GONE, "(NULL)")

/* Errors of the future: of a table that was dropped. */
#define LATER(X)                                                                                                       \
	X(far_ps_pull(gone, keys, 1, NULL, rows, status, &f, &err), FAR_GONE, "no such table")                         \
	X(far_ps_pull_bags(gone, keys, BAGS(offsets, 1), NULL, rows, status, &f, &err), FAR_GONE, "no such table")     \
	X(far_ps_exists(gone, keys, 1, NULL, status, &f, &err), FAR_GONE, "no such table")                             \
	X(far_ps_push(gone, keys, 1, grads, NULL, status, &f, &err), FAR_GONE, "no such table")                        \
	X(far_ps_push_pull(gone, keys, 1, grads, NULL, rows, status, &f, &err), FAR_GONE, "no such table")             \
	X(far_ps_assign(gone, keys, 1, rows, NULL, NULL, status, &f, &err), FAR_GONE, "no such table")                 \
	X(far_ps_erase(gone, keys, 1, NULL, status, &f, &err), FAR_GONE, "no such table")                              \
	X(far_ps_call(gone, "f", keys, 1, NULL, NULL, status, &f, &err), FAR_GONE, "no such table")                    \
	X(far_ps_table_stats(gone, 0, &stats, &f, &err), FAR_GONE, "no such table")                                    \
	X(far_ps_call(t, "f", keys, 1, NULL, NULL, status, &f, &err), FAR_NO_FUNCTION, "no function \"f\"")            \
	X(far_ps_pull(clocked, keys, 1, PULL(.clock = 9, .timeout_ns = 1), rows, status, &f, &err), FAR_TIMEOUT,       \
	  "deadline")                                                                                                  \
	X(far_ps_pull(clocked, keys, 1, PULL(.clock = 9, .timeout_ns = 20 * FAR_MS), rows, status, &f, &err),          \
	  FAR_TIMEOUT, "it waits until the clock of each worker is at step 9")                                         \
	X(far_ps_barrier(ps, "input", 0, 2, FAR_SEC / 2, &f, &err), FAR_TIMEOUT,                                       \
	  "barrier \"input\" of 2 members lacks 1")

static enum far_status run(const struct far_ps_fn_args *args, void *user)
{
	(void)args;
	(void)user;
	return FAR_OK;
}

static enum far_status start(int number)
{
	struct far_ps *other = NULL;
	struct far_ps_table *made = NULL;
	struct far_ps_schema schema = schema_of(FAR_PS_SGD), wide = schema;
	int n = 0;
	wide.dim = 5;
#define START(call, want, text)                                                                                        \
	if (n++ == number)                                                                                             \
		return call;
	NOW(START)
	LATER(START)
	CHECK(!other && !made);
	return FAR_OK;
}

static const struct {
	const char *call;
	enum far_status want;
	const char *text;
} now[] =
	{
#define ROW(call, want, text) {#call, want, text},
		NOW(ROW)},
  later[] = {LATER(ROW)};

static void check(int number, const char *call, enum far_status got, enum far_status want, const char *text)
{
	if (got == want && err.status == want && strstr(err.text, text))
		return;
	fprintf(stderr, "%d: %s is %s \"%s\", not %s with \"%s\"\n", number, call, far_status_name(got), err.text,
		far_status_name(want), text);
	exit(1);
}

/* Times: none given, more than the clock has, for ever. */
static void timeouts(void)
{
	static const uint64_t times[] = {0, UINT64_MAX, UINT64_MAX - 5, INT64_MAX, FAR_SEC};
	for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
		struct far_ps_table *same;
		DONE(far_ps_pull(t, keys, 2, PULL(.timeout_ns = times[i]), rows, status, &f, &err), 2);
		DONE(far_ps_push(t, keys, 2, grads, PUSH(.timeout_ns = times[i]), status, &f, &err), 2);
		DONE(far_ps_clock(clocked, 0, 1, times[i], &f, &err), 3);
		DONE(far_ps_barrier(ps, "alone", 0, 1, times[i], &f, &err), 1);
		CHECK_STATUS(far_ps_table_open(ps, "input", times[i], &same, &err), FAR_OK, &err);
		far_ps_table_free(same);
	}
}

/* The error is of this call, not of one before. */
static void opened_late(void)
{
	struct far_ps_open_opts none = {.timeout_ns = 20 * FAR_MS, .message = 5}, late = {.timeout_ns = 1};
	struct far_ps *other;
	for (int i = 0; i < 5; i++) {
		BAD(far_ps_open(agent, "ads", &none, &other, &err), FAR_TIMEOUT, "by message 5");
		BAD(far_ps_open(agent, "ads", &late, &other, &err), FAR_TIMEOUT, "\"ads\"");
		CHECK(!strstr(err.text, "message 5"));
	}
}

void bad_input(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	const int n = sizeof now / sizeof *now, m = sizeof later / sizeof *later;
	memset(long_name, 'x', FAR_PS_NAME_MAX);
	memset(grads, 0, sizeof grads);
	keys[0] = 11, keys[1] = 12;
	t = table("input", &schema);
	gone = table("gone", &schema);
	schema.workers = 2;
	clocked = table("clocked", &schema);
	schema.workers = 0;
	schema.dense_rows = 10;
	dense_table = table("dense_input", &schema);
	CHECK_STATUS(far_ps_table_drop(ps, "gone", 0, &err), FAR_OK, &err);
	count = 4;
	for (int i = 0; i < n; i++) {
		f = NULL;
		err = (struct far_err){0};
		check(i, now[i].call, start(i), now[i].want, now[i].text);
		CHECK(!f);
	}
	for (int i = 0; i < m; i++) {
		err = (struct far_err){0};
		CHECK_STATUS(start(n + i), FAR_OK, &err);
		enum far_status got = far_future_wait(f, FAR_FOREVER, NULL, &err);
		far_future_free(f);
		check(n + i, later[i].call, got, later[i].want, later[i].text);
	}
	CHECK(stats_of(t).rows == 0 && stats_of(t).keys_pushed == 0);
	timeouts();
	opened_late();
	far_ps_table_free(t);
	far_ps_table_free(gone);
	far_ps_table_free(clocked);
	far_ps_table_free(dense_table);
}
