/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An interceptor that has a static probe at the beginning and the end of each call and each request. It is there with
 * FAR_PROBES=1 alone: the fast path of small calls has no probe, and is left for the general one. The threads of
 * interceptors.
 */
#include "features/profile/probes.h"

#include "base/log.h"
#include "base/probe.h"
#include "features/intercept/intercept.h"
#include "features/profile/profile.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(void *) == sizeof(uint64_t), "a cookie is a time");

/* Functions have names, messages numbers, fetches neither. */
static const char *name_of(const struct far_call_info *call)
{
	return call->function ? call->function : "";
}

static enum far_status call_out(const struct far_call_info *call, struct far_tlv_out *out, void **cookie,
				struct far_err *err, void *user)
{
	(void)out, (void)err, (void)user;
	*cookie = (void *)(uintptr_t)profile_now();
	PROBE(call_begin, name_of(call), call->message, call->from.worker, call->to.worker);
	return FAR_OK;
}

static void reply_in(const struct far_call_info *call, const struct far_tlv_in *in, const struct far_err *err,
		     void *cookie, void *user)
{
	(void)in, (void)user;
	PROBE(call_end, name_of(call), call->message, call->from.worker, call->to.worker, err ? err->status : FAR_OK,
	      profile_now() - (uintptr_t)cookie);
}

static enum far_status request_in(const struct far_call_info *call, const struct far_tlv_in *in, void **cookie,
				  struct far_err *err, void *user)
{
	uint64_t now = profile_now();
	(void)in, (void)err, (void)user;
	*cookie = (void *)(uintptr_t)now;
	PROBE(request_begin, name_of(call), call->message, call->from.worker, call->to.worker, now - call->received_ns);
	return FAR_OK;
}

static void request_end(const struct far_call_info *call, enum far_status status, void *cookie, void *user)
{
	(void)user;
	PROBE(request_end, name_of(call), call->message, call->from.worker, call->to.worker, status,
	      profile_now() - (uintptr_t)cookie);
}

static void add(void)
{
	static const struct far_interceptor probes = {.name = "probes",
						      .call_out = call_out,
						      .reply_in = reply_in,
						      .request_in = request_in,
						      .request_end = request_end};
	const char *wanted = getenv("FAR_PROBES");
	if (!wanted || !*wanted || strcmp(wanted, "0") == 0)
		return;
	if (strcmp(wanted, "1") != 0) {
		log_line(FAR_LOG_WARNING, "FAR_PROBES is \"%s\": it is 0 or 1; calls have no probes", wanted);
		return;
	}
	if (!PROBES)
		log_line(FAR_LOG_WARNING,
			 "FAR_PROBES=1: this build has no probes; install systemtap-sdt-dev and build");
	intercept_add_own(INTERCEPT_PROBES, &probes);
	intercept_own_sees(INTERCEPT_PROBES, true);
	intercept_own_every(INTERCEPT_PROBES, true);
}

void probes_present(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, add);
}
