/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds a shared object that belongs to this library: beside it, or in the tree that it was built in. Any thread. */
#ifndef FAR_BASE_MODULE_H
#define FAR_BASE_MODULE_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Looks for `file` in folders[0, n), which are relative to the directory of the library, or of the program that
 * contains it. True: path[0, cap) names a file of this user or of root that others cannot write.
 */
bool module_path_beside(const char *file, const char *const *folders, size_t n, char *path, size_t cap);

#endif
