/* SPDX-License-Identifier: BSD-3-Clause */
/** The round trip of a cache line: two lines, one written by each side, the clock read on every trip.
 * Main thread of each process. */
#include "floor_ring.h"

int floor_line_serve(struct floor_shared *s, uint64_t mode)
{
	uint64_t n = s->position;
	for (;;) {
		int rc = floor_spin(s, mode, &s->line[0].v, ++n);
		if (rc)
			return rc < 0 ? rc : 0;
		atomic_store_explicit(&s->line[1].v, n, memory_order_release); /* pairs with the client's spin */
	}
}

int floor_line(struct floor_shared *s, uint64_t ns, struct hist *h)
{
	uint64_t n = s->position;
	int rc = floor_switch(s, FLOOR_LINE);
	uint64_t mode = atomic_load_explicit(&s->mode.v, memory_order_relaxed);
	uint64_t before = floor_now(), end = before + ns;
	while (rc == 0 && before < end) {
		atomic_store_explicit(&s->line[0].v, ++n, memory_order_release); /* pairs with the server's spin */
		rc = floor_spin(s, mode, &s->line[1].v, n);
		uint64_t after = floor_now();
		hist_record(h, after - before);
		before = after;
	}
	if (rc == 0)
		rc = floor_switch(s, FLOOR_IDLE);
	s->position = n;
	return rc;
}
