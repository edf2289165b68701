/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_member.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_world *world;
struct fake_fabric fabric;
struct member members[MEMBERS_MAX];
const char *names[MEMBERS_MAX], *drivers[MEMBERS_MAX];
int sizes[MEMBERS_MAX], ranks[MEMBERS_MAX];
const char *method, *group;
enum key_kind security;
uint32_t silent;
struct far_err refused[MEMBERS_MAX];
unsigned shards[MEMBERS_MAX];
bool lazy[MEMBERS_MAX];
uint64_t incarnation;

void members_setup(void)
{
	static char plain[MEMBERS_MAX][16];
	world = fake_world_create();
	fabric = (struct fake_fabric){0};
	method = "tcp://127.0.0.1:29500";
	group = NULL;
	security = KEY_GIVEN;
	silent = 0;
	for (int i = 0; i < MEMBERS_MAX; i++) {
		snprintf(plain[i], sizeof plain[i], "w%d", i);
		names[i] = plain[i];
		drivers[i] = "fake";
		sizes[i] = 0;
		ranks[i] = i;
		shards[i] = 0;
		lazy[i] = false;
		refused[i].status = FAR_OK;
	}
}

void member_end(struct member *m)
{
	if (!m->ctl && !m->port)
		return;
	ctl_destroy(m->ctl);
	while (m->ports_n)
		fake_port_destroy(m->ports[--m->ports_n]);
	memset(m, 0, sizeof *m);
}

void members_teardown(void)
{
	for (int i = 0; i < MEMBERS_MAX; i++)
		member_end(&members[i]);
	fake_world_destroy(world);
}

static bool shard_post(void *ctx, unsigned shard, const struct mail *mail)
{
	struct member *m = ctx;
	if (m->full)
		return false;
	cr_assert_lt(m->posted_n, MAILS_MAX);
	m->posted_to[m->posted_n] = (uint8_t)shard;
	m->posted[m->posted_n++] = *mail;
	return true;
}

static bool shard_take(void *ctx, unsigned shard, struct mail *mail)
{
	struct member *m = ctx;
	if (m->poison) {
		m->poison = false;
		*mail = m->poisoned;
		return true;
	}
	if (m->asked[shard]) {
		m->asked[shard] = false;
		*mail = (struct mail){.type = MAIL_CONNECT,
				      .worker = (uint32_t)m->ask[shard].worker,
				      .shard = (uint8_t)m->ask[shard].shard};
		return true;
	}
	while (m->taken_n[shard] < m->posted_n) {
		unsigned i = m->taken_n[shard]++;
		*mail = m->posted[i];
		if (mail->type != MAIL_PEER_DOWN || m->posted_to[i] != shard)
			continue;
		mail->type = MAIL_DETACHED;
		return true;
	}
	return false;
}

static uint64_t shard_begun(void *ctx)
{
	return ((struct member *)ctx)->begun;
}

static uint64_t shard_outstanding(void *ctx)
{
	return ((struct member *)ctx)->calls;
}

/* Starts member i of n; the slot's name, rank and size are as set up. */
void start(int i, int n)
{
	struct member *m = &members[i];
	memset(m, 0, sizeof *m);
	struct ctl_config config = {.name = names[i],
				    .rank = ranks[i],
				    .world = sizes[i] ? sizes[i] : n,
				    .init_method = method,
				    .group = group,
				    .incarnation = ++incarnation,
				    .init_timeout_ns = INIT_NS,
				    .shards = shards[i] ? shards[i] : 1,
				    .lazy = lazy[i],
				    .key = {.kind = security, .key = {.bytes = "key of the fake members"}},
				    .silent = silent,
				    .clock = &world->clock,
				    .net = fake_net_create(world),
				    .post = shard_post,
				    .take = shard_take,
				    .outstanding = shard_outstanding,
				    .begun = shard_begun,
				    .ctx = m};
	char list[64], *at = list, *word;
	config.refused = refused[i].status ? &refused[i] : NULL;
	snprintf(list, sizeof list, "%s", drivers[i]);
	if (config.refused)
		at = NULL;
	while ((word = strsep(&at, ","))) {
		bool is_private = word[0] == '+';
		config.private_n += is_private;
		config.self = is_private ? m->ports_n : 0;
		m->ports[m->ports_n++] = fake_port_create(&fabric, word + is_private, incarnation);
	}
	m->port = m->ports[0];
	config.ports = m->ports;
	config.ports_n = m->ports_n;
	m->created = ctl_create(&m->ctl, &config, &m->err);
	if (m->created != FAR_OK)
		config.net->ops->destroy(config.net);
}

/* One pass over all members, one tick of time. Returns the earliest time that anybody asked for. */
uint64_t round_robin(void)
{
	uint64_t next = TIME_NEVER;
	for (int i = 0; i < MEMBERS_MAX; i++) {
		bool runs = members[i].ctl && !members[i].frozen;
		uint64_t at = runs ? ctl_step(members[i].ctl, world->now) : TIME_NEVER;
		next = at < next ? at : next;
	}
	world->now += TICK;
	return next;
}

static bool settled(const struct member *m, bool leaving)
{
	enum ctl_state s = m->ctl ? ctl_state(m->ctl) : CTL_FAILED;
	return s == CTL_LEFT || s == CTL_FAILED || (s == CTL_READY && !leaving);
}

/* Runs until all are settled; a bound in ticks stands for "never". */
void run(bool leaving)
{
	for (int t = 0; t < 20000; t++) {
		bool all = true;
		round_robin();
		for (int i = 0; i < MEMBERS_MAX; i++)
			all &= settled(&members[i], leaving && members[i].ctl);
		if (all)
			return;
	}
	cr_assert_fail("not settled");
}

void run_ticks(int n)
{
	for (int t = 0; t < n; t++)
		round_robin();
}

void join(int n)
{
	for (int i = 0; i < n; i++)
		start(i, n);
	run(false);
	for (int i = 0; i < n; i++)
		cr_assert_eq(ctl_state(members[i].ctl), CTL_READY, "member %d: %s", i,
			     (ctl_wait_settled(members[i].ctl, &members[i].err), members[i].err.text));
}

void join_lazily(int n)
{
	for (int i = 0; i < n; i++)
		lazy[i] = true;
	join(n);
}

void leave_all(int n, uint64_t timeout)
{
	for (int i = 0; i < n; i++) {
		if (members[i].ctl)
			ctl_leave(members[i].ctl, timeout);
	}
}

void result(int i, enum far_status status, const char *part)
{
	struct member *m = &members[i];
	memset(&m->err, 0, sizeof m->err);
	enum far_status got = ctl_wait_settled(m->ctl, &m->err);
	cr_assert_eq(got, status, "member %d: %s: %s", i, far_status_name(got), m->err.text);
	cr_assert(strstr(m->err.text, part), "member %d: \"%s\" lacks \"%s\"", i, m->err.text, part);
}

unsigned mails_of(const struct member *m, enum mail_type type)
{
	unsigned n = 0;
	for (unsigned i = 0; i < m->posted_n; i++)
		n += m->posted[i].type == type;
	return n;
}

unsigned mails_about(const struct member *m, enum mail_type type, unsigned shard, struct far_to to)
{
	unsigned n = 0;
	for (unsigned i = 0; i < m->posted_n; i++)
		n += m->posted[i].type == type && m->posted_to[i] == shard &&
		     m->posted[i].worker == (uint32_t)to.worker && m->posted[i].shard == (uint8_t)to.shard;
	return n;
}

const struct mail *mail_last(const struct member *m, enum mail_type type)
{
	const struct mail *last = NULL;
	for (unsigned i = 0; i < m->posted_n; i++)
		last = m->posted[i].type == type ? &m->posted[i] : last;
	cr_assert_not_null(last);
	return last;
}

void ask(struct member *m, unsigned shard, int worker, int remote)
{
	m->asked[shard] = true;
	m->ask[shard] = (struct far_to){worker, remote};
}
