/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Tensors between workers of stages.c and hybrid.c: each worker has numbered slots, and a worker sends a tensor to a
 * slot of another. One thread takes them. A slot holds one tensor: the sender knows that the last one was taken,
 * because it has something that the receiver sent afterwards.
 */
#ifndef EXAMPLES_INBOX_H
#define EXAMPLES_INBOX_H

#include <farcall/farcall.h>

#include <time.h>

enum { INBOX_SLOTS = 64 };

static struct far_future *inbox[INBOX_SLOTS]; /* complete with the tensor */

static enum far_status inbox_init(struct far_err *err)
{
	for (int i = 0; i < INBOX_SLOTS; i++)
		if (far_future_create(&inbox[i], err))
			return err->status;
	return FAR_OK;
}

FAR_HANDLER(inbox_put)
{
	if (args[0].u.i < 0 || args[0].u.i >= INBOX_SLOTS)
		return far_fail(req, FAR_BAD_ARGS, 0, "no slot %lld", (long long)args[0].u.i);
	enum far_status status = far_future_set_value(inbox[args[0].u.i], &args[1], NULL);
	return status ? status : far_return_none(req);
}

/* Registered by every worker. */
#define INBOX_FUNCTION                                                                                                 \
	{                                                                                                              \
		"inbox::put(int slot, Tensor t) -> none", FAR_KIND_INLINE, inbox_put, NULL, 0                          \
	}

/** Waits for the tensor of a slot, and empties the slot. `*out` is the caller's. */
static enum far_status inbox_take(int slot, struct far_val *out, struct far_err *err)
{
	enum far_status status = far_future_wait(inbox[slot], 0, out, err);
	far_future_free(inbox[slot]);
	enum far_status made = far_future_create(&inbox[slot], status ? NULL : err);
	return status ? status : made;
}

/** Sends a tensor. Does not wait: the caller has a scope, whose end waits for all and returns the first error. */
static enum far_status inbox_send(struct far_agent *agent, int worker, int slot, const struct far_tensor *t,
				  struct far_err *err)
{
	struct far_to to = {worker, -1};
	struct far_future *f = NULL;
	enum far_status status = far_rpc_async_to(agent, to, "inbox::put", FAR_ARGS(slot, t), NULL, &f, err);
	far_future_free(f);
	return status;
}

/** Seconds of a clock that never goes back. */
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
