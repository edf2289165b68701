/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds and loads a shared object that belongs to this library: beside it, or in the tree that it was built in. Any
 * thread but a poller. */
#ifndef FAR_BASE_MODULE_H
#define FAR_BASE_MODULE_H

#include <farcall/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Looks for `file` in folders[0, n), which are relative to the directory of the library, or of the program that
 * contains it. True: path[0, cap) names a file of this user or of root that others cannot write.
 */
bool module_path_beside(const char *file, const char *const *folders, size_t n, char *path, size_t cap);

/** Begins the content of a module's symbol. */
struct module_head {
	uint32_t abi;        /* module_wanted.abi of its build */
	const char *version; /* FAR_VERSION, likewise */
};

struct module_wanted {
	const char *file, *symbol;
	uint32_t abi;
	const char *const *folders; /* as of module_path_beside() */
	size_t folders_n;
	const char *dir; /* where else it is, unless FAR_MODULE_DIR names the only one; NULL: where the loader looks */
	enum far_status status; /* when there is none */
	const char *purpose;    /* begins the error: "the functions of far:: on tensors are in" */
	const char *remedy;     /* ends it: "install the package farcall-etcd" */
};

/**
 * The content of the module's symbol, loaded by the first call of the process; the module stays loaded. NULL: there is
 * none of this version; `err` has the reason and the remedy.
 */
const void *module_load(const struct module_wanted *m, struct far_err *err);

#endif
