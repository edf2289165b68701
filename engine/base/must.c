/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints a failed assertion and ends the process. Any thread. */
#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>

void must_fail(const char *what, const char *file, int line)
{
	fprintf(stderr, "farcall: %s:%d: broken assumption: %s\n", file, line, what);
	abort();
}
