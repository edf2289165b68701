/* SPDX-License-Identifier: BSD-3-Clause */
/** Deadlines of pending calls: stamped at a reading of the clock, armed when they are near. Shard thread. */
#include "core/call_deadline.h"

#include "base/must.h"
#include "core/call.h"
#include "core/call_unsent.h"
#include "core/shard.h"
#include "value/signature.h"

#include <stdio.h>

/* A pending call whose deadline is neither armed nor infinite. */
static bool call_ages(const struct call *c)
{
	return c->state >= CALL_SENT && !c->timer.at_prev && c->timer.at != TIME_NEVER;
}

static void take_young(struct shard *s, uint64_t now)
{
	for (uint32_t i = 0; i < s->young_n; i++) {
		struct call *c = &s->calls[s->young[i]];
		c->young = 0;
		s->latency.pending_since[c->slot] = now;
		if (!call_ages(c))
			continue;
		if (c->timer.at & CALL_UNSTAMPED)
			c->timer.at = time_after(now, c->timer.at & ~CALL_UNSTAMPED);
		if (unlikely(c->timer.at < now + CALL_NEAR_NS)) {
			timer_arm(&s->call_wheel, &c->timer, c->timer.at);
		} else if (!c->aging) {
			uint32_t at = s->aging_first + s->aging_n++;
			c->aging = 1;
			s->aging[at < s->calls_n ? at : at - s->calls_n] = (struct aging_call){c->slot, now};
		}
	}
	s->young_n = 0;
}

static void arm_aged(struct shard *s, uint64_t before)
{
	while (s->aging_n) {
		const struct aging_call *aging = &s->aging[s->aging_first];
		struct call *c = &s->calls[aging->slot];
		if (aging->since > before)
			return;
		s->aging_first = s->aging_first + 1 == s->calls_n ? 0 : s->aging_first + 1;
		s->aging_n--;
		c->aging = 0;
		if (call_ages(c))
			timer_arm(&s->call_wheel, &c->timer, c->timer.at);
	}
}

void call_stamp(struct shard *s, uint64_t now)
{
	take_young(s, now);
	arm_aged(s, now - CALL_NEAR_NS / 2);
}

void call_arm_all(struct shard *s, uint64_t now)
{
	take_young(s, now);
	arm_aged(s, UINT64_MAX);
}

void call_on_timer(struct shard *s, struct call *c)
{
	char text[FAR_ERR_TEXT_MAX], name[SIGNATURE_NAME_MAX];
	counter_add(&s->counters.calls_timed_out, 1);
	snprintf(text, sizeof text, "no answer to %s within the call's time-out",
		 call_name(s, c->typed, c->fn, c->done, c->user, name, sizeof name));
	call_end_early(s, c, FAR_TIMEOUT, text);
}
