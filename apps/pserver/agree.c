/* SPDX-License-Identifier: BSD-3-Clause */
/** Compares the options of the servers of a service. Main thread; on_settings(): the thread that runs handlers. */
#include "agree.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define AGREE_FUNCTION "pserver::settings"
#define TENANT_MAX     (FAR_PS_NAME_MAX + 96)

__attribute__((format(printf, 2, 3))) static void add(struct agreement *a, const char *format, ...)
{
	va_list args;
	size_t n = strlen(a->text);
	va_start(args, format);
	vsnprintf(a->text + n, sizeof a->text - n, format, args);
	va_end(args);
}

static void put_tenant(const struct far_ps_tenant *t, char to[TENANT_MAX])
{
	int n = snprintf(to, TENANT_MAX, "%s", t->prefix);
	if (t->rows_max)
		n += snprintf(to + n, TENANT_MAX - (size_t)n, ":rows=%" PRIu64, t->rows_max);
	if (t->bytes_max)
		n += snprintf(to + n, TENANT_MAX - (size_t)n, ":bytes=%" PRIu64, t->bytes_max);
	if (t->tables_max)
		snprintf(to + n, TENANT_MAX - (size_t)n, ":tables=%u", t->tables_max);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* In one order, whatever that of the flag. */
static void add_tenants(struct agreement *a, const struct agree_options *o)
{
	static char text[FAR_PS_TENANTS_MAX][TENANT_MAX];
	size_t first = o->memory ? 1 : 0, n = o->tenants->n - first;
	for (size_t i = 0; i < n; i++)
		put_tenant(&o->tenants->at[first + i], text[i]);
	qsort(text, n, sizeof *text, by_text);
	add(a, "--tenants %s", n ? "" : "none");
	for (size_t i = 0; i < n; i++)
		add(a, "%s%s", i ? "," : "", text[i]);
	add(a, "\n");
}

void agree_init(struct agreement *a, const struct agree_options *o)
{
	const char *file = o->functions ? strrchr(o->functions, '/') : NULL;
	*a = (struct agreement){.servers = o->servers};
	add(a, "--servers %" PRIu64 "\n--name %s\n", o->servers, o->service);
	if (o->memory)
		add(a, "--memory %" PRIu64 "\n", o->memory);
	else
		add(a, "--memory none\n");
	add_tenants(a, o);
	/* Each host may have it in a directory of its own. */
	add(a, "--functions %s\n", file ? file + 1 : o->functions ? o->functions : "none");
}

/* A digit, whether it serves, and the lines. */
static enum far_status on_settings(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct agreement *a = user;
	static _Thread_local char text[AGREE_TEXT_MAX + 1];
	(void)args, (void)n;
	snprintf(text, sizeof text, "%d%s", atomic_load(&a->serves), a->text);
	return far_return_str(req, text);
}

struct far_function agree_function(struct agreement *a)
{
	return (struct far_function){AGREE_FUNCTION "() -> str", FAR_KIND_INLINE, on_settings, a};
}

/* Takes a line and its option from *at: *value is the option's. NULL: there is none. */
static char *take_line(char **at, char **value)
{
	char *line = strsep(at, "\n"), *space = line ? strchr(line, ' ') : NULL;
	if (!space)
		return NULL;
	*space = '\0';
	*value = space + 1;
	return line;
}

/* Prints the first option that differs. `theirs` is changed. */
static int compare(const struct group *g, const struct agreement *a, const char *name, char *theirs)
{
	char copy[AGREE_TEXT_MAX], *mine = strcpy(copy, a->text), *my_value, *their_value = NULL, *option,
				   *their_option;
	while ((option = take_line(&mine, &my_value))) {
		their_option = take_line(&theirs, &their_value);
		if (their_option && !strcmp(option, their_option) && !strcmp(my_value, their_value))
			continue;
		bool same = their_option && !strcmp(option, their_option);
		fprintf(stderr, "%s: %s: %s is '%s', and '%s' at %s: all servers of a service need the same\n",
			g->program, g->name, option, my_value, same ? their_value : "of another version", name);
		return 1;
	}
	return 0;
}

/* Compares with one server, unless it is not there, or `if_serves` and it does not serve yet. */
static int check_one(const struct group *g, const struct agreement *a, int number, bool if_serves)
{
	char name[FAR_NAME_MAX], theirs[AGREE_TEXT_MAX + 1];
	struct far_val out;
	struct far_err err;
	snprintf(name, sizeof name, "worker%d", number);
	enum far_status status = far_rpc_sync(g->agent, name, AGREE_FUNCTION, NULL, 0, NULL, &out, &err);
	if (status) /* NO_FUNCTION: a program that serves with far_ps_serve() */
		return if_serves || status == FAR_NO_FUNCTION ? 0 : group_complain(g, &err);
	size_t n = out.u.s.len < sizeof theirs - 1 ? out.u.s.len : sizeof theirs - 1;
	memcpy(theirs, out.u.s.data, n);
	theirs[n] = '\0';
	far_val_fini(&out);
	if (n == 0 || (if_serves && theirs[0] == '0'))
		return 0;
	return compare(g, a, name, theirs + 1);
}

int agree_check(const struct group *g, const struct agreement *a)
{
	int status = g->rank ? check_one(g, a, 0, false) : 0;
	for (uint64_t i = 1; i < a->servers && !g->rank && !status; i++) {
		struct far_worker_info info;
		char name[FAR_NAME_MAX];
		snprintf(name, sizeof name, "worker%d", (int)i);
		if (far_worker_by_name(g->agent, name, &info, NULL) == FAR_OK && info.alive)
			status = check_one(g, a, (int)i, true);
	}
	return status;
}
