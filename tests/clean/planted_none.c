/* SPDX-License-Identifier: BSD-3-Clause */
/** The clean-path test without planted defects. Main thread of each process. */
#include "planted.h"

const unsigned planted_n = 0;

int planted_check(int (*run)(enum far_progress progress))
{
	return run(FAR_PROGRESS_DEDICATED);
}
