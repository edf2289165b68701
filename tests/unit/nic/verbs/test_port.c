/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports of the verbs driver over the fake device: what opens, what does not, and its operations. The test's thread. */
#include "verbs_fixture.h"

/* Whatever the device refuses, nothing of it is left, and the error says what helps. */
static void cannot_open(const char *text, int error, const char *why, const char *remedy)
{
	const struct nic_config config = {.queues = 3, .args = text};
	struct nic_port *port = NULL;
	cr_assert_eq(verbs_port_ops.open(&config, &port, &err), error, "%s", err.text);
	cr_assert(!port && strstr(err.text, why) && strstr(err.text, remedy), "%s", err.text);
	cr_assert(fake_verbs.contexts == 0 && fake_verbs.pds == 0 && fake_verbs.cqs == 0 && fake_verbs.qps == 0 &&
		  fake_verbs.mrs == 0 && fake_verbs.channels == 0);
	fake_verbs_reset();
}

Test(verbs_port, open_refused)
{
	fake_verbs.reg_error = ENOMEM;
	cannot_open(NULL, -ENOMEM, "RLIMIT_MEMLOCK is", "smaller rx_slots=");
	fake_verbs.reg_error = EFAULT;
	cannot_open(NULL, -EFAULT, "registering", "Bad address");
	fake_verbs.qp_error = ENOSPC;
	cannot_open(NULL, -ENOSPC, "no queue pair", "fewer shards");
	fake_verbs.cq_error = EMFILE;
	cannot_open(NULL, -EMFILE, "no completion queue", "fewer shards");
	fake_verbs.limits.max_qp = 2;
	cannot_open(NULL, -ENOSPC, "2 queue pairs", "fewer shards");
	fake_verbs.limits.max_qp_wr = 300;
	cannot_open(NULL, -EINVAL, "hold 300 packets", "rx_slots");
	fake_verbs.post_recv = NULL;
	cannot_open("rxe9", -ENODEV, "no device \"rxe9\"", "fake0");
}
