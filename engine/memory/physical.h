/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory available to this process: the machine's, or less in a container. Any thread. */
#ifndef FAR_MEMORY_PHYSICAL_H
#define FAR_MEMORY_PHYSICAL_H

#include "base/cgroup.h"

#include <stdint.h>

/** Bytes; 0: unknown. `self` and `root`: CGROUP_SELF and CGROUP_ROOT, or those of a test. Reads files. */
uint64_t physical_bytes(const char *self, const char *root);

#endif
