/* SPDX-License-Identifier: BSD-3-Clause */
/** Applies the bounds of tenants. The thread that polls the shard; psv_tenants_copy(): any thread. */
#include "psv_tenant.h"

#include "pst_fail.h"
#include "pst_table.h"
#include <stdlib.h>
#include <string.h>

static uint64_t or_none(uint64_t bound)
{
	return bound ? bound : UINT64_MAX;
}

enum far_status psv_tenants_copy(const struct far_ps_tenant *from, size_t n, struct psv_tenant **out,
				 struct far_err *err)
{
	*out = NULL;
	if (n == 0)
		return FAR_OK;
	if (!from || n > FAR_PS_TENANTS_MAX)
		return pst_fail(err, FAR_INVALID, 0, "tenants_n is %zu%s; at most %d are possible", n,
				from ? "" : ", and tenants is NULL", FAR_PS_TENANTS_MAX);
	struct psv_tenant *to = calloc(n, sizeof *to);
	if (!to)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for %zu tenants", n);
	for (size_t i = 0; i < n; i++) {
		const struct far_ps_tenant *t = &from[i];
		if (!t->prefix || strlen(t->prefix) >= FAR_PS_NAME_MAX || t->reserved[0] || t->reserved[1]) {
			free(to);
			return pst_fail(err, FAR_INVALID, 0,
					"tenant %zu has no prefix of at most %d bytes, or a "
					"reserved word that is not 0",
					i, FAR_PS_NAME_MAX - 1);
		}
		strcpy(to[i].prefix, t->prefix);
		to[i].rows = or_none(t->rows_max);
		to[i].bytes = or_none(t->bytes_max);
		to[i].tables = t->tables_max ? t->tables_max : FAR_PS_TABLES_MAX;
	}
	*out = to;
	return FAR_OK;
}

static bool has_prefix(const char *name, const struct psv_tenant *tenant)
{
	return strncmp(name, tenant->prefix, strlen(tenant->prefix)) == 0;
}

/* Bytes of a new row as bounds count them: key, row and state, or the longest value. */
static uint64_t row_bytes(const struct psv_table *t)
{
	if (t->layout.value_max)
		return sizeof(uint64_t) + t->layout.value_max;
	return sizeof(uint64_t) + t->layout.row + t->layout.state;
}

struct usage {
	uint64_t rows, bytes;
	unsigned tables;
};

static struct usage usage_of(const struct psv_shard *s, const struct psv_tenant *tenant)
{
	struct usage u = {0};
	unsigned n = atomic_load_explicit(&((struct psv_shard *)(uintptr_t)s)->tables_n, memory_order_relaxed);
	for (unsigned i = 0; i < n; i++) {
		const struct psv_table *t =
			atomic_load_explicit(&((struct psv_shard *)(uintptr_t)s)->table[i], memory_order_relaxed);
		if (!has_prefix(t->name, tenant))
			continue;
		uint64_t rows = pst_table_rows(t->rows);
		u.tables++;
		u.rows += rows;
		u.bytes += t->layout.value_max ? rows * sizeof(uint64_t) + pst_table_value_bytes(t->rows)
					       : rows * row_bytes(t);
	}
	return u;
}

enum far_status psv_tenants_check(const struct psv_shard *s, const char *name, struct far_err *err)
{
	for (size_t i = 0; i < s->server->tenants_n; i++) {
		const struct psv_tenant *tenant = &s->server->tenants[i];
		if (has_prefix(name, tenant) && usage_of(s, tenant).tables >= tenant->tables)
			return pst_fail(err, FAR_RESOURCE, 0,
					"table \"%s\": there are %u tables whose names begin with \"%s\", and no more "
					"may be made",
					name, tenant->tables, tenant->prefix);
	}
	return FAR_OK;
}

/* This shard's part of a bound, less what is used of it. */
static uint64_t left_of(uint64_t bound, uint32_t shards, uint64_t used)
{
	if (bound == UINT64_MAX)
		return UINT64_MAX;
	uint64_t part = bound / shards + (bound % shards != 0);
	return used < part ? part - used : 0;
}

void psv_tenants_bound(const struct psv_shard *s, const struct psv_table *t)
{
	uint64_t room = UINT64_MAX;
	for (size_t i = 0; i < s->server->tenants_n; i++) {
		const struct psv_tenant *tenant = &s->server->tenants[i];
		if (!has_prefix(t->name, tenant))
			continue;
		struct usage u = usage_of(s, tenant);
		uint64_t rows = left_of(tenant->rows, s->view->slots, u.rows);
		uint64_t bytes = left_of(tenant->bytes, s->view->slots, u.bytes);
		if (bytes != UINT64_MAX)
			bytes /= row_bytes(t);
		room = rows < room ? rows : room;
		room = bytes < room ? bytes : room;
	}
	if (s->server->tenants_n)
		pst_table_bound(t->rows, room);
}
