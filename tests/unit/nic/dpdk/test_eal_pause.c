/* SPDX-License-Identifier: BSD-3-Clause */
/** EAL's interrupt thread is paused: its callbacks wait. The test's thread. */
#include "nic/dpdk/dpdk.h"
#include "nic/dpdk/eal_pause.h"

#include <criterion/criterion.h>
#include <rte_alarm.h>
#include <unistd.h>

static _Atomic unsigned calls;

static void on_alarm(void *arg)
{
	atomic_fetch_add(&calls, 1);
}

static void until_called(unsigned n)
{
	for (unsigned i = 0; i < 20000 && atomic_load(&calls) < n; i++)
		usleep(1000);
	cr_assert_eq(atomic_load(&calls), n);
}

Test(dpdk_eal_pause, callbacks_wait)
{
	struct nic_err err;
	cr_assert_eq(dpdk_eal_start(0, false, &err), 0, "%s", err.text);
	eal_interrupts_resume(); /* it is not paused */
	for (unsigned round = 0; round < 5; round++) {
		cr_assert_eq(eal_interrupts_pause(), 0);
		cr_assert_eq(eal_interrupts_pause(), 0, "it is paused already");
		cr_assert_eq(rte_eal_alarm_set(1, on_alarm, NULL), 0);
		usleep(2000);
		cr_assert_eq(atomic_load(&calls), round);
		eal_interrupts_resume();
		until_called(round + 1);
	}
}
