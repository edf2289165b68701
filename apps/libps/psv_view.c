/* SPDX-License-Identifier: BSD-3-Clause */
/** Makes, encodes and decodes views. Any thread. */
#include "psv_view.h"

#include "pst_fail.h"
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 16u
#define RUN_BYTES  12u

static enum far_status add_server(struct far_agent *agent, const char *name, struct psv_view *v, struct far_err *err)
{
	struct far_worker_info info;
	if (!name)
		return pst_fail(err, FAR_INVALID, 0, "the list of servers has a NULL name");
	enum far_status status = far_worker_by_name(agent, name, &info, err);
	if (status)
		return status;
	if (psv_view_slot(v, (struct far_to){info.rank, 0}) >= 0)
		return pst_fail(err, FAR_INVALID, 0, "the list of servers has \"%s\" twice", name);
	if (v->slots + info.shards > FAR_PS_SHARDS_MAX)
		return pst_fail(err, FAR_INVALID, 0, "the servers have more than %d shards", FAR_PS_SHARDS_MAX);
	for (uint32_t s = 0; s < info.shards; s++)
		v->slot[v->slots++] = (struct far_to){info.rank, (int32_t)s};
	return FAR_OK;
}

enum far_status psv_view_make(struct far_agent *agent, const char *const *servers, size_t n, uint64_t epoch,
			      struct psv_view **out, struct far_err *err)
{
	if (!servers || n == 0)
		return pst_fail(err, FAR_INVALID, 0, "the list of servers is empty");
	struct psv_view *v = calloc(1, sizeof *v);
	if (!v)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for a view");
	v->epoch = epoch;
	for (size_t i = 0; i < n; i++) {
		enum far_status status = add_server(agent, servers[i], v, err);
		if (status) {
			free(v);
			return status;
		}
	}
	for (uint32_t p = 0; p < FAR_PS_PARTITIONS; p++)
		v->owner[p] = (uint16_t)(p * v->slots / FAR_PS_PARTITIONS);
	*out = v;
	return FAR_OK;
}

size_t psv_view_encode(const struct psv_view *v, void *bytes)
{
	char *to = bytes;
	uint32_t runs = 0;
	for (uint32_t p = 0; p < FAR_PS_PARTITIONS; p++) {
		if (p && v->owner[p] == v->owner[p - 1])
			continue;
		const struct far_to *shard = &v->slot[v->owner[p]];
		char *run = to + HEAD_BYTES + (size_t)runs++ * RUN_BYTES;
		memcpy(run, &p, 4);
		memcpy(run + 4, &shard->worker, 4);
		memcpy(run + 8, &shard->shard, 4);
	}
	memcpy(to, &v->epoch, 8);
	memcpy(to + 8, &runs, 4);
	memset(to + 12, 0, 4);
	return HEAD_BYTES + (size_t)runs * RUN_BYTES;
}

/* Appends a run that begins at partition `first`, which the run before ends at. */
static bool add_run(struct psv_view *v, uint32_t first, struct far_to shard, uint32_t *end)
{
	if (first >= FAR_PS_PARTITIONS || (v->slots ? first <= *end : first != 0) || shard.worker < 0 ||
	    shard.shard < 0 || shard.shard >= FAR_SHARDS_MAX || psv_view_slot(v, shard) >= 0)
		return false;
	for (uint32_t p = first; p < FAR_PS_PARTITIONS; p++)
		v->owner[p] = (uint16_t)v->slots;
	*end = first;
	v->slot[v->slots++] = shard;
	return true;
}

struct psv_view *psv_view_decode(const void *bytes, size_t len)
{
	const char *from = bytes;
	uint32_t runs, end = 0;
	if (len < HEAD_BYTES)
		return NULL;
	memcpy(&runs, from + 8, 4);
	if (runs < 1 || runs > FAR_PS_SHARDS_MAX || len != HEAD_BYTES + (size_t)runs * RUN_BYTES)
		return NULL;
	struct psv_view *v = calloc(1, sizeof *v);
	if (!v)
		return NULL;
	memcpy(&v->epoch, from, 8);
	bool ok = v->epoch > 0;
	for (uint32_t i = 0; i < runs && ok; i++) {
		const char *run = from + HEAD_BYTES + (size_t)i * RUN_BYTES;
		uint32_t first;
		struct far_to shard;
		memcpy(&first, run, 4);
		memcpy(&shard.worker, run + 4, 4);
		memcpy(&shard.shard, run + 8, 4);
		ok = add_run(v, first, shard, &end);
	}
	if (ok)
		return v;
	free(v);
	return NULL;
}

int psv_view_slot(const struct psv_view *v, struct far_to shard)
{
	for (uint32_t i = 0; i < v->slots; i++)
		if (v->slot[i].worker == shard.worker && v->slot[i].shard == shard.shard)
			return (int)i;
	return -1;
}

void psv_views_free(struct psv_view *v)
{
	while (v) {
		struct psv_view *older = v->older;
		free(v);
		v = older;
	}
}
