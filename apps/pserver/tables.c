/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall tables`: looks at the tables of a parameter server, saves, loads and drops them, as one of its clients.
 * Main thread. */
#include "apps/farcall/commands.h"
#include "service.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 1024
#define HOT_KEYS 20

struct tables {
	struct group g;
	const char *name;
	uint64_t timeout_ns;
	struct far_ps *ps;
	char **args;
	int args_n;
	uint64_t keys[KEYS_MAX]; /* of get: args[1, args_n) */
};

static const char *const rules[] = {"sgd", "momentum", "adagrad", "rowwise-adagrad", "rmsprop", "adam", "ftrl", "lamb"};

static const char *rule_name(const struct far_ps_rule *rule)
{
	return rule->kind == FAR_PS_USER ? rule->name : rules[rule->kind];
}

static const char *stored_name(enum far_dtype dtype)
{
	return dtype == FAR_BF16 ? "bf16" : dtype == FAR_F16 ? "f16" : "f32";
}

static enum far_status stats_of(struct tables *o, struct far_ps_table *table, struct far_ps_stats *stats,
				struct far_err *err)
{
	struct far_future *f;
	enum far_status status = far_ps_table_stats(table, o->timeout_ns, stats, &f, err);
	if (status)
		return status;
	status = far_future_wait(f, FAR_FOREVER, NULL, err); /* ends by its own deadline */
	far_future_free(f);
	return status;
}

/* A name with control characters stays in its line: these become '?', as of ls(1). */
static void show_name(const char *name, char shown[FAR_PS_NAME_MAX])
{
	size_t i = 0;
	for (; name[i]; i++)
		shown[i] = (unsigned char)name[i] < ' ' || name[i] == 127 ? '?' : name[i];
	shown[i] = 0;
}

/* One line for each table. */
static enum far_status list(struct tables *o, struct far_err *err)
{
	char(*names)[FAR_PS_NAME_MAX] = calloc(FAR_PS_TABLES_MAX, sizeof *names);
	size_t n = 0;
	enum far_status status = FAR_RESOURCE;
	if (names)
		status = far_ps_tables(o->ps, o->timeout_ns, names, &n, err);
	else
		*err = (struct far_err){.status = FAR_RESOURCE, .text = "no memory"};
	if (!status)
		printf("%-32s %6s %6s %-16s %12s %14s\n", "table", "dim", "stored", "rule", "rows", "bytes");
	for (size_t i = 0; i < n && !status; i++) {
		char shown[FAR_PS_NAME_MAX];
		struct far_ps_table *table;
		struct far_ps_stats stats;
		show_name(names[i], shown);
		status = far_ps_table_open(o->ps, names[i], o->timeout_ns, &table, err);
		if (status)
			break;
		const struct far_ps_schema *schema = far_ps_table_schema(table);
		status = stats_of(o, table, &stats, err);
		if (!status)
			printf("%-32s %6u %6s %-16s %12" PRIu64 " %14" PRIu64 "\n", shown, schema->dim,
			       schema->value_max ? "bytes" : stored_name(schema->stored),
			       schema->value_max ? "-" : rule_name(&schema->rule), stats.rows, stats.bytes);
		far_ps_table_free(table);
	}
	free(names);
	return status;
}

static enum far_status show_stats(struct tables *o, struct far_err *err)
{
	struct far_ps_table *table;
	struct far_ps_stats s;
	enum far_status status = far_ps_table_open(o->ps, o->args[0], o->timeout_ns, &table, err);
	if (status)
		return status;
	status = stats_of(o, table, &s, err);
	far_ps_table_free(table);
	if (status)
		return status;
	const struct {
		const char *name;
		uint64_t value;
	} lines[] = {{"rows", s.rows},
		     {"bytes", s.bytes},
		     {"row_bytes", s.row_bytes},
		     {"state_bytes", s.state_bytes},
		     {"index_bytes", s.index_bytes},
		     {"made", s.made},
		     {"erased", s.erased},
		     {"evicted", s.evicted},
		     {"expired", s.expired},
		     {"refused", s.refused},
		     {"waited", s.waited},
		     {"keys_pulled", s.keys_pulled},
		     {"keys_pushed", s.keys_pushed},
		     {"duplicates", s.duplicates},
		     {"clock", s.clock},
		     {"pulls", s.pulls},
		     {"pushes", s.pushes},
		     {"scans", s.scans},
		     {"served_ns", s.served ? s.served_ns / s.served : 0}};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		printf("%-12s %" PRIu64 "\n", lines[i].name, lines[i].value);
	return FAR_OK;
}

/* In quotes; other bytes than printable ones, and quotes, as in C. */
static void print_value(const unsigned char *value, uint32_t len)
{
	printf(" \"");
	for (uint32_t i = 0; i < len; i++)
		printf(value[i] < ' ' || value[i] > '~' || value[i] == '"' || value[i] == '\\' ? "\\%03o" : "%c",
		       value[i]);
	putchar('"');
}

/* "KEY STATUS "VALUE"", a line for each key, whose values are read one by one. */
static enum far_status get_values(struct tables *o, struct far_ps_table *table, size_t n, struct far_err *err)
{
	size_t room = far_ps_table_schema(table)->value_max;
	unsigned char *value = malloc(room);
	struct far_ps_pull_opts opts = {.timeout_ns = o->timeout_ns};
	enum far_status status = value ? FAR_OK : FAR_RESOURCE;
	if (!value)
		*err = (struct far_err){.status = FAR_RESOURCE, .text = "no memory for a value"};
	for (size_t i = 0; i < n && !status; i++) {
		struct far_future *f;
		uint32_t len;
		uint8_t found;
		status = far_ps_pull_values(table, &o->keys[i], 1, &opts, value, room, &len, &found, &f, err);
		if (status)
			break;
		status = far_future_wait(f, FAR_FOREVER, NULL, err); /* ends by its own deadline */
		far_future_free(f);
		if (status)
			break;
		printf("%" PRIu64 " %s", o->keys[i], far_ps_status_name((enum far_ps_status)found));
		if (found == FAR_PS_ROW)
			print_value(value, len);
		putchar('\n');
	}
	free(value);
	return status;
}

/* "KEY STATUS ELEMENT…", a line for each key. */
static enum far_status get(struct tables *o, struct far_err *err)
{
	size_t n = (size_t)o->args_n - 1;
	struct far_ps_table *table;
	struct far_future *f;
	enum far_status status = far_ps_table_open(o->ps, o->args[0], o->timeout_ns, &table, err);
	if (status)
		return status;
	if (far_ps_table_schema(table)->value_max) {
		status = get_values(o, table, n, err);
		far_ps_table_free(table);
		return status;
	}
	unsigned dim = far_ps_table_schema(table)->dim;
	float *rows = calloc(n, dim * sizeof *rows);
	uint8_t *found = calloc(n, 1);
	struct far_ps_pull_opts opts = {.timeout_ns = o->timeout_ns};
	if (rows && found) {
		status = far_ps_pull(table, o->keys, n, &opts, rows, found, &f, err);
		if (!status) {
			status = far_future_wait(f, FAR_FOREVER, NULL, err); /* ends by its own deadline */
			far_future_free(f);
		}
	} else {
		*err = (struct far_err){.status = FAR_RESOURCE, .text = "no memory for the rows"};
		status = FAR_RESOURCE;
	}
	for (size_t i = 0; i < n && !status; i++) {
		printf("%" PRIu64 " %s", o->keys[i], far_ps_status_name((enum far_ps_status)found[i]));
		for (unsigned d = 0; d < dim && found[i] == FAR_PS_ROW; d++)
			printf(" %.9g", (double)rows[i * dim + d]);
		putchar('\n');
	}
	free(rows);
	free(found);
	far_ps_table_free(table);
	return status;
}

/* "KEY USES", most used first. */
static enum far_status hot(struct tables *o, struct far_err *err)
{
	static struct far_ps_hot_key keys[KEYS_MAX];
	size_t n = o->args_n > 1 ? (size_t)o->keys[0] : HOT_KEYS;
	struct far_ps_table *table;
	enum far_status status = far_ps_table_open(o->ps, o->args[0], o->timeout_ns, &table, err);
	if (status)
		return status;
	status = far_ps_hot(table, o->timeout_ns, keys, &n, err);
	for (size_t i = 0; i < n && !status; i++)
		printf("%" PRIu64 " %" PRIu64 "\n", keys[i].key, keys[i].uses);
	far_ps_table_free(table);
	return status;
}

static enum far_status drop(struct tables *o, struct far_err *err)
{
	return far_ps_table_drop(o->ps, o->args[0], o->timeout_ns, err);
}

static void print_saved(const char *what, const struct far_ps_saved *s)
{
	printf("%s %" PRIu64 " tables, %" PRIu64 " rows, %" PRIu64 " bytes", what, s->tables, s->rows, s->bytes);
	if (s->refused)
		printf("; no room for %" PRIu64 " rows", s->refused);
	putchar('\n');
}

static enum far_status save(struct tables *o, struct far_err *err)
{
	struct far_ps_saved saved;
	struct far_ps_save_opts opts = {.timeout_ns = o->timeout_ns};
	enum far_status status = far_ps_save(o->ps, o->args[0], &opts, &saved, err);
	if (!status)
		print_saved("saved", &saved);
	return status;
}

static enum far_status load(struct tables *o, struct far_err *err)
{
	struct far_ps_saved loaded;
	struct far_ps_save_opts opts = {.timeout_ns = o->timeout_ns};
	enum far_status status = far_ps_load(o->ps, o->args[0], &opts, &loaded, err);
	if (!status)
		print_saved("loaded", &loaded);
	return status;
}

static const struct action {
	const char *name, *usage;
	int min, max; /* arguments */
	enum far_status (*run)(struct tables *o, struct far_err *err);
} actions[] = {
	{"ls", "", 0, 0, list},
	{"stats", " TABLE", 1, 1, show_stats},
	{"get", " TABLE KEY...", 2, KEYS_MAX + 1, get},
	{"hot", " TABLE [N]", 1, 2, hot},
	{"drop", " TABLE", 1, 1, drop},
	{"save", " DIR", 1, 1, save},
	{"load", " DIR", 1, 1, load},
};

static const struct action *find_action(const char *name)
{
	for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
		if (!strcmp(actions[i].name, name))
			return &actions[i];
	return NULL;
}

/* Reads the keys of get, or the number of hot: decimal, or hexadecimal after 0x. 0 or an exit status after a message.
 */
static int read_numbers(struct tables *o, const char *what)
{
	for (int i = 1; i < o->args_n; i++) {
		const char *text = o->args[i];
		char *end;
		errno = 0;
		o->keys[i - 1] = strtoull(text, &end, strncmp(text, "0x", 2) ? 10 : 16);
		if (errno || *end || text[0] < '0' || text[0] > '9')
			return options_wrong(o->g.program, "'%s' is not %s", text, what);
	}
	return 0;
}

static int wrong_arguments(const struct tables *o, const struct action *a)
{
	for (int i = 0; i < o->args_n; i++)
		if (!strncmp(o->args[i], "--", 2))
			return options_wrong(o->g.program, "%s: options come before '%s'", o->args[i], a->name);
	return options_wrong(o->g.program, "%d argument%s; give '%s%s'", o->args_n, o->args_n == 1 ? "" : "s", a->name,
			     a->usage);
}

/* Joins, acts, leaves. */
static int act(struct tables *o, const struct action *a)
{
	struct far_err err;
	if (group_enter(&o->g, 1, NULL, 0))
		return 1;
	struct far_ps_open_opts opts = {.timeout_ns = o->timeout_ns};
	enum far_status status = far_ps_open(o->g.agent, o->name, &opts, &o->ps, &err);
	if (!status) {
		status = a->run(o, &err);
		far_ps_close(o->ps);
	}
	if (status)
		(void)group_complain(&o->g, &err);
	(void)group_leave(&o->g, false, NULL);
	return status ? 1 : 0;
}

int cmd_tables(int argc, char **argv)
{
	struct tables o = {.g = {.program = "farcall tables", .rank_flag = GROUP_RANK_UNSET},
			   .name = SERVICE_NAME,
			   .timeout_ns = 10 * FAR_SEC};
	const struct option_spec specs[] = {{"name", 0, OPTION_TEXT, &o.name, 0, 0, "NAME",
					     "name of the service (default \"" SERVICE_NAME "\")", NULL},
					    SERVICE_GROUP_OPTIONS(o.g),
					    {"timeout", 0, OPTION_DURATION, &o.timeout_ns, FAR_MS, 3600 * FAR_SEC,
					     "TIME", "deadline of a request (default 10s)", NULL},
					    {"", 0, OPTION_FLAG, NULL, 0, 0, NULL, NULL, NULL}};
	const struct option_command command = {
		o.g.program,
		"[OPTIONS] ls | stats TABLE | get TABLE KEY... | hot TABLE [N] | drop TABLE | save DIR | load DIR",
		"Shows the tables of 'farcall pserver' or far_ps_serve(), as a client that has a rank of the group. ls "
		"lists "
		"them; stats prints a table's counters; get prints rows; hot prints the N (20) keys that were used "
		"most of late, and about how often; drop removes a table; save writes all tables "
		"to a "
		"directory of this host while they are served; load restores what was saved, to any number of servers.",
		specs};
	int rest;
	enum options_result result = options_parse(&command, argc, argv, &rest);
	if (result != OPTIONS_GO)
		return result == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest == argc)
		return options_wrong(o.g.program, "give it one of: ls, stats, get, hot, drop, save, load");
	const struct action *a = find_action(argv[rest]);
	o.args = argv + rest + 1;
	o.args_n = argc - rest - 1;
	if (!a)
		return options_wrong(o.g.program, "'%s' is none of: ls, stats, get, hot, drop, save, load", argv[rest]);
	if (o.args_n > a->max && a->run == get)
		return options_wrong(o.g.program, "%d keys; get takes at most %d", o.args_n - 1, KEYS_MAX);
	if (o.args_n < a->min || o.args_n > a->max)
		return wrong_arguments(&o, a);
	if (a->run == get && read_numbers(&o, "a key: a number below 2^64"))
		return OPTIONS_EXIT_USAGE;
	if (a->run == hot && read_numbers(&o, "a number of keys"))
		return OPTIONS_EXIT_USAGE;
	if (a->run == hot && o.args_n > 1 && (o.keys[0] < 1 || o.keys[0] > KEYS_MAX))
		return options_wrong(o.g.program, "hot prints 1 to %d keys, not '%s'", KEYS_MAX, o.args[1]);
	if (group_identify(&o.g))
		return OPTIONS_EXIT_USAGE;
	return act(&o, a);
}
