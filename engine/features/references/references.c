/* SPDX-License-Identifier: BSD-3-Clause */
/** What references register with the core. Shard thread. */
#include "features/references/rref.h"

#include "base/must.h"
#include "core/deferred.h"
#include "core/feature.h"

static bool request(struct far_req *req, uint16_t message, const uint8_t *body, uint64_t len)
{
	if (message < RREF_CALL || message > RREF_LAST)
		return false;
	rref_serve(req, message, body, len);
	return true;
}

static void record_answered(struct shard *s, struct far_deferred *d)
{
	if (d->rref)
		rref_answered(s, d);
}

static void record_gone(struct shard *s, struct far_deferred *d)
{
	if (d->rref)
		rref_record_gone(s, d);
}

static void record_over(struct shard *s, struct far_deferred *d)
{
	if (d->pins)
		rref_pins_sent(s, d);
	if (d->held)
		rref_release_held(d);
}

const struct shard_feature references_feature = {
	.name = "references",
	.init = rref_shard_init,
	.fini = rref_shard_free,
	.stop = rref_close,
	.poll_idle = rref_release_all,
	.session_lost = rref_session_lost,
	.worker_lost = rref_session_down,
	.call_ended = rref_call_ended_early,
	.call_over = rref_call_over,
	.record_answered = record_answered,
	.record_gone = record_gone,
	.record_over = record_over,
	.only = {.result_read = rref_adopt_result,
		 .call_reaches = rref_call_reaches,
		 .message_name = rref_message_name,
		 .request_message = request,
		 .request_named = rref_serve_named},
};
