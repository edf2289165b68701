/* SPDX-License-Identifier: BSD-3-Clause */
/** A request without an engine: far_return(), far_return_tensor() and far_fail() keep what a handler answered. A test
 * that links this does not link the library. */
#ifndef FAR_TESTS_FAKE_REQ_H
#define FAR_TESTS_FAKE_REQ_H

#include <farcall/rpc.h>

struct far_req {
	size_t bytes_max;       /* results beyond are FAR_TOO_LARGE; set by fake_req_call */
	unsigned answers;       /* 1 after a handler that behaves */
	enum far_status status; /* of the answer */
	struct far_val value;   /* of a good answer; a tensor's elements lie in `data` when returned in place */
	char *data;             /* allocated to the byte, or NULL; fake_req_fini() frees it */
	struct far_err err;     /* of a far_fail() */
};

/** Calls built-in `name` with arguments and fills `req`. Returns the handler's status. */
enum far_status fake_req_call(struct far_req *req, const char *name, const struct far_val *args, size_t n);

void fake_req_fini(struct far_req *req);

#endif
