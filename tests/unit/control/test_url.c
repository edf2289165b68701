/* SPDX-License-Identifier: BSD-3-Clause */
/** URLs of stores. The test's thread. */
#include <farcall/agent.h>

#include "url_fixture.h"

TestSuite(control_url, .init = url_setup);

Test(control_url, tcp)
{
	cr_assert_eq(url_parse("tcp://127.0.0.1:29500", 1, 4, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(url.host, "127.0.0.1");
	cr_assert_eq(url.port, 29500);
	cr_assert_eq(url.rank, 1);
	cr_assert_eq(url.world, 4);
}

Test(control_url, query)
{
	cr_assert_eq(url_parse("tcp://h.example:1?rank=2&world_size=3", -1, 0, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(url.rank, 2);
	cr_assert_eq(url.world, 3);
	cr_assert_eq(url_parse("tcp://h:65535/?world_size=3", 0, 0, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(url.port, 65535);
	expect("tcp://h:1?rank=0", 0, 1, FAR_INVALID, "rank is given twice");
	expect("tcp://h:1?world_size=1", 0, 1, FAR_INVALID, "world_size is given twice");
	expect("tcp://h:1?rank=1&rank=1", -1, 2, FAR_INVALID, "rank twice");
	expect("tcp://h:1?size=1", -1, 2, FAR_INVALID, "unknown parameter \"size=1\"");
	expect("tcp://h:1?rank=x", -1, 2, FAR_INVALID, "rank is not a number");
}

Test(control_url, ipv6_in_brackets)
{
	cr_assert_eq(url_parse("tcp://[::1]:7", 0, 1, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(url.host, "::1");
	expect("tcp://::1:7", 0, 1, FAR_INVALID, "brackets");
	expect("tcp://[::1]", 0, 1, FAR_INVALID, "names no port");
}

Test(control_url, malformed)
{
	expect("tcp://host", 0, 1, FAR_INVALID, "names no port");
	expect("tcp://host:0", 0, 1, FAR_INVALID, "port");
	expect("tcp://host:65536", 0, 1, FAR_INVALID, "port");
	expect("tcp://host:12x", 0, 1, FAR_INVALID, "port");
	expect("tcp://:12", 0, 1, FAR_INVALID, "names no host");
	expect("tcp://h:1/path", 0, 1, FAR_INVALID, "path");
	expect("host:1", 0, 1, FAR_INVALID, "no scheme");
	expect("", 0, 1, FAR_INVALID, "no scheme");
	expect("http://h:1", 0, 1, FAR_INVALID, "unknown scheme \"http\"");
}

Test(control_url, environment)
{
	expect("env://", -1, 0, FAR_INVALID, "environment variable MASTER_ADDR expected, but not set");
	setenv("MASTER_ADDR", "localhost", 1);
	expect(NULL, -1, 0, FAR_INVALID, "environment variable MASTER_PORT expected, but not set");
	setenv("MASTER_PORT", "29x", 1);
	expect(NULL, -1, 0, FAR_INVALID, "MASTER_PORT is \"29x\"");
	setenv("MASTER_PORT", "29500", 1);
	expect(NULL, -1, 0, FAR_INVALID, "environment variable WORLD_SIZE expected, but not set");
	setenv("WORLD_SIZE", "3", 1);
	expect(NULL, -1, 0, FAR_INVALID, "environment variable RANK expected, but not set");
	setenv("RANK", "3", 1);
	expect(NULL, -1, 0, FAR_INVALID, "rank is 3, expected [0, 3)");
	setenv("RANK", "2", 1);
	cr_assert_eq(url_parse(NULL, -1, 0, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(url.host, "localhost");
	cr_assert_eq(url.port, 29500);
	cr_assert_eq(url.rank, 2);
	cr_assert_eq(url.world, 3);
	/* Arguments go before the environment. */
	cr_assert_eq(url_parse("env://", 0, 1, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(url.rank, 0);
	cr_assert_eq(url.world, 1);
}

Test(control_url, ranges)
{
	expect("tcp://h:1", 0, 1025, FAR_INVALID, "world_size is 1025");
	expect("tcp://h:1", 0, -1, FAR_INVALID, "world_size is -1");
	expect("tcp://h:1", -2, 2, FAR_INVALID, "rank is -2");
	expect("tcp://h:1", 2, 2, FAR_INVALID, "rank is 2, expected [0, 2)");
}

Test(control_url, file)
{
	char text[URL_TEXT_MAX], longest[URL_PATH_MAX + 8] = "file:///";
	cr_assert_eq(url_parse("file:///tmp/a#b/c?rank=1&world_size=2", -1, 0, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(url.scheme, URL_FILE);
	cr_assert_str_eq(url.path, "/tmp/a#b/c");
	cr_assert_eq(url.rank, 1);
	cr_assert_eq(url.world, 2);
	url_text(&url, text);
	cr_assert_str_eq(text, "file:///tmp/a#b/c");
	expect("file://tmp/x", 0, 1, FAR_INVALID, "absolute path");
	expect("file://", 0, 1, FAR_INVALID, "absolute path");
	expect("file:///", 0, 1, FAR_INVALID, "absolute path");
	expect("file:///x?size=1", 0, 1, FAR_INVALID, "unknown parameter");
	memset(longest + 8, 'a', URL_PATH_MAX - 2);
	cr_assert_eq(url_parse(longest, 0, 1, &url, &err), FAR_OK, "%s", err.text);
	longest[URL_PATH_MAX + 6] = 'a';
	expect(longest, 0, 1, FAR_INVALID, "absolute path");
}

Test(control_url, etcd)
{
	char text[URL_TEXT_MAX], longest[URL_PATH_MAX + 8] = "etcd://h:1";
	cr_assert_eq(url_parse("etcd://a:1,[::1]:2379,c.d:65535?rank=1&world_size=2", -1, 0, &url, &err), FAR_OK, "%s",
		     err.text);
	cr_assert_eq(url.scheme, URL_ETCD);
	cr_assert_str_eq(url.path, "a:1,[::1]:2379,c.d:65535");
	cr_assert_eq(url.rank, 1);
	url_text(&url, text);
	cr_assert_str_eq(text, "etcd://a:1,[::1]:2379,c.d:65535");
	expect("etcd://", 0, 1, FAR_INVALID, "write etcd://host:port[,host:port]");
	expect("etcd://a", 0, 1, FAR_INVALID, "names no port; write etcd://host:port");
	expect("etcd://a:1,", 0, 1, FAR_INVALID, "names no port");
	expect("etcd://,a:1", 0, 1, FAR_INVALID, "names no port");
	expect("etcd://a:1,b:0", 0, 1, FAR_INVALID, "the port is not a number");
	expect("etcd://a:1,::1:2", 0, 1, FAR_INVALID, "brackets, etcd://[::1]:29500");
	expect("etcd://u:p@a:1", 0, 1, FAR_INVALID, "brackets");
	expect("etcd://u@a:1", 0, 1, FAR_INVALID, "character");
	expect("etcd://a:1/path", 0, 1, FAR_INVALID, "is not understood; use etcd://");
	memset(longest + 7, '1', URL_PATH_MAX);
	expect(longest, 0, 1, FAR_INVALID, "at most 511 bytes");
}

Test(control_url, tcp_as_text)
{
	char text[URL_TEXT_MAX];
	cr_assert_eq(url_parse("tcp://[::1]:7", 0, 1, &url, &err), FAR_OK, "%s", err.text);
	url_text(&url, text);
	cr_assert_str_eq(text, "[::1]:7");
}
