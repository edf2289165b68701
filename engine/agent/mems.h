/* SPDX-License-Identifier: BSD-3-Clause */
/** Application memory that is registered with an agent's devices. Application threads. */
#ifndef FAR_AGENT_MEMS_H
#define FAR_AGENT_MEMS_H

#include "base/limits.h"
#include "nic/nic.h"

#include <farcall/memory.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct mems {
	pthread_mutex_t change; /* serialises register and unregister, while devices work */
	pthread_rwlock_t lock;  /* protects `at`; held for short times */
	_Atomic uint32_t n;     /* entries of `at`; written under `lock` */
	struct {
		uintptr_t base, end;
	} at[FAR_MEM_REGIONS_MAX]; /* ascending, without overlap */
};

void mems_init(struct mems *m);
/** Regions that are still registered end with the ports. */
void mems_fini(struct mems *m);
/** True if [at, at + bytes) lies in one region. Any thread; takes no lock while there are none. */
bool mems_hold(struct mems *m, const void *at, size_t bytes);

/** far_mem_register() and far_mem_unregister() for these ports. */
enum far_status mems_register(struct mems *m, struct nic_port *const *ports, unsigned n, void *base, size_t bytes,
			      struct far_err *err);
enum far_status mems_unregister(struct mems *m, struct nic_port *const *ports, unsigned n, void *base,
				struct far_err *err);

#endif
