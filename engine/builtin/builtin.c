/* SPDX-License-Identifier: BSD-3-Clause */
/** Registers the functions that every worker has; far::identity, which runs inline on a shard.
 * Shard thread; registration at the start. */
#include "builtin/builtin.h"

#include "builtin/awake.h"
#include "builtin/gather.h"
#include "builtin/ops_module.h"
#include "builtin/rref_bytes.h"
#include "builtin/rref_call.h"
#include "value/registry.h"

static enum far_status call_identity(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	(void)user;
	return far_return(req, &args[0]);
}

/* They have no state, so each may run again for the same call. */
static enum far_status add(struct registry *r, struct far_function f, struct far_err *err)
{
	f.flags |= FAR_IDEMPOTENT;
	return registry_add(r, &f, err);
}

enum far_status builtin_register(struct registry *r, struct far_err *err)
{
	static const struct far_function identity = {
		.signature = "far::identity(Any x) -> Any", .kind = FAR_KIND_INLINE, .fn = call_identity};
	const struct ops_module *ops = ops_module_load(NULL);
	enum far_status status = add(r, identity, err);
	if (!status)
		status = registry_add(r, &gather_function, err);
	if (!status)
		status = registry_add(r, &awake_function, err);
	if (!status)
		status = registry_add(r, &rref_call_function, err);
	if (!status)
		status = registry_add(r, &rref_claim_function, err);
	for (size_t i = 0; ops && i < ops->functions_n && !status; i++) {
		struct far_function f = ops->functions[i];
		f.user = &ops_host;
		status = add(r, f, err);
	}
	return status;
}

bool builtin_no_ops(const char *name, struct far_err *err)
{
	return name && strncmp(name, "far::", 5) == 0 && !ops_module_load(err);
}
