/* SPDX-License-Identifier: BSD-3-Clause */
/** What nic=lossy:... may say. The test's thread. */
#include "nic/lossy/lossy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void check_bad(const char *args, const char *names)
{
	struct lossy_args out;
	struct nic_err err = {""};
	cr_assert_eq(lossy_args_parse(args, &out, &err), -EINVAL, "\"%s\" is taken", args ? args : "(none)");
	cr_assert(strstr(err.text, names), "\"%s\": %s", args ? args : "(none)", err.text);
}

Test(lossy_args, bad_arguments)
{
	check_bad(NULL, "over=");
	check_bad("", "over=");
	check_bad("drop=0.1", "over=");
	check_bad("over=", "over= takes");
	check_bad("over=a-name-that-is-too-long", "over= takes");
	check_bad("over=shm,over=udp", "over= is there twice");
	check_bad("over=shm,drop=0.1,drop=0.1", "drop= is there twice");
	check_bad("over=shm,dorp=0.1", "\"dorp=0.1\" is none of");
	check_bad("over=shm,drop", "\"drop\" is none of");
	check_bad("over=shm,,drop=1", "\"\" is none of");
	const char *chances[] = {"",     "1.1", "2", "101%",  "-1",   "x",    "0.1x",       "1%%",         "0,1x",
				 "1e-2", "nan", ".", "1.1%%", "0.1 ", " 0.1", "1234567890", "0.1234567890"};
	const char *keys[] = {"drop", "duplicate", "delay", "reorder", "corrupt"};
	for (unsigned k = 0; k < sizeof keys / sizeof *keys; k++)
		for (unsigned i = 0; i < sizeof chances / sizeof *chances; i++) {
			char text[100], names[100];
			snprintf(text, sizeof text, "over=shm,%s=%s", keys[k], chances[i]);
			snprintf(names, sizeof names, strchr(chances[i], ',') ? "%s" : "%s= takes",
				 strchr(chances[i], ',') ? "1x" : keys[k]);
			check_bad(text, names);
		}
	check_bad("over=shm,delay=0.1:", "delay= takes");
	check_bad("over=shm,delay=0.1:5", "delay= takes");
	check_bad("over=shm,delay=0.1:5m", "delay= takes");
	check_bad("over=shm,delay=0.1:0ms", "delay= takes");
	check_bad("over=shm,delay=0.1:11s", "delay= takes");
	check_bad("over=shm,delay=0.1:999999999s", "delay= takes");
	check_bad("over=shm,delay=:5ms", "delay= takes");
	check_bad("over=shm,reorder=0.1:0", "reorder= takes");
	check_bad("over=shm,reorder=0.1:1025", "reorder= takes");
	check_bad("over=shm,reorder=0.1:3x", "reorder= takes");
	check_bad("over=shm,reorder=0.1:18446744073709551617", "reorder= takes");
	check_bad("over=shm,seed=", "seed= takes");
	check_bad("over=shm,seed=-1", "seed= takes");
	check_bad("over=shm,seed=18446744073709551616", "seed= takes");
	check_bad("over=shm,bytes=63", "bytes= takes");
	check_bad("over=shm,bytes=65536", "bytes= takes");
}

Test(lossy_args, arguments)
{
	struct lossy_args a;
	struct nic_err err = {""};
	cr_assert_eq(lossy_args_parse("over=udp", &a, &err), 0, "%s", err.text);
	cr_assert_str_eq(a.over, "udp");
	cr_assert(!a.lower_args && !(a.drop | a.duplicate | a.delay | a.reorder | a.corrupt) && a.seed == 1);
	cr_assert_eq(lossy_args_parse("over=dpdk,drop=0.25,delay=.5:1.5ms,duplicate=0%,reorder=1:1024,corrupt=12.5%,"
				      "seed=18446744073709551615,bytes=1400,args=net_memif0,role=server,drop=x",
				      &a, &err),
		     0, "%s", err.text);
	cr_assert_eq(a.drop, UINT64_C(1) << 30);
	cr_assert_eq(a.delay, UINT64_C(1) << 31);
	cr_assert_eq(a.delay_ns, UINT64_C(1500000));
	cr_assert_eq(a.duplicate, 0u);
	cr_assert(a.reorder == UINT64_C(1) << 32 && a.reorder_by == 1024);
	cr_assert_eq(a.corrupt, UINT64_C(1) << 29);
	cr_assert_eq(a.seed, UINT64_MAX);
	cr_assert_eq(a.bytes, 1400u);
	cr_assert_str_eq(a.lower_args, "net_memif0,role=server,drop=x");
	cr_assert_eq(lossy_args_parse("over=shm,delay=1:250ns", &a, &err), 0);
	cr_assert_eq(a.delay_ns, 250u);
	cr_assert_eq(lossy_args_parse("over=shm,delay=1:10s", &a, &err), 0);
	cr_assert_eq(a.delay_ns, UINT64_C(10000000000));
}
