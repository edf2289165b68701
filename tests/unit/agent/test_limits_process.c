/* SPDX-License-Identifier: BSD-3-Clause */
/* What "full" does in a process, and in the store: test_limits.c has the table. The test's thread. */
#include "agent/agent.h"
#include "base/limits.h"
#include "control/store.h"
#include "memory/buf.h"
#include "value/types.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/farcall.h>
#include <stdio.h>
#include <string.h>

/* ---- the process ---- */

static enum far_status same_value(struct far_future *parent, struct far_val *out, struct far_err *err, void *user)
{
	return far_future_value(parent, out, err);
}

/* No buffer is left. Expect callbacks, collections and scopes to say so, and to work again. */
Test(limits_process, without_buffers)
{
	enum { N = 1 << 18 };
	static struct far_buf *taken[N];
	struct far_future *f, *child;
	struct far_scope scope;
	struct far_err err;
	unsigned n = 0;
	cr_assert_eq(far_memory_limit(UINT64_C(16) << 20, NULL), FAR_OK);
	cr_assert_eq(far_future_create(&f, &err), FAR_OK);
	for (size_t bytes = BUF_SLAB_MAX; bytes; bytes /= 2)
		while (n < N && (taken[n] = buf_alloc(bytes)))
			n++;
	cr_assert(n > 0 && n < N);
	cr_assert_eq(far_future_then(f, same_value, NULL, &child, &err), FAR_RESOURCE);
	cr_assert_eq(far_future_collect(&f, 1, &child, &err), FAR_RESOURCE);
	cr_assert_eq(far_scope_begin(&scope), FAR_OK);
	scope_gather_slow(f);
	cr_assert_eq(far_scope_end(&scope, FAR_SEC, &err), FAR_RESOURCE);
	cr_assert(strstr(err.text, "no memory"), "%s", err.text);
	while (n)
		buf_unref(taken[--n]);
	cr_assert_eq(far_future_then(f, same_value, NULL, &child, &err), FAR_OK);
	struct far_val one = far_int(1), out;
	cr_assert_eq(far_future_set_value(f, &one, &err), FAR_OK);
	cr_assert_eq(far_future_wait(child, 0, &out, &err), FAR_OK);
	cr_assert_eq(out.u.i, 1);
	far_future_free(child);
	far_future_free(f);
}

static size_t type_size(const void *object, void *user)
{
	return 0;
}

static void type_encode(const void *object, void *dst, size_t len, void *user)
{
}

static enum far_status type_decode(const void *src, size_t len, void **object, void *user)
{
	return FAR_OK;
}

static void type_destroy(void *object, void *user)
{
}

Test(limits_process, custom_types)
{
	const struct custom_type *t;
	struct far_err err;
	char name[32];
	for (int round = 0; round < 2; round++) /* those that are there are found again */
		for (unsigned i = 0; i <= FAR_TYPES_MAX; i++) {
			snprintf(name, sizeof name, "t::T%u", i);
			struct far_custom_type type = {name, type_size, type_encode, type_decode, type_destroy, NULL};
			cr_assert_eq(types_add(&type, &t, &err), i < FAR_TYPES_MAX ? FAR_OK : FAR_RESOURCE);
		}
	cr_assert(strstr(err.text, "1024"), "%s", err.text);
}

/* ---- the store ---- */

static int accepted, closed;
static bool greeted[FAR_STORE_CLIENTS_MAX + 3];

static int many_accept(struct ctl_net *net, int listener)
{
	return accepted < FAR_STORE_CLIENTS_MAX + 3 ? accepted++ : -EAGAIN;
}

static long many_recv(struct ctl_net *net, int handle, void *data, size_t len)
{
	const struct store_msg login = {.op = STORE_LOGIN};
	uint8_t frame[STORE_FRAME_MAX];
	if (greeted[handle])
		return handle == 5 && closed >= 3 ? 0 : -EAGAIN;
	greeted[handle] = true;
	size_t n = store_msg_encode(&login, frame);
	cr_assert_leq(n, len);
	memcpy(data, frame, n);
	return (long)n;
}

static long many_send(struct ctl_net *net, int handle, const void *data, size_t len)
{
	return (long)len;
}

static void many_close(struct ctl_net *net, int handle)
{
	closed++;
}

static void many_want(struct ctl_net *net, int handle, int read, int write)
{
}

Test(limits_process, clients_of_the_store)
{
	static const struct ctl_net_ops ops = {
		.accept = many_accept, .recv = many_recv, .send = many_send, .close = many_close, .want = many_want};
	struct ctl_net net = {&ops};
	struct store_server *s = store_server_create(&net, 0);
	bool busy = false;
	for (int i = 0; i < FAR_STORE_CLIENTS_MAX && accepted < FAR_STORE_CLIENTS_MAX + 3; i++)
		store_server_step(s, 1, &busy);
	cr_assert_eq(accepted, FAR_STORE_CLIENTS_MAX + 3);
	cr_assert_eq(store_server_drops(s, STORE_DROP_CLIENTS), 3u);
	/* One has left, in the step before: its place is the next one's. */
	store_server_step(s, 1, &busy);
	cr_assert_eq(closed, 4);
	accepted = FAR_STORE_CLIENTS_MAX + 2;
	greeted[accepted] = false;
	store_server_step(s, 1, &busy);
	cr_assert_eq(store_server_drops(s, STORE_DROP_CLIENTS), 3u);
	closed = 0;
	store_server_destroy(s);
	cr_assert_geq(closed, FAR_STORE_CLIENTS_MAX);
}
