/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Limits of the control groups of this process, its own and all above it, in version 1 and 2, also in a container that
 * sees its group as the root of the hierarchy. Any thread, off the path of calls; reads files.
 */
#ifndef FAR_BASE_CGROUP_H
#define FAR_BASE_CGROUP_H

#include <stdint.h>

/* The kernel's files; tests pass their own. */
#define CGROUP_SELF "/proc/self/cgroup"
#define CGROUP_ROOT "/sys/fs/cgroup"

/** Called for each directory of the hierarchy that limits a controller, from the process's own to the root. `version`:
 * 1 or 2. */
typedef void cgroup_visit_fn(void *ctx, const char *dir, int version);

/** Calls `fn` for all directories that limit the process for `controller`, including those that are not visible from
 * here and have no files. */
void cgroup_visit(const char *self, const char *root, const char *controller, cgroup_visit_fn *fn, void *ctx);

/** CPU quota of the process in thousandths of a CPU, at least 1; UINT64_MAX: none. A malformed file counts as no quota.
 */
uint64_t cgroup_cpu_milli(const char *self, const char *root);

#endif
