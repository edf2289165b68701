/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the control groups of this process allow it: the limits of its own group and of all above it. Version 1 and 2;
 * a container that sees its group as the root of the hierarchy included. Reads files; anyone, off the paths of calls.
 */
#ifndef FAR_BASE_CGROUP_H
#define FAR_BASE_CGROUP_H

#include <stdint.h>

/* Where the kernel tells it; tests have trees of their own. */
#define CGROUP_SELF "/proc/self/cgroup"
#define CGROUP_ROOT "/sys/fs/cgroup"

/** A directory of the hierarchy that bounds `controller`, from the process's own up to the root; `version` 1 or 2. */
typedef void cgroup_visit_fn(void *ctx, const char *dir, int version);

/** Visits all that bound the process. Directories that cannot be seen from here are visited too: their files are not
 * there. */
void cgroup_visit(const char *self, const char *root, const char *controller, cgroup_visit_fn *fn, void *ctx);

/** The CPU time that the process may use, in thousandths of a CPU: at least 1, UINT64_MAX without a quota. What is
 * malformed is no quota. */
uint64_t cgroup_cpu_milli(const char *self, const char *root);

#endif
