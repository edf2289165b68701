/* SPDX-License-Identifier: BSD-3-Clause */
/** Between the test's side and the workers'. Handlers: shard threads, fibers and threads of the agent. */
#ifndef CONFORM_RUN_H
#define CONFORM_RUN_H

#include "conform.h"

/** Seen by all processes of a test. */
struct conform_shared {
	struct {
		_Atomic(const char *) place; /* a literal of the program: the same address in all of them */
		_Atomic bool may_die;
		_Atomic int64_t number;
	} worker[WORLD];
};

/** What a process of the group does; stdout and stderr are kept by the test already. */
_Noreturn void conform_worker(struct conform_shared *shared, int rank, int port, int listener, conform_body *body,
			      int how);

/** FAR_CONFORM_NIC: "shm" (default), "udp", "lossy", "memif", "verbs", "cards". */
const char *conform_mode(void);

extern const struct far_function conform_functions[];
extern const size_t conform_functions_n;
extern const struct far_custom_type conform_box;

#endif
