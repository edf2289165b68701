/* SPDX-License-Identifier: BSD-3-Clause */
/** State of references: owner, confirmation, text, reference counts, counters of an agent. Any thread. */
#include "agent/metrics.h"
#include "api/rref.h"

#include "base/error.h"
#include "base/sized.h"
#include "core/shard.h"
#include "features/references/rref.h"

#include <stdio.h>

bool far_rref_is_owner(const struct far_rref *r)
{
	const struct shard *s = r ? rref_home(r, NULL) : NULL;
	return r && (r->owned || (s && r->base.owner == rref_incarnation(s->config.rank, s->config.incarnation)));
}

struct far_to far_rref_owner(const struct far_rref *r)
{
	if (!r)
		return (struct far_to){-1, -1};
	return (struct far_to){(int32_t)rref_rank(r->base.owner), (int32_t)rref_owner_shard(r->base.id)};
}

const char *far_rref_owner_name(const struct far_rref *r)
{
	return r ? r->owner_name : "";
}

bool far_rref_confirmed_by_owner(const struct far_rref *r)
{
	const struct rref_user *u = r ? rref_as_user(r) : NULL;
	return r && (!u || (future_done(u->known) && u->known->status == FAR_OK));
}

enum far_status far_rref_status(struct far_rref *r, struct far_err *err)
{
	char text[RREF_TEXT_MAX];
	if (!r)
		return rref_null("far_rref_status", err);
	if (far_rref_confirmed_by_owner(r))
		return FAR_OK;
	const struct rref_user *u = rref_as_user(r);
	if (future_done(u->known)) {
		enum far_status status = rref_failed(r, err);
		if (status && err) /* of the function; rref_failed() sets that of a later use */
			err->executed = (enum far_executed)u->known->executed;
		return status;
	}
	return err_set(err, FAR_PENDING, "the owner of %s has not confirmed it yet",
		       rref_text(&r->base, text, sizeof text));
}

enum far_status far_rref_wait(struct far_rref *r, uint64_t timeout_ns, struct far_err *err)
{
	if (!r)
		return rref_null("far_rref_wait", err);
	if (rref_known(r))
		return far_rref_status(r, err);
	struct far_future *known = rref_as_user(r)->known;
	enum far_status status = far_future_wait(known, timeout_ns, NULL, err);
	return future_done(known) ? far_rref_status(r, err) : status;
}

static enum far_status state_of(struct far_future *parent, struct far_val *out, struct far_err *err, void *user)
{
	enum far_status status = far_rref_status(user, err);
	(void)parent, (void)out;
	far_rref_free(user);
	return status;
}

enum far_status far_rref_future(struct far_rref *r, struct far_future **out, struct far_err *err)
{
	if (!r || !out)
		return rref_null("far_rref_future, or `out`", err);
	const struct rref_record *record = rref_as_record(r);
	struct far_future *made;
	if (!record) {
		enum far_status status = far_future_then(rref_as_user(r)->known, state_of, far_rref_ref(r), out, err);
		if (status)
			far_rref_free(r);
		return status;
	}
	enum far_status status = far_future_create(&made, err);
	if (status)
		return status;
	far_future_set_value(made, NULL, NULL);
	*out = made;
	return FAR_OK;
}

bool far_rref_may_be(const struct far_rref *r, enum far_type type)
{
	return r && (unsigned)type < FAR_TYPE_COUNT && (r->types >> type & 1);
}

const char *far_rref_text(const struct far_rref *r, char *buf, size_t len)
{
	static_assert(FAR_RREF_TEXT_MAX == RREF_TEXT_MAX, "the public size is the internal one");
	if (r)
		return rref_text(&r->base, buf, len);
	snprintf(buf, len, "RRef(NULL)");
	return buf;
}

bool far_rref_same(const struct far_rref *a, const struct far_rref *b)
{
	return a && b && a->base.owner == b->base.owner && a->base.id.incarnation == b->base.id.incarnation &&
	       a->base.id.number == b->base.id.number;
}

struct far_rref *far_rref_ref(struct far_rref *r)
{
	if (r)
		rref_ref(&r->base);
	return r;
}

void far_rref_free(struct far_rref *r)
{
	if (r)
		rref_unref(&r->base);
}

void far_rref_counts_read_sized(struct far_agent *a, struct far_rref_counts *to, size_t bytes)
{
	struct far_rref_counts sum;
	agent_rref_counts(a, &sum);
	sized_out(to, bytes, &sum, sizeof sum);
}
