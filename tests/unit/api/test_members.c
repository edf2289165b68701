/* SPDX-License-Identifier: BSD-3-Clause */
/** Members that come and go, as another agent of this process sees them. The test's thread, and that of the callbacks.
 */
#include "handlers.h"
#include "own_agent.h"

#include <farcall/group.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

static struct far_agent *a;

static enum far_status join(const char *name, int rank, struct far_agent **out)
{
	return own_join(name, rank, FAR_WORLD_DYNAMIC, NULL, out);
}

static void setup(void)
{
	own_dir_make();
	cr_assert_eq(join("w0", 0, &a), FAR_OK, "%s", err.text);
}

static void teardown(void)
{
	own_end(a);
	own_dir_remove();
}

TestSuite(members, .init = setup, .fini = teardown);

/* ---- callbacks ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	unsigned n;
	enum far_member_event event[8];
	struct far_worker_info worker[8];
	enum far_status shutdown; /* of a call within the callback */
	_Atomic unsigned begun;   /* callbacks, also those that wait for `lock` */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void on_member(struct far_agent *agent, enum far_member_event event, const struct far_worker_info *worker,
		      void *user)
{
	struct far_err e;
	atomic_fetch_add(&seen.begun, 1);
	pthread_mutex_lock(&seen.lock);
	seen.event[seen.n % 8] = event;
	seen.worker[seen.n % 8] = *worker;
	seen.shutdown = far_shutdown_local(agent, &e);
	seen.n++;
	pthread_cond_signal(&seen.more);
	pthread_mutex_unlock(&seen.lock);
}

static void until_seen(unsigned n)
{
	pthread_mutex_lock(&seen.lock);
	while (seen.n < n)
		pthread_cond_wait(&seen.more, &seen.lock);
	pthread_mutex_unlock(&seen.lock);
}

static void expect_seen(unsigned i, enum far_member_event event, const char *name, int rank)
{
	until_seen(i + 1);
	cr_assert_eq(seen.event[i], event);
	cr_assert_str_eq(seen.worker[i].name, name);
	cr_assert_eq(seen.worker[i].rank, rank);
}

/* One that is there already, its end, and another of its rank. Expect each once, with its incarnation. */
Test(members, come_and_go)
{
	struct far_agent *b;
	cr_assert_eq(join("w1", 1, &b), FAR_OK, "%s", err.text);
	cr_assert_eq(far_on_member(a, on_member, NULL, &err), FAR_OK, "%s", err.text);
	expect_seen(0, FAR_MEMBER_JOINED, "w1", 1);
	own_end(b);
	expect_seen(1, FAR_MEMBER_LOST, "w1", 1);
	cr_assert_eq(seen.worker[1].incarnation, seen.worker[0].incarnation);
	cr_assert_str_eq(seen.worker[1].lost_why, "it has left, or its process has ended");
	cr_assert_eq(join("next", 1, &b), FAR_OK, "%s", err.text);
	expect_seen(2, FAR_MEMBER_JOINED, "next", 1);
	cr_assert_neq(seen.worker[2].incarnation, seen.worker[0].incarnation);
	cr_assert_eq(seen.shutdown, FAR_WOULD_DEADLOCK, "the end waits for the callback");
	own_end(b);
	expect_seen(3, FAR_MEMBER_LOST, "next", 1);
	cr_assert_eq(seen.n, 4u);
}

/* Another one has taken the rank before the end of the first is reported. Expect both reported, in order. */
Test(members, replaced)
{
	struct far_agent *b;
	cr_assert_eq(far_on_member(a, on_member, NULL, &err), FAR_OK, "%s", err.text);
	pthread_mutex_lock(&seen.lock);
	cr_assert_eq(join("w1", 1, &b), FAR_OK, "%s", err.text);
	while (!atomic_load(&seen.begun))
		sched_yield();
	own_end(b);
	cr_assert_eq(join("next", 1, &b), FAR_OK, "%s", err.text);
	pthread_mutex_unlock(&seen.lock);
	expect_seen(0, FAR_MEMBER_JOINED, "w1", 1);
	expect_seen(1, FAR_MEMBER_LOST, "w1", 1);
	expect_seen(2, FAR_MEMBER_JOINED, "next", 1);
	own_end(b);
}

static void ignore(struct far_agent *agent, enum far_member_event event, const struct far_worker_info *worker,
		   void *user)
{
}

Test(members, callbacks_are_bounded)
{
	for (unsigned i = 0; i < FAR_MEMBER_CALLBACKS_MAX; i++)
		cr_assert_eq(far_on_member(a, ignore, NULL, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_on_member(a, ignore, NULL, &err), FAR_RESOURCE);
	cr_assert_str_eq(err.text, "far_on_member: the agent has 16 callbacks, the most that there may be");
	cr_assert_eq(far_on_member(a, NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_on_member(NULL, ignore, NULL, &err), FAR_SHUTDOWN);
}

/* ---- waits ---- */

static void *joins(void *out)
{
	struct far_err e;
	char url[128];
	const struct far_opts o = {.init_method = url, .nic = "shm"};
	snprintf(url, sizeof url, "file://%s/store", top);
	cr_assert_eq(far_init_rpc("late", 3, FAR_WORLD_DYNAMIC, &o, out, &e), FAR_OK, "%s", e.text);
	return NULL;
}

Test(members, waited_for)
{
	struct far_agent *b;
	struct far_worker_info info;
	struct far_future *f;
	struct far_val rank;
	pthread_t thread;
	cr_assert_eq(far_worker_wait_async(a, "late", &f, &err), FAR_OK, "%s", err.text);
	cr_assert_not(far_future_done(f));
	cr_assert_eq(pthread_create(&thread, NULL, joins, &b), 0);
	cr_assert_eq(far_worker_wait(a, "late", FAR_FOREVER, &info, &err), FAR_OK, "%s", err.text);
	cr_assert(info.rank == 3 && info.alive && strcmp(info.name, "late") == 0);
	cr_assert_eq(far_future_wait(f, FAR_FOREVER, &rank, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(rank.u.i, 3);
	far_future_free(f);
	pthread_join(thread, NULL);
	/* Of one that is there already. */
	cr_assert_eq(far_worker_wait(a, "late", 1, &info, &err), FAR_OK, "%s", err.text);
	own_end(b);
}

/* The end of the agent ends them, and the limit of a wait. */
Test(members, waited_for_in_vain)
{
	struct far_future *f;
	cr_assert_eq(far_worker_wait(a, "none", FAR_MS, NULL, &err), FAR_TIMEOUT);
	cr_assert_str_eq(err.text, "no worker \"none\" has joined the group within the limit");
	cr_assert_eq(far_worker_wait_async(a, "none", &f, &err), FAR_OK, "%s", err.text);
	own_end(a);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_SHUTDOWN);
	cr_assert_str_eq(err.text, "the agent ended before worker \"none\" joined");
	far_future_free(f);
	cr_assert_eq(join("w0", 0, &a), FAR_OK, "%s", err.text);
}

/* Waits that nobody refers to any more make room for others. */
Test(members, waits_are_bounded)
{
	static struct far_future *f[FAR_MEMBER_WAITS_MAX + 1];
	for (unsigned i = 0; i < FAR_MEMBER_WAITS_MAX; i++)
		cr_assert_eq(far_worker_wait_async(a, "none", &f[i], &err), FAR_OK, "%u: %s", i, err.text);
	cr_assert_eq(far_worker_wait_async(a, "none", &f[0], &err), FAR_RESOURCE);
	cr_assert(strstr(err.text, "pending waits for members, the most that there may be"), "%s", err.text);
	for (unsigned i = 0; i < FAR_MEMBER_WAITS_MAX; i++)
		far_future_free(f[i]);
	enum far_status status = FAR_RESOURCE;
	for (unsigned tries = 0; tries < 20000 && status == FAR_RESOURCE; tries++) {
		status = far_worker_wait_async(a, "none", &f[0], &err);
		nanosleep(&(struct timespec){.tv_nsec = status ? 1000000 : 0}, NULL);
	}
	cr_assert_eq(status, FAR_OK, "%s", err.text);
	far_future_free(f[0]);
}

Test(members, what_cannot_be_waited_for)
{
	struct far_future *f;
	struct far_worker_info info;
	cr_assert_eq(far_worker_wait(a, "a name", FAR_MS, &info, &err), FAR_INVALID);
	cr_assert_eq(far_worker_wait(a, NULL, FAR_MS, &info, &err), FAR_INVALID);
	cr_assert_eq(far_worker_wait(NULL, "w1", FAR_MS, &info, &err), FAR_SHUTDOWN);
	cr_assert_eq(far_worker_wait_async(a, "w1", NULL, &err), FAR_INVALID);
	cr_assert_eq(far_worker_wait_async(NULL, "w1", &f, &err), FAR_SHUTDOWN);
}
