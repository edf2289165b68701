/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes that wait for a stream: their order, the bound, and the memory of an empty buffer. The test's thread. */
#include "control/send_buffer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct send_buffer b;

static void end(void)
{
	send_buffer_fini(&b);
	cr_assert(!b.data);
}

TestSuite(send_buffer, .fini = end);

static void put(const char *text)
{
	cr_assert_eq(send_buffer_put(&b, text, strlen(text)), 0);
}

static void taken(size_t len, const char *want)
{
	char out[32];
	size_t n = send_buffer_take(&b, out, len);
	cr_assert_eq(n, strlen(want));
	cr_assert_eq(memcmp(out, want, n), 0, "%.*s, not %s", (int)n, out, want);
}

Test(send_buffer, bytes_keep_their_order)
{
	put("one");
	put("");
	put("two");
	cr_assert_eq(send_buffer_len(&b), 6u);
	taken(4, "onet");
	put("three");
	send_buffer_skip(&b, 1);
	taken(32, "othree");
	taken(32, "");
}

/* What was taken makes room: the bytes move to the front of the same memory. */
Test(send_buffer, memory_is_used_again)
{
	static const char half[512];
	for (int i = 0; i < 2; i++)
		cr_assert_eq(send_buffer_put(&b, half, sizeof half), 0);
	size_t cap = b.cap;
	for (int i = 0; i < 100; i++) {
		send_buffer_skip(&b, sizeof half);
		cr_assert_eq(send_buffer_put(&b, half, sizeof half), 0);
	}
	cr_assert_eq(b.cap, cap);
	cr_assert_eq(send_buffer_len(&b), 2 * sizeof half);
}

Test(send_buffer, beyond_the_bound_nothing_is_put)
{
	char *most = calloc(1, SEND_BUFFER_BYTES_MAX);
	put("x");
	cr_assert_eq(send_buffer_put(&b, most, SEND_BUFFER_BYTES_MAX), -ENOBUFS);
	cr_assert_eq(send_buffer_len(&b), 1u);
	cr_assert_eq(send_buffer_put(&b, most, SEND_BUFFER_BYTES_MAX - 1), 0);
	cr_assert_eq(send_buffer_put(&b, "y", 1), -ENOBUFS);
	send_buffer_skip(&b, 1);
	put("y");
	free(most);
}

Test(send_buffer, an_empty_one_frees_what_a_burst_took)
{
	static const char burst[64 << 10];
	put("few");
	size_t cap = b.cap;
	taken(3, "few");
	cr_assert_eq(b.cap, cap);
	cr_assert_eq(send_buffer_put(&b, burst, sizeof burst), 0);
	send_buffer_skip(&b, sizeof burst);
	cr_assert_eq(b.cap, 0u);
	put("again");
	taken(5, "again");
}

/* A stream that takes bytes as its script says: so many of each call, or an error. */
static const long *script;
static char sent[32];

static long scripted_send(struct ctl_net *net, int handle, const void *data, size_t len)
{
	long n = *script++;
	if (n > (long)len)
		n = (long)len;
	if (n > 0)
		strncat(sent, data, (size_t)n);
	return n;
}

static long flush_as(const long *calls)
{
	static const struct ctl_net_ops ops = {.send = scripted_send};
	struct ctl_net net = {.ops = &ops};
	script = calls;
	return send_buffer_flush(&b, &net, 7);
}

Test(send_buffer, flush_sends_what_the_stream_takes)
{
	put("abcdef");
	cr_assert_eq(flush_as((const long[]){2, 1, -EAGAIN}), 3);
	cr_assert_eq(flush_as((const long[]){-EAGAIN}), 0);
	cr_assert_eq(flush_as((const long[]){0}), 0);
	cr_assert_eq(flush_as((const long[]){1, -EPIPE}), -EPIPE);
	cr_assert_eq(flush_as((const long[]){9}), 2);
	cr_assert_str_eq(sent, "abcdef");
	cr_assert_eq(flush_as(NULL), 0);
}
