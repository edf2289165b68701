/* SPDX-License-Identifier: BSD-3-Clause */
/* A store in a file on a thread of its own: replies wake the control thread, attempts are kept apart. The test's
 * thread, and that of the stream. */
#include "base/clock.h"
#include "control/store.h"
#include "open_files.h"
#include "own_dir.h"

#include <errno.h>
#include <semaphore.h>
#include <time.h>

enum { BOUND_S = 30 };

static struct ctl_net net; /* of the control thread: it is woken */
static sem_t woken;
static struct store_stream *s;

static void wake(struct ctl_net *of)
{
	sem_post(&woken);
}

/* Waits until the stream has woken this thread. */
static void wait_woken(void)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += BOUND_S;
	cr_assert_eq(sem_timedwait(&woken, &until), 0, "it was not woken");
}

static struct store_stream *stream(const char *name)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", top, name);
	return store_stream_threaded_file(&net, path);
}

static void setup(void)
{
	static const struct ctl_net_ops ops = {.wake = wake};
	net.ops = &ops;
	own_dir_make();
	cr_assert_eq(sem_init(&woken, 0, 0), 0);
	s = stream("store");
	cr_assert_not_null(s);
}

static void teardown(void)
{
	if (s)
		s->ops->destroy(s);
	own_dir_remove();
}

TestSuite(store_thread, .init = setup, .fini = teardown);

static void login(uint64_t id)
{
	uint8_t frame[STORE_FRAME_MAX];
	struct store_msg m = {.op = STORE_LOGIN, .id = id, .timeout_ns = UINT64_MAX};
	size_t len = store_msg_encode(&m, frame);
	cr_assert_eq(s->ops->send(s, frame, len), (long)len);
}

/* The next bytes, or the error of the attempt. */
static long receive(uint8_t *out, size_t cap)
{
	long n;
	while ((n = s->ops->recv(s, out, cap)) == -EAGAIN)
		wait_woken();
	return n;
}

static void replied(uint64_t id)
{
	uint8_t rx[STORE_FRAME_MAX];
	struct store_msg m;
	long n = receive(rx, sizeof rx);
	cr_assert_eq(n, STORE_HEAD_BYTES);
	cr_assert_eq(store_msg_decode(rx, (size_t)n, &m), n);
	cr_assert(m.reply && m.op == STORE_LOGIN && m.status == STORE_OK);
	cr_assert_eq(m.id, id);
}

Test(store_thread, a_reply_wakes_the_control_thread)
{
	bool busy = false;
	cr_assert_eq(s->ops->open(s), 0);
	login(1);
	while (!busy) {
		wait_woken();
		cr_assert_eq(s->ops->step(s, 1, &busy), TIME_NEVER);
	}
	replied(1);
	busy = false;
	s->ops->step(s, 1, &busy);
	cr_assert_not(busy);
}

/* Each attempt has its own bytes: neither requests nor replies of the former one. */
Test(store_thread, attempts_are_kept_apart)
{
	for (uint64_t i = 1; i <= 50; i++) {
		bool busy = i % 2; /* or the reply is there, unread */
		cr_assert_eq(s->ops->open(s), 0);
		login(i);
		while (!busy) {
			wait_woken();
			s->ops->step(s, 1, &busy);
		}
		s->ops->close(s);
		cr_assert_eq(s->ops->open(s), 0);
		login(1000 + i);
		replied(1000 + i);
		s->ops->close(s);
	}
}

/* Its directory is not there. Expect the error from the thread, for sends and receives, until the attempt ends.
 */
Test(store_thread, an_error_ends_the_attempt)
{
	uint8_t rx[STORE_FRAME_MAX];
	bool busy = false;
	s->ops->destroy(s);
	s = stream("none/store");
	cr_assert_eq(s->ops->open(s), 0);
	cr_assert_eq(receive(rx, sizeof rx), -ENOENT);
	cr_assert_eq(s->ops->send(s, "x", 1), -ENOENT);
	s->ops->step(s, 1, &busy);
	cr_assert(busy, "the client reads the error");
	s->ops->close(s);
	put("none/x", ""); /* now it is */
	cr_assert_eq(s->ops->open(s), 0);
	login(1);
	replied(1);
}

/* The end waits for the thread, which closes all that it has. */
Test(store_thread, the_end_leaves_nothing)
{
	s->ops->destroy(s);
	s = NULL;
	unsigned before = open_files();
	for (int i = 0; i < 3; i++) {
		s = stream("store");
		cr_assert_eq(s->ops->open(s), 0);
		login(1);
		if (i)
			replied(1);
		s->ops->destroy(s);
		s = NULL;
		cr_assert_eq(open_files(), before);
	}
}
