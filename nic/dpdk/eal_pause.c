/* SPDX-License-Identifier: BSD-3-Clause */
/** Pauses EAL's interrupt thread inside an alarm callback. Control thread; the callback runs on the interrupt thread.
 */
#include "nic/dpdk/eal_pause.h"

#include <errno.h>
#include <pthread.h>
#include <rte_alarm.h>
#include <stdbool.h>
#include <time.h>

#define LIMIT_S 5

/* Stops EAL's interrupt thread: requested (our thread) → paused (the interrupt thread, which waits) → both false. */
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool requested, paused;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void pause_callback(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&gate.mutex);
	gate.paused = true;
	pthread_cond_broadcast(&gate.changed);
	while (gate.requested)
		pthread_cond_wait(&gate.changed, &gate.mutex);
	gate.paused = false;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.mutex);
}

int eal_interrupts_pause(void)
{
	struct timespec limit;
	int error = 0;
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += LIMIT_S;
	pthread_mutex_lock(&gate.mutex);
	bool was_requested = gate.requested;
	gate.requested = true;
	pthread_mutex_unlock(&gate.mutex);
	/* Alarm callbacks run on the interrupt thread. */
	if (!was_requested)
		error = rte_eal_alarm_set(1, pause_callback, NULL);
	pthread_mutex_lock(&gate.mutex);
	while (!gate.paused && !error)
		error = -pthread_cond_clockwait(&gate.changed, &gate.mutex, CLOCK_MONOTONIC, &limit);
	if (error)
		gate.requested = false;
	pthread_mutex_unlock(&gate.mutex);
	return error;
}

void eal_interrupts_resume(void)
{
	pthread_mutex_lock(&gate.mutex);
	gate.requested = false;
	pthread_cond_broadcast(&gate.changed);
	while (gate.paused)
		pthread_cond_wait(&gate.changed, &gate.mutex);
	pthread_mutex_unlock(&gate.mutex);
}
