/* SPDX-License-Identifier: BSD-3-Clause */
/** The start of EAL, once per process, without huge pages: what is refused, and what it leaves of the starting thread.
 * The test's thread. */
#include "nic/dpdk/dpdk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <rte_log.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct nic_err err;

static void start(void)
{
	cr_assert_eq(dpdk_eal_start(0, false, &err), 0, "%s", err.text);
	cr_assert_not(dpdk_eal_huge());
}

Test(dpdk_eal, starts_once)
{
	cpu_set_t before, after;
	cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
	start();
	start();
	cr_assert_eq(sched_getaffinity(0, sizeof after, &after), 0);
	cr_assert(CPU_EQUAL(&before, &after), "no thread is bound to a processor");
	cr_assert_eq(dpdk_eal_start(-1, false, &err), 0, "whatever it has");
	cr_assert_eq(dpdk_eal_start(1, false, &err), -EBUSY);
	cr_assert(strstr(err.text, "without huge pages") && strstr(err.text, "leave huge= out"), "%s", err.text);
	cr_assert_eq(dpdk_eal_start(0, true, &err), -EBUSY);
	cr_assert(strstr(err.text, "under uio"), "%s", err.text);
}

/* Its threads do not exist in a child. */
Test(dpdk_eal, in_a_child)
{
	int status;
	start();
	pid_t child = fork();
	if (child == 0)
		_exit(dpdk_eal_start(0, false, &err) == -EOPNOTSUPP && strstr(err.text, "fork first") ? 0 : 1);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

Test(dpdk_eal, does_not_start)
{
	char words[400] = "";
	cr_assert_eq(dpdk_eal_start(0, true, &err), -ENOMEM, "physical addresses need huge pages");
	cr_assert(strstr(err.text, "vm.nr_hugepages"), "%s", err.text);
	for (unsigned i = 0; i < 100; i++)
		strcat(words, "-x ");
	setenv("FAR_DPDK_EAL", words, 1);
	cr_assert_eq(dpdk_eal_start(0, false, &err), -E2BIG);
	cr_assert(strstr(err.text, "FAR_DPDK_EAL has too many arguments"), "%s", err.text);
	setenv("FAR_DPDK_EAL", "--no-such-option", 1);
	cr_assert_lt(dpdk_eal_start(0, false, &err), 0);
	cr_assert(strstr(err.text, "EAL cannot be started") && strstr(err.text, "see FAR_DPDK_EAL"), "%s", err.text);
}

/* Errors of DPDK within a capture, once each, without their function's name and line end. */
Test(dpdk_eal, log)
{
	start();
	dpdk_log_begin();
	cr_assert_str_eq(dpdk_log_end(), "");
	dpdk_log_begin();
	rte_log(RTE_LOG_ERR, RTE_LOGTYPE_USER1, "some_function(): it failed.\n");
	rte_log(RTE_LOG_ERR, RTE_LOGTYPE_USER1, "it failed\n");
	rte_log(RTE_LOG_WARNING, RTE_LOGTYPE_USER1, "a warning\n");
	dpdk_log_quiet(true);
	rte_log(RTE_LOG_ERR, RTE_LOGTYPE_USER1, "not this\n");
	dpdk_log_quiet(false);
	rte_log(RTE_LOG_ERR, RTE_LOGTYPE_USER1, "no device: eth0\n");
	cr_assert_str_eq(dpdk_log_end(), "it failed; no device: eth0");
	rte_log(RTE_LOG_ERR, RTE_LOGTYPE_USER1, "too late\n");
	dpdk_log_begin();
	for (unsigned i = 0; i < 100; i++)
		rte_log(RTE_LOG_ERR, RTE_LOGTYPE_USER1, "error number %u\n", i);
	const char *all = dpdk_log_end();
	cr_assert(strlen(all) == 199 && strncmp(all, "error number 0; error number 1; ", 32) == 0, "%s", all);
}
