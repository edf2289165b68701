/* SPDX-License-Identifier: BSD-3-Clause */
/** What the checkers share. Any thread. */
#ifndef SIM_CHECK_INNER_H
#define SIM_CHECK_INNER_H

#include "sim/check.h"

struct judge {
	const struct history *h;
	const struct checks *checks;
	char *text; /* CHECK_TEXT_MAX */
};

/** "call 7 (echo, 0 to 1, at 1.000345 s): ", followed by the objection; returns false. */
__attribute__((format(printf, 3, 4))) bool check_object(struct judge *j, const struct history_call *c,
							const char *format, ...);
/** Behind the last call. */
const struct history_call *check_end(const struct history *h);

/* ---- check_late.c ---- */

bool check_late(struct judge *j);
bool check_orphans(struct judge *j);

#endif
