/* SPDX-License-Identifier: BSD-3-Clause */
/** What bulk needs of a device, and the windows of its connections. The test's thread. */
#include "verbs_fixture.h"

#include "nic/verbs/bulk.h"

Test(verbs_bulk_open, windows_of_type_2)
{
	struct ibv_device_attr limits = {.max_mw = (int)VERBS_WINDOWS};
	cr_assert_not(verbs_has_windows(&limits));
	limits.device_cap_flags = IBV_DEVICE_MEM_WINDOW;
	cr_assert_not(verbs_has_windows(&limits), "type 1 binds no window to a connection");
	limits.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2A;
	cr_assert(verbs_has_windows(&limits));
	limits.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	cr_assert(verbs_has_windows(&limits));
	limits.max_mw--;
	cr_assert_not(verbs_has_windows(&limits));
	limits.max_mw = -1;
	cr_assert_not(verbs_has_windows(&limits));
}

static void refused(const struct verbs_port *p, int error, const char *why)
{
	cr_assert_eq(verbs_bulk_check(p, &err), error);
	cr_assert(strstr(err.text, why) && strstr(err.text, "leave bulk= out"), "%s", err.text);
}

Test(verbs_bulk_open, what_the_device_must_have)
{
	static struct verbs_port p = {.on = {.device = "mlx5_0", .ethernet = true},
				      .limits = {.max_mw = 1000, .device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B}};
	cr_assert_eq(verbs_bulk_check(&p, &err), 0);
	p.on.rc = true;
	refused(&p, -EPROTONOSUPPORT, "mlx5_0 sends over connections");
	p.on.rc = p.on.ethernet = false;
	refused(&p, -EPROTONOSUPPORT, "mlx5_0 is InfiniBand");
	p.on.ethernet = true;
	p.limits.max_mw = 0;
	refused(&p, -EOPNOTSUPP, "mlx5_0 has no memory windows of type 2");
}

static struct verbs_port *p;

static void close_port(void)
{
	if (p)
		fixture_close(p);
}

TestSuite(verbs_bulk_open, .fini = close_port);

Test(verbs_bulk_open, each_connection_has_its_operations)
{
	p = fixture_open("fake0,gid=2,bulk=65536,connections=3", 1);
	const struct verbs_rcq *rcq = p->queues[0]->rc;
	cr_assert(rcq->cq && !rcq->srq && !rcq->per_conn_buffers);
	for (unsigned i = 0; i < rcq->conns_n; i++)
		for (unsigned k = 0; k < VERBS_WINDOWS + VERBS_READS; k++) {
			cr_assert_eq(rcq->conns[i].bulk->op[k].conn, &rcq->conns[i]);
			cr_assert_eq(rcq->conns[i].bulk->op[k].state, BULK_FREE);
			cr_assert_null(rcq->conns[i].bulk->op[k].mw);
		}
	cr_assert_eq(rcq->bulk_last, &rcq->bulk_first);
}

/* All windows or none are kept, and none is made for reads. */
Test(verbs_bulk_open, windows_of_a_connection)
{
	p = fixture_open("fake0,gid=2,bulk=65536", 1);
	struct verbs_conn *c = &p->queues[0]->rc->conns[0];
	cr_assert_eq(verbs_bulk_prepare(c), 0);
	cr_assert_eq(fake_verbs.mws, VERBS_WINDOWS);
	for (unsigned i = 0; i < VERBS_WINDOWS + VERBS_READS; i++)
		cr_assert_eq(c->bulk->op[i].mw != NULL, i < VERBS_WINDOWS);
	for (unsigned i = 0; i < VERBS_WINDOWS; i++)
		cr_assert_eq(c->bulk->op[i].rkey, c->bulk->op[i].mw->rkey);
	verbs_bulk_release(c);
	cr_assert_eq(fake_verbs.mws, 0u);
	verbs_bulk_release(c);
	fake_verbs.mw_error = ENOSPC;
	cr_assert_eq(verbs_bulk_prepare(c), -ENOSPC);
	verbs_bulk_release(c);
	cr_assert_eq(fake_verbs.mws, 0u);
}

Test(verbs_bulk_open, without_a_completion_queue)
{
	p = fixture_open("fake0,gid=2,bulk=65536", 1);
	struct verbs_queue *q = p->queues[0];
	unsigned cqs = fake_verbs.cqs;
	verbs_bulk_close(q);
	cr_assert_eq(fake_verbs.cqs, cqs - 1);
	verbs_bulk_close(q);
	verbs_bulk_free(q);
	q->rc->conns[0].bulk = NULL;
	fake_verbs.cq_error = EMFILE;
	cr_assert_eq(verbs_bulk_open(q, &err), -EMFILE);
	cr_assert(strstr(err.text, "smaller connections=") && strstr(err.text, "leave bulk= out"), "%s", err.text);
	cr_assert_eq(fake_verbs.cqs, cqs - 1);
}
