/* SPDX-License-Identifier: BSD-3-Clause */
/** What nic=verbs:... may say. The test's thread. */
#include "verbs_fixture.h"

static struct verbs_args args;

Test(verbs_args, args)
{
	cr_assert_eq(verbs_args_parse(NULL, &args, &err), 0);
	cr_assert(args.device[0] == 0 && args.port == 0 && args.gid == -1 && args.rx_slots == VERBS_RX_SLOTS);
	cr_assert_eq(
		verbs_args_parse("rxe0,port=2,gid=3,rx_slots=64,mtu=1024,dscp=off,sl=0/1/2/3/4/5/6/15", &args, &err), 0,
		"%s", err.text);
	cr_assert_str_eq(args.device, "rxe0");
	cr_assert(args.port == 2 && args.gid == 3 && args.rx_slots == 64 && args.mtu == 1024);
	cr_assert(args.dscp.tos[7] == 0 && args.sl[7] == 15 && args.sl[1] == 1);
	cr_assert_eq(verbs_args_parse("device=mlx5_0", &args, &err), 0);
	cr_assert_str_eq(args.device, "mlx5_0");
	cr_assert_eq(verbs_args_parse("port=1", &args, &err), 0);
	cr_assert_eq(verbs_args_parse("rxe0,sl=off", &args, &err), 0);
}

Test(verbs_args, args_wrong)
{
	static const struct {
		const char *text, *named;
	} wrong[] = {{"rxe0,port=0", "port=0"},
		     {"rxe0,port=256", "port=256"},
		     {"rxe0,gid=-1", "gid=-1"},
		     {"gid=1", "needs a device"},
		     {"rxe0,rx_slots=63", "rx_slots=63"},
		     {"rxe0,rx_slots=16385", "16384"},
		     {"rxe0,mtu=1023", "mtu=1023"},
		     {"rxe0,dscp=1/2", "dscp=1/2"},
		     {"rxe0,sl=0/1/2/3/4/5/6/16", "[0, 15]"},
		     {"rxe0,sl=0/1/2/3/4/5/6", "[0, 15]"},
		     {"rxe0,sl=0/1/2/3/4/5/6/7/8", "[0, 15]"},
		     {"rxe0,colour=red", "\"colour\""},
		     {"rxe0,", "is not key=value"},
		     {",", "is not key=value"},
		     {"rxe0,=1", "is not key=value"},
		     {"rxe0,rxe1", "is not key=value"},
		     {"device=", "device="}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		cr_assert_eq(verbs_args_parse(wrong[i].text, &args, &err), -EINVAL, "%s", wrong[i].text);
		cr_assert(strstr(err.text, wrong[i].named), "%s: %s", wrong[i].text, err.text);
	}
}
