/* SPDX-License-Identifier: BSD-3-Clause */
/** Waits for the time at which a batch should begin, and counts its time from then. Main thread. */
#include "pace.h"
#include "ps_clock.h"
#include "stop.h"

#define NAP_NS  UINT64_C(100000000) /* at most: a signal may reach another thread */
#define SPIN_NS UINT64_C(100000)    /* a sleep may end so much late */

void pace_wait(struct pace *p)
{
	uint64_t now = clock_ns();
	if (!p->rate)
		return;
	if (!p->n)
		p->begin_ns = now;
	p->due_ns = p->begin_ns + (uint64_t)((double)p->n++ * 1e9 / (double)p->rate);
	while (now < p->due_ns && !stop_signal()) {
		uint64_t left = p->due_ns - now;
		if (left > SPIN_NS)
			clock_nap(left - SPIN_NS < NAP_NS ? left - SPIN_NS : NAP_NS);
		now = clock_ns();
	}
}

void pace_ended(struct pace *p)
{
	if (p->rate)
		latency_record(p->times, clock_ns() - p->due_ns);
}
