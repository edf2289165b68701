/* SPDX-License-Identifier: BSD-3-Clause */
/** Error texts: what failed, and what helps. The test's thread. */
#include "verbs_fixture.h"

#include <sys/resource.h>

Test(verbs_diagnose, memory_limit_text_names_what_is_needed)
{
	verbs_cannot_lock("rxe0", 1 << 20, 4 << 20, ENOMEM, "give a smaller rx_slots=", &err);
	cr_assert(strstr(err.text, "1024 KiB of the 4096"), "%s", err.text);
}

/* Which of the reasons it is depends on the node: /dev/infiniband is not there on most machines of tests. */
Test(verbs_diagnose, devices_that_cannot_be_opened)
{
	cr_assert_eq(verbs_cannot_open("fake7", "uverbs-of-nobody", EIO, &err), -ENODEV);
	cr_assert(strstr(err.text, "fake7: /dev/infiniband/uverbs-of-nobody does not exist"), "%s", err.text);
	cr_assert(strstr(err.text, "--device /dev/infiniband/uverbs-of-nobody"), "%s", err.text);
	/* A node that is there and may be opened: what the device said is passed on. */
	cr_assert_eq(verbs_cannot_open("fake7", "../null", EBUSY, &err),
		     access("/dev/infiniband", F_OK) ? -ENODEV : -EBUSY);
}

Test(verbs_diagnose, connection_manager)
{
	cr_assert_eq(verbs_cannot_cm("fake0", EACCES, &err), -EACCES);
	cr_assert(strstr(err.text, "fake0: rdma_cm") && strstr(err.text, "Permission denied") &&
			  strstr(err.text, "modprobe rdma_ucm"),
		  "%s", err.text);
	cr_assert_eq(verbs_cannot_cm("fake0", 0, &err), -EIO, "an unknown reason is none the less an error");
}

/* A limit is named if that is the reason; other errors are passed on. */
Test(verbs_diagnose, memory_that_cannot_be_locked)
{
	cr_assert_eq(verbs_cannot_lock("fake0", 1 << 20, 1 << 22, EFAULT, "x", &err), -EFAULT);
	cr_assert(strstr(err.text, "registering 1024 KiB") && strstr(err.text, "Bad address"), "%s", err.text);
	struct rlimit few = {.rlim_cur = 65536, .rlim_max = 65536};
	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &few), 0);
	static const int errors[] = {ENOMEM, EAGAIN, EPERM};
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(verbs_cannot_lock("fake0", 1 << 20, 1 << 22, errors[i], "give less=", &err), -ENOMEM);
		cr_assert(strstr(err.text, "RLIMIT_MEMLOCK is 64 KiB") && strstr(err.text, "ulimit -l 8192") &&
				  strstr(err.text, "or give less="),
			  "%s", err.text);
	}
}
