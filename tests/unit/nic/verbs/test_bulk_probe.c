/* SPDX-License-Identifier: BSD-3-Clause */
/** bulk=auto over the fake device: on where windows' bounds are kept, off everywhere else, and nobody is harmed.
 * The test's thread. */
#include "verbs_fixture.h"

#include "nic/verbs/bulk.h"

static struct nic_caps caps_of(const struct verbs_port *p)
{
	struct nic_caps caps;
	verbs_port_ops.caps(&p->base, &caps);
	return caps;
}

static void begin(void)
{
	fake_verbs_reset();
	memset(&fake_cm, 0, sizeof fake_cm);
}

/* A port with or without; with one packet that goes round, and nothing that is left of the trial. */
static void opens(const char *args, unsigned least)
{
	struct verbs_port *p = fixture_open(args, 2);
	struct nic_caps caps = caps_of(p);
	uint64_t got[32];
	cr_assert(caps.one_sided == (least > 0) && caps.bulk_bytes_min == least, "%s", args);
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(p->queues[i]->base.ops->bulk != NULL, least > 0);
	cr_assert(fake_verbs.mws == 0 && fake_verbs.pds == 1 && fake_verbs.mrs == 2 && fake_verbs.qps == 2);
	cr_assert_eq(fake_verbs.cqs, least ? 6 : 4);
	cr_assert(!p->rc == !least && !p->mems == !least && !p->blob.bulk == !least);
	cr_assert_eq(fake_cm.ids, least ? 1 : 0);
	cr_assert_eq(fake_cm.channels, least ? 1 : 0);
	uint32_t self = fixture_dest(p, p, 0);
	cr_assert_eq(fixture_commit(p, self, 7, 100, 0), 0);
	fixture_flush(p);
	cr_assert_eq(fixture_take_all(p, 0, 1, got), 1);
	fixture_close(p);
	cr_assert(fake_cm.ids == 0 && fake_cm.channels == 0);
}

static void says(const char *what)
{
	char text[4096];
	verbs_advice(text, sizeof text);
	cr_assert(strstr(text, what), "%s", text);
	cr_assert(fake_verbs.contexts == 0 && fake_verbs.pds == 0 && fake_verbs.mws == 0 && fake_verbs.mrs == 0 &&
		  fake_verbs.qps == 0 && fake_verbs.cqs == 0 && fake_cm.channels == 0);
}

Test(verbs_bulk_probe, on_where_bounds_are_kept)
{
	begin();
	unsigned reads = fake_verbs.reads, naks = fake_verbs.read_naks;
	opens("fake0,gid=2", VERBS_BULK_AUTO_BYTES);
	/* What is inside, and beyond either end. */
	cr_assert(fake_verbs.reads == reads + 2 && fake_verbs.read_naks == naks + 2);
	opens("fake0,gid=3,bulk=auto,connections=2", VERBS_BULK_AUTO_BYTES);
	opens(NULL, VERBS_BULK_AUTO_BYTES);
	says("fake0 port 1: bulk=auto is on: messages of 65536 bytes");
}

Test(verbs_bulk_probe, off_when_it_is_said)
{
	begin();
	opens("fake0,gid=2,bulk=off", 0);
	cr_assert(fake_verbs.reads == 0 && fake_verbs.binds == 0);
}

Test(verbs_bulk_probe, bounds_that_are_not_checked)
{
	begin();
	fake_verbs.windows_loose = true;
	opens("fake0,gid=2", 0);
	says("fake0 port 1: bulk=auto is off: it does not check the bounds of memory windows");
	opens("fake0,gid=2,bulk=20000", 20000);
}

Test(verbs_bulk_probe, one_end_that_is_not_checked)
{
	for (int end = -1; end < 2; end += 2) {
		begin();
		fake_verbs.loose_end = end;
		opens("fake0,gid=2", 0);
	}
}

Test(verbs_bulk_probe, no_windows)
{
	begin();
	fake_verbs.limits.max_mw = 0;
	opens("fake0,gid=2", 0);
	says("fake0 port 1: bulk=auto is off: no memory windows of type 2");
	fake_verbs.limits.max_mw = 1000;
	fake_verbs.limits.device_cap_flags = 0;
	opens("fake0,gid=2", 0);
	fake_verbs.limits.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	fake_verbs.mw_error = ENOMEM; /* other programs have them all */
	opens("fake0,gid=2", 0);
	says("fake0 port 1: bulk=auto is off: a memory window: ");
}

/* Nothing answers: opening ends all the same. */
Test(verbs_bulk_probe, no_answer)
{
	begin();
	fake_verbs.reads_held = true;
	opens("fake0,gid=2", 0);
	says("fake0 port 1: bulk=auto is off: a read of a memory window of this device by itself: ");
	fake_verbs.reads_held = false;
	opens("fake0,gid=2", VERBS_BULK_AUTO_BYTES);
}

Test(verbs_bulk_probe, no_memory_to_lock)
{
	begin();
	fake_verbs.reg_refused = 1;
	opens("fake0,gid=2", 0);
	fake_verbs.reg_refused = 1;
	says("fake0 port 1: bulk=auto is off: memory to try windows with (see ulimit -l): ");
}

Test(verbs_bulk_probe, no_rdma_cm)
{
	begin();
	fake_cm.absent = true;
	opens("fake0,gid=2", 0);
	says("fake0 port 1: bulk=auto is off: no librdmacm");
	fake_cm.absent = false;
	fake_cm.channel_error = ENOENT;
	opens("fake0,gid=2", 0);
	says("modprobe rdma_ucm");
}

/* Queues with it cannot be had: without it they are. */
Test(verbs_bulk_probe, too_little_for_queues)
{
	begin();
	opens("fake0,gid=2,bulk=auto,connections=1024", 0);
}

Test(verbs_bulk_probe, where_packets_go_otherwise)
{
	begin();
	struct verbs_port *p = fixture_open("fake0,gid=2,rc=1,bulk=auto", 1);
	cr_assert(!caps_of(p).one_sided && p->on.rc && !p->mems);
	fixture_close(p);
	fake_verbs.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	says("fake0 port 1: bulk=auto is off: it is InfiniBand");
	fake_verbs.port.link_layer = IBV_LINK_LAYER_ETHERNET;
	fake_verbs.transport = IBV_TRANSPORT_IWARP;
	says("fake0 port 1: bulk=auto is off: packets go over connections");
}
