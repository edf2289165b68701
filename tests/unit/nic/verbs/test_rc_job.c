/* SPDX-License-Identifier: BSD-3-Clause */
/** Jobs of the threads of a port, run by the test itself: queue pairs that are made, refused and destroyed.
 * The test's thread. */
#include "verbs_conns.h"

static struct verbs_port *p;
static struct verbs_conn *c;

static void open_conn(const char *args)
{
	uint64_t next = UINT64_MAX;
	p = open_one(args);
	c = verbs_conn_new(p->queues[0], verbs_remote_find(p->queues[0], 5, 7), verbs_now(), &next);
	cr_assert_not_null(c);
	cr_assert_eq(p->rc->cm->rdma_create_id(p->rc->channel, &c->id, c, RDMA_PS_TCP), 0);
}

static void close_conn(void)
{
	verbs_conn_destroy(c);
	cr_assert(!c->qp && !c->id);
	verbs_conn_destroy(c);
	c->remote->conns--;
	c->state = CONN_FREE;
	p->rc->conns_n--;
	close_all();
}

static int run(enum verbs_job job)
{
	c->job = job;
	verbs_job_run(c);
	return c->job_error;
}

/* What the device refuses is the error of the job; what was made is destroyed with the connection. */
static void refused(void)
{
	open_conn(args_of(""));
	unsigned qps = fake_verbs.qps;
	fake_verbs.qp_error = ENOSPC;
	cr_assert_eq(run(JOB_CONNECT), -ENOSPC);
	cr_assert_null(c->qp);
	cr_assert_eq(run(JOB_ACCEPT), -ENOSPC);
	cr_assert_eq(verbs_phase(c), CONN_NONE, "the poller was not notified");
	fake_verbs.qp_error = 0;
	cr_assert_eq(run(JOB_NONE), 0);
	cr_assert_eq(fake_verbs.qps, qps);
	close_conn();
}

Test(verbs_rc_job, refused)
{
	each_kind(refused);
}

/* The largest size that the device takes, found by trial. */
Test(verbs_rc_job, inline_size_by_trial)
{
	static const unsigned sizes[] = {1000, 256, 100, 31, 0};
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		fake_verbs.inline_max = sizes[i];
		fake_cm.connect_error = ECONNREFUSED;
		open_conn(RC);
		c->worker = &p->rc->connectors.workers[0];
		c->worker->pool = &p->rc->connectors;
		cr_assert_eq(run(JOB_CONNECT), -ECONNREFUSED);
		cr_assert_not_null(c->qp);
		cr_assert_eq(c->inline_max, sizes[i]);
		unsigned qps = fake_verbs.qps;
		cr_assert_eq(run(JOB_CLOSE), 0);
		cr_assert(!c->qp && fake_verbs.qps == qps - 1);
		memset(c->worker, 0, sizeof *c->worker);
		close_conn();
	}
}
