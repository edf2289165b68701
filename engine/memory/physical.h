/* SPDX-License-Identifier: BSD-3-Clause */
/** How much memory this process can have: the machine's, or less in a container. */
#ifndef FAR_MEMORY_PHYSICAL_H
#define FAR_MEMORY_PHYSICAL_H

#include "base/cgroup.h"

#include <stdint.h>

/** Bytes; 0 when nothing tells. `self` and `root` are CGROUP_SELF and CGROUP_ROOT, or a test's. Reads files. */
uint64_t physical_bytes(const char *self, const char *root);

#endif
