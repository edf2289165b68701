/* SPDX-License-Identifier: BSD-3-Clause */
/** Plants a defect by its name, in the build with mutants. The test's thread, before a run. */
#ifndef FAR_TESTS_PLANTED_H
#define FAR_TESTS_PLANTED_H

#include "base/mutant.h"

#include <stdbool.h>
#include <string.h>

/* False: there is no such defect, or this build has none. */
#ifdef FAR_MUTANTS
static bool plant(const char *name)
{
	static const char *const all[] = {"",
#define MUTANT_NAME(id, name, text) name,
					  MUTANT_LIST(MUTANT_NAME)
#undef MUTANT_NAME
	};
	for (int i = 1; i < MUTANT_COUNT; i++)
		if (strcmp(all[i], name) == 0)
			mutant_planted = (enum mutant)i;
	return mutant_planted != MUTANT_NONE;
}
#else
static bool plant(const char *name)
{
	(void)name;
	return false;
}
#endif

#endif
