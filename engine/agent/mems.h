/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory of the application that an agent's devices know. */
#ifndef FAR_AGENT_MEMS_H
#define FAR_AGENT_MEMS_H

#include "base/limits.h"
#include "nic/nic.h"

#include <farcall/memory.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct mems {
	pthread_mutex_t change; /* who registers or takes back, for as long as devices take */
	pthread_rwlock_t lock;  /* of what follows */
	_Atomic uint32_t n;
	struct {
		uintptr_t base, end;
	} at[FAR_MEM_REGIONS_MAX]; /* in order, without overlap */
};

void mems_init(struct mems *m);
/** What is still registered ends with the ports. */
void mems_fini(struct mems *m);
/** Is all of at[0, bytes) in one of them. Any thread; takes no lock while there are none. */
bool mems_hold(struct mems *m, const void *at, size_t bytes);

/** As far_mem_register() and far_mem_unregister(), with these ports. */
enum far_status mems_register(struct mems *m, struct nic_port *const *ports, unsigned n, void *base, size_t bytes,
			      struct far_err *err);
enum far_status mems_unregister(struct mems *m, struct nic_port *const *ports, unsigned n, void *base,
				struct far_err *err);

#endif
