/* SPDX-License-Identifier: BSD-3-Clause */
/** GIDs as addresses: kinds, texts, what listen= names, and the table of a device. The test's thread. */
#include "verbs_fixture.h"

#include <arpa/inet.h>
#include <stdlib.h>

static const uint8_t *gid(const char *text)
{
	static uint8_t raw[16];
	cr_assert_eq(inet_pton(AF_INET6, text, raw), 1, "%s", text);
	return raw;
}

Test(verbs_gid, kinds)
{
	static const struct {
		const char *gid, *text;
		bool v4, loopback, link_local;
	} cases[] = {
		{"::ffff:10.0.0.5", "10.0.0.5", true, false, false},
		{"::ffff:127.0.0.1", "127.0.0.1", true, true, false},
		{"::ffff:127.255.0.9", "127.255.0.9", true, true, false},
		{"::ffff:128.0.0.1", "128.0.0.1", true, false, false},
		{"::1", "::1", false, true, false},
		{"::2", "::2", false, false, false},
		{"::fffe:10.0.0.5", NULL, false, false, false},
		{"fd00::5", "fd00::5", false, false, false},
		{"fe80::1", "fe80::1", false, false, true},
		{"febf::1", "febf::1", false, false, true},
		{"fec0::1", "fec0::1", false, false, false},
		{"fe7f::1", "fe7f::1", false, false, false},
	};
	char text[VERBS_GID_TEXT_MAX];
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		const uint8_t *g = gid(cases[i].gid);
		cr_assert_eq(verbs_gid_is_v4(g), cases[i].v4, "%s", cases[i].gid);
		cr_assert_eq(verbs_gid_is_loopback(g), cases[i].loopback, "%s", cases[i].gid);
		cr_assert_eq(verbs_gid_is_link_local(g), cases[i].link_local, "%s", cases[i].gid);
		if (cases[i].text)
			cr_assert_str_eq(verbs_gid_text(g, text), cases[i].text);
	}
}

static bool names(const char *listen, const char *text)
{
	struct ibv_gid_entry e = {.ndev_ifindex = 1};
	memcpy(e.gid.raw, gid(text), 16);
	return verbs_gid_is_named(&e, listen);
}

Test(verbs_gid, named_by_listen)
{
	cr_assert(names("lo", "::ffff:10.1.2.3"), "the name of interface 1");
	cr_assert_not(names("lo0", "::ffff:10.1.2.3"));
	cr_assert(names("10.1.2.3", "::ffff:10.1.2.3"));
	cr_assert_not(names("10.1.2.4", "::ffff:10.1.2.3"));
	cr_assert(names("10.1.2.2/31", "::ffff:10.1.2.3"));
	cr_assert_not(names("10.1.2.4/31", "::ffff:10.1.2.3"));
	cr_assert(names("10.0.0.0/15", "::ffff:10.1.2.3"));
	cr_assert_not(names("10.2.0.0/15", "::ffff:10.1.2.3"));
	cr_assert(names("10.9.9.9/0", "::ffff:192.0.2.1"));
	cr_assert(names("0.0.0.0", "::ffff:192.0.2.1") && !names("0.0.0.0", "fd00::1"));
	cr_assert(names("::", "fd00::1") && !names("::", "::ffff:192.0.2.1"));
	cr_assert(names("fd00::/8", "fd12::1") && !names("fd00::/8", "fe80::1"));
	cr_assert(names("fd00::1/128", "fd00::1") && !names("fd00::1/128", "fd00::2"));
	static const char *const wrong[] = {
		"",           "10.1.2.3/", "10.1.2.3/33", "10.1.2.3/-1", "10.1.2.3/8x", "10.1.2",
		"fd00::/129", "fd00",      "10.1.2.3 ",   "/8",          "10.1.2.3/ 8x"};
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
		cr_assert(!names(wrong[i], "::ffff:10.1.2.3") && !names(wrong[i], "fd00::"), "\"%s\"", wrong[i]);
	char longest[80];
	memset(longest, '1', sizeof longest - 1);
	longest[sizeof longest - 1] = 0;
	cr_assert_not(names(longest, "::ffff:10.1.2.3"));
}

Test(verbs_gid, table)
{
	struct verbs_port *p = fixture_open("bulk=off", 1);
	struct ibv_gid_entry *table = NULL;
	int n = verbs_gid_table(p->on.context, &table);
	cr_assert_eq(n, (int)fake_verbs.gids_n);
	cr_assert_eq(memcmp(table, fake_verbs.gids, (size_t)n * sizeof *table), 0);
	free(table);
	fixture_close(p);
}
