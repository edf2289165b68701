/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * References as bytes: far_rref_serialize() and its relatives. Any thread. The worker that writes the bytes keeps the
 * reference under a number; who reads them claims it with far::rref_claim (builtin/rref_bytes.c), and gets it as the
 * result of that call.
 */
#include "builtin/rref_bytes.h"
#include "agent/agent.h"
#include "api/rref.h"
#include "base/error.h"

#include <string.h>

/* Little-endian; engine/PROTOCOL.md, "References as bytes". */
struct rref_bytes {
	uint32_t magic;       /* RREF_BYTES_MAGIC */
	uint32_t rank;        /* of the worker that keeps the reference */
	uint64_t incarnation; /* of that worker */
	uint64_t number;
};
static_assert(sizeof(struct rref_bytes) == FAR_RREF_BYTES, "");

#define RREF_BYTES_MAGIC UINT32_C(0x31525246) /* "FRR1" */

enum far_status far_rref_serialize(struct far_rref *r, void *bytes, struct far_err *err)
{
	if (!r || !bytes)
		return rref_null("far_rref_serialize, or `bytes`", err);
	const struct shard *home = rref_home(r, err);
	enum far_status status = home ? rref_failed(r, err) : FAR_SHUTDOWN;
	if (status)
		return status;
	const struct far_agent *a = home->config.agent;
	struct rref_bytes b = {
		.magic = RREF_BYTES_MAGIC, .rank = (uint32_t)a->rank, .incarnation = agent_incarnation(a)};
	if (rref_keep_put(a->kept, r, &b.number))
		return err_set(err, FAR_RESOURCE, "far_rref_serialize: no memory to keep the reference");
	memcpy(bytes, &b, sizeof b);
	return FAR_OK;
}

static enum far_status read_bytes(const struct far_agent *a, const void *bytes, size_t len, struct rref_bytes *b,
				  struct far_err *err)
{
	if (!a || !bytes)
		return err_set(err, FAR_INVALID, "a serialized reference: the agent and the bytes must not be NULL");
	if (len == sizeof *b)
		memcpy(b, bytes, sizeof *b);
	if (len != sizeof *b || b->magic != RREF_BYTES_MAGIC || b->rank >= (uint32_t)a->world)
		return err_set(err, FAR_INVALID, "%zu bytes that far_rref_serialize of this group did not write", len);
	const struct ctl_member *m = &a->members[b->rank];
	uint64_t now = (int)b->rank == a->rank ? agent_incarnation(a)
					       : atomic_load_explicit(&m->incarnation, memory_order_relaxed);
	if (b->incarnation != now)
		return err_set(err, FAR_PEER_LOST,
			       "the serialized reference was kept by a former incarnation of worker \"%s\"", m->name);
	return FAR_OK;
}

enum far_status far_rref_deserialize_async(struct far_agent *a, const void *bytes, size_t len, uint64_t timeout_ns,
					   struct far_future **out, struct far_err *err)
{
	const struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct rref_bytes b;
	enum far_status status = read_bytes(a, bytes, len, &b, err);
	if (status)
		return status;
	const struct far_val number = far_int((int64_t)b.number);
	return far_rpc_async_to(a, (struct far_to){(int32_t)b.rank, -1}, rref_claim_name, &number, 1, &opts, out, err);
}

enum far_status far_rref_deserialize(struct far_agent *a, const void *bytes, size_t len, uint64_t timeout_ns,
				     struct far_rref **out, struct far_err *err)
{
	const struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct rref_bytes b;
	struct far_val v;
	if (!out)
		return err_set(err, FAR_INVALID, "far_rref_deserialize: `out`, for the reference, must not be NULL");
	enum far_status status = read_bytes(a, bytes, len, &b, err);
	if (status)
		return status;
	const struct far_val number = far_int((int64_t)b.number);
	status = far_rpc_sync_to(a, (struct far_to){(int32_t)b.rank, -1}, rref_claim_name, &number, 1, &opts, &v, err);
	if (status)
		return status;
	*out = far_rref_ref(v.u.rref);
	far_val_fini(&v);
	return FAR_OK;
}

enum far_status far_rref_revoke(struct far_agent *a, const void *bytes, size_t len, struct far_err *err)
{
	struct rref_bytes b;
	enum far_status status = read_bytes(a, bytes, len, &b, err);
	if (status)
		return status;
	if ((int)b.rank != a->rank)
		return err_set(err, FAR_INVALID, "far_rref_revoke: worker \"%s\" keeps the reference; call it there",
			       AGENT_NAME(a, b.rank));
	struct far_rref *r = rref_keep_take(a->kept, b.number);
	if (!r)
		return err_set(err, FAR_GONE, "far_rref_revoke: the reference was claimed or revoked already");
	far_rref_free(r);
	return FAR_OK;
}
