/* SPDX-License-Identifier: BSD-3-Clause */
/** HOST:PORT of `farcall perf`. The test's thread. */
#include "perf/address.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char text[ADDRESS_TEXT_MAX];

static void reads(const char *s, const char *host, uint16_t port, const char *url)
{
	struct address a;
	char got[ADDRESS_TEXT_MAX];
	cr_assert_eq(address_parse(s, true, &a, text), 0, "%s: %s", s, text);
	cr_assert_str_eq(a.host, host);
	cr_assert_eq(a.port, port);
	address_url(&a, got);
	cr_assert_str_eq(got, url);
}

Test(address, forms)
{
	reads("127.0.0.1:29500", "127.0.0.1", 29500, "tcp://127.0.0.1:29500");
	reads("localhost:0", "localhost", 0, "tcp://localhost:0");
	reads("[::1]:65535", "::1", 65535, "tcp://[::1]:65535");
	reads("node-7.example.org:1", "node-7.example.org", 1, "tcp://node-7.example.org:1");
}

Test(address, mistakes)
{
	static const struct {
		const char *s, *word;
	} bad[] = {{"", "HOST:PORT"},
		   {":", "HOST:PORT"},
		   {":29500", "HOST:PORT"},
		   {"host", "HOST:PORT"},
		   {"[]:1", "HOST:PORT"},
		   {"[::1:1", "brackets"},
		   {"::1:29500", "brackets"},
		   {"tcp://host:1", "brackets"},
		   {"a b:1", "HOST:PORT"},
		   {"a/b:1", "HOST:PORT"},
		   {"u@h:1", "HOST:PORT"},
		   {"host:", "the port is not a number"},
		   {"host:x", "the port is not a number"},
		   {"host:-1", "the port is not a number"},
		   {"host:+1", "the port is not a number"},
		   {"host: 1", "the port is not a number"},
		   {"host:0x1", "the port is not a number"},
		   {"host:65536", "the port is not a number"},
		   {"host:99999999999999999999", "the port is not a number"}};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct address a = {.port = 7};
		cr_assert_eq(address_parse(bad[i].s, true, &a, text), -EINVAL, "\"%s\" was taken", bad[i].s);
		cr_assert(strstr(text, bad[i].word), "\"%s\": no \"%s\" in: %s", bad[i].s, bad[i].word, text);
		cr_assert_eq(a.port, 7, "\"%s\": the address was touched", bad[i].s);
	}
}

Test(address, port_0_only_where_it_means_something)
{
	struct address a;
	cr_assert_eq(address_parse("host:0", true, &a, text), 0);
	cr_assert_eq(address_parse("host:0", false, &a, text), -EINVAL);
	cr_assert(strstr(text, "from 1 to 65535"), "%s", text);
}

Test(address, long_hosts)
{
	char s[1024];
	struct address a;
	memset(s, 'h', sizeof s);
	memcpy(s + ADDRESS_HOST_MAX - 1, ":80", 4);
	cr_assert_eq(address_parse(s, true, &a, text), 0, "%s", text);
	cr_assert_eq(strlen(a.host), ADDRESS_HOST_MAX - 1);
	memset(s, 'h', sizeof s);
	memcpy(s + ADDRESS_HOST_MAX, ":80", 4);
	cr_assert_eq(address_parse(s, true, &a, text), -EINVAL);
	memset(s, 'h', sizeof s);
	memcpy(s + sizeof s - 4, ":80", 4);
	cr_assert_eq(address_parse(s, true, &a, text), -EINVAL);
}

Test(address, listening)
{
	struct address a = {.host = "127.0.0.1", .port = 0}, again;
	int fd = address_listen(&a, false, text);
	cr_assert_geq(fd, 0, "%s", text);
	cr_assert_neq(a.port, 0);
	again = a;
	cr_assert_eq(address_listen(&again, false, text), -1);
	cr_assert(strstr(text, "Address already in use; choose another port"), "%s", text);
	close(fd);
}

Test(address, only_loopback_unless_said)
{
	struct address a = {.host = "0.0.0.0", .port = 0};
	cr_assert_eq(address_listen(&a, false, text), -1);
	cr_assert(strstr(text, "--security none"), "%s", text);
	struct address nobody = {.host = "192.0.2.1", .port = 0}; /* of documentation: no machine has it */
	cr_assert_eq(address_listen(&nobody, true, text), -1);
	cr_assert(strstr(text, "cannot listen on 192.0.2.1"), "%s", text);
}
