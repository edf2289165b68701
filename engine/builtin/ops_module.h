/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The functions of far:: on tensors: libfarcall-ops has them, and an agent registers them when it starts. That library
 * needs no symbol of libfarcall: its handlers call the agent's side through struct ops_host, and it exports one symbol
 * for this, `far_ops_module`. Loading: any thread but a poller. Handlers: by their kind.
 */
#ifndef FAR_BUILTIN_OPS_MODULE_H
#define FAR_BUILTIN_OPS_MODULE_H

#include "base/module.h"

#include <farcall/rpc.h>

/* Raised with every change of what this header declares. */
#define OPS_MODULE_ABI 1u

/** What handlers call; `user` of every handler. */
struct ops_host {
	enum far_status (*answer)(struct far_req *req, const struct far_val *value);
	enum far_status (*answer_tensor)(struct far_req *req, enum far_dtype dtype, unsigned ndim,
					 const uint64_t *shape, void **data);
	enum far_status (*fail)(struct far_req *req, enum far_status status, int32_t code, const char *format, ...);
};

/** Content of `far_ops_module`. */
struct ops_module {
	struct module_head head;              /* OPS_MODULE_ABI */
	const struct far_function *functions; /* without `user` */
	size_t functions_n;
};

/**
 * The module, loaded by the first call of the process. It stays loaded. NULL: there is none; `err` has the reason and
 * the remedy.
 */
const struct ops_module *ops_module_load(struct far_err *err);
/** That host for the handlers. */
extern struct ops_host ops_host;

#endif
