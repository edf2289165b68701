/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads the tenants of a service from a command line. Main thread. */
#include "tenants.h"

#include "apps/cli/options.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Reads "rows=N", "bytes=SIZE" or "tables=N" into a tenant. 0, or an exit status after a message. */
static int read_bound(const char *program, const char *bound, struct far_ps_tenant *t)
{
	uint64_t tables = 0;
	const struct option_spec specs[] = {
		{"rows", 0, OPTION_COUNT, &t->rows_max, 1, UINT64_MAX, NULL, NULL, NULL},
		{"bytes", 0, OPTION_SIZE, &t->bytes_max, 1, UINT64_MAX, NULL, NULL, NULL},
		{"tables", 0, OPTION_COUNT, &tables, 1, FAR_PS_TABLES_MAX, NULL, NULL, NULL}};
	for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
		size_t len = strlen(specs[i].name);
		char why[OPTIONS_TEXT_MAX];
		if (strncmp(bound, specs[i].name, len) != 0 || bound[len] != '=')
			continue;
		if (options_read(&specs[i], bound + len + 1, why))
			return options_wrong(program, "--tenants, prefix '%s': %s", t->prefix, why);
		t->tables_max = tables ? (unsigned)tables : t->tables_max;
		return 0;
	}
	return options_wrong(program, "--tenants, prefix '%s': '%s' is none of rows=N, bytes=SIZE, tables=N", t->prefix,
			     bound);
}

static int read_tenant(const char *program, char *text, struct tenants *out)
{
	struct far_ps_tenant *t = &out->at[out->n++];
	char *rest;
	char *bound = strchr(text, ':');
	if (bound)
		*bound++ = 0;
	*t = (struct far_ps_tenant){.prefix = text};
	if (!*text || strlen(text) >= FAR_PS_NAME_MAX || !bound)
		return options_wrong(program, "--tenants: '%s' is no PREFIX:BOUND of at most %d bytes", text,
				     FAR_PS_NAME_MAX - 1);
	for (bound = strtok_r(bound, ":", &rest); bound; bound = strtok_r(NULL, ":", &rest)) {
		int status = read_bound(program, bound, t);
		if (status)
			return status;
	}
	return 0;
}

int tenants_read(const char *program, const char *text, uint64_t memory, struct tenants *out)
{
	char *rest;
	int status = 0;
	out->n = 0;
	if ((size_t)snprintf(out->text, sizeof out->text, "%s", text ? text : "") >= sizeof out->text)
		return options_wrong(program, "--tenants has more than %zu bytes", sizeof out->text - 1);
	if (memory)
		out->at[out->n++] = (struct far_ps_tenant){.prefix = "", .bytes_max = memory};
	for (char *one = strtok_r(out->text, ",", &rest); one && !status; one = strtok_r(NULL, ",", &rest)) {
		if (out->n == FAR_PS_TENANTS_MAX)
			return options_wrong(program, "--tenants: more than %d tenants", FAR_PS_TENANTS_MAX);
		status = read_tenant(program, one, out);
	}
	return status;
}
