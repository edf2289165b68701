/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's watches, and keys that live as long as the client that holds them. The test's thread. */
#include "base/hash.h"
#include "control/kv.h"
#include "control/store.h"
#include "fake_net.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PORT     1
#define SECOND   UINT64_C(1000000000)
#define NEWS_MAX 8192

static struct fake_world *world;
static struct ctl_net *net;
static struct store_server *server;
static struct store_client *here, *b, *c; /* here: in the server's process */
static bool b_stopped;

/* What a watch or a request received, one line each: "key=value", "key-", "." for the confirmation of a watch. */
struct heard {
	unsigned n;
	int result;
	char news[NEWS_MAX][24];
};
static struct heard heard[4];

static void steps_n(int n)
{
	for (int i = 0; i < n; i++) {
		bool busy = false;
		store_server_step(server, world->now, &busy);
		store_client_step(here, world->now, &busy);
		if (b && !b_stopped)
			store_client_step(b, world->now, &busy);
		if (c)
			store_client_step(c, world->now, &busy);
	}
}

static void steps(void)
{
	steps_n(50);
}

static void setup(void)
{
	world = fake_world_create();
	net = fake_net_create(world);
	server = store_server_create(net, net->ops->listen(net, "h", PORT, -1));
	here = store_client_create(store_stream_local(server));
	b = store_client_create(store_stream_tcp(net, "h", PORT));
	c = store_client_create(store_stream_tcp(net, "h", PORT));
	memset(heard, 0, sizeof heard);
	b_stopped = false;
	steps();
}

static void teardown(void)
{
	store_client_destroy(here);
	store_client_destroy(b);
	store_client_destroy(c);
	store_server_destroy(server);
	net->ops->destroy(net);
	fake_world_destroy(world);
}

TestSuite(store_watch, .init = setup, .fini = teardown);

static void on_news(void *user, int result, const struct store_msg *m)
{
	struct heard *h = user;
	cr_assert_lt(h->n, (unsigned)NEWS_MAX);
	char *to = h->news[h->n++];
	h->result = result;
	if (result)
		snprintf(to, sizeof h->news[0], "end");
	else if (m->op != STORE_WATCH)
		snprintf(to, sizeof h->news[0], "%d:%.*s", (int)m->status, (int)m->value_len, (const char *)m->value);
	else if (!m->key_len)
		snprintf(to, sizeof h->news[0], "%s", m->status == STORE_OK ? "." : "refused");
	else
		snprintf(to, sizeof h->news[0], "%.*s%c%.*s", (int)m->key_len, (const char *)m->key,
			 m->status == STORE_OK ? '=' : '-', (int)m->value_len, (const char *)m->value);
}

static void send_request(struct store_client *from, enum store_op op, const char *key, const char *value,
			 int64_t number, uint64_t timeout, struct heard *h)
{
	struct store_msg m = {.op = op,
			      .number = number,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)value,
			      .value_len = strlen(value)};
	cr_assert_eq(store_client_submit(from, &m, world->now,
					 timeout == TIME_NEVER ? TIME_NEVER : world->now + timeout, on_news, h),
		     0);
}

/* A request whose answer is of no interest, or is `want`. */
static void request_once(struct store_client *from, enum store_op op, const char *key, const char *value,
			 const char *want)
{
	struct heard *h = &heard[3];
	h->n = 0;
	send_request(from, op, key, value, 0, SECOND, h);
	steps();
	cr_assert_eq(h->n, 1u);
	cr_assert_str_eq(h->news[0], want, "%s: %s, not %s", key, h->news[0], want);
}

static void watch(struct store_client *from, const char *key, int64_t how, struct heard *h)
{
	send_request(from, STORE_WATCH, key, "", how, TIME_NEVER, h);
	steps();
	cr_assert_str_eq(h->news[0], ".");
}

static void all_heard(const struct heard *h, unsigned n, const char *const *want)
{
	cr_assert_eq(h->n, n + 1, "%u, not %u", h->n, n + 1);
	for (unsigned i = 0; i < n; i++)
		cr_assert_str_eq(h->news[i + 1], want[i], "%u: %s, not %s", i, h->news[i + 1], want[i]);
}
#define HEARD(h, ...)                                                                                                  \
	all_heard(h, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

Test(store_watch, tells_each_change_once_in_order)
{
	request_once(c, STORE_SET, "k/1", "before", "0:");
	watch(b, "k/", STORE_WATCH_FROM_NOW, &heard[0]);
	watch(here, "k/", 0, &heard[1]);
	request_once(c, STORE_SET, "k/2", "x", "0:");
	request_once(here, STORE_SET, "k/1", "y", "0:");
	request_once(c, STORE_SET, "other", "z", "0:");
	request_once(b, STORE_ADD, "k/3", "", "0:");
	request_once(c, STORE_DELETE, "k/2", "", "0:");
	request_once(c, STORE_DELETE, "k/2", "", "1:");
	request_once(c, STORE_CAS, "k/2", "w", "0:");
	steps();
	HEARD(&heard[0], "k/2=x", "k/1=y", "k/3=0", "k/2-", "k/2=w");
	HEARD(&heard[1], "k/1=before", "k/2=x", "k/1=y", "k/3=0", "k/2-", "k/2=w");
}

Test(store_watch, of_one_key_or_of_all_that_begin_so)
{
	watch(b, "k", STORE_WATCH_EXACT | STORE_WATCH_FROM_NOW, &heard[0]);
	watch(b, "k", 0, &heard[1]);
	request_once(c, STORE_SET, "k1", "x", "0:");
	request_once(c, STORE_SET, "k", "y", "0:");
	HEARD(&heard[0], "k=y");
	HEARD(&heard[1], "k1=x", "k=y");
}

Test(store_watch, earlier_deletions_are_not_reported)
{
	watch(here, "k", 0, &heard[1]); /* deleted keys are kept from now on */
	request_once(c, STORE_SET, "k", "x", "0:");
	send_request(c, STORE_DELETE, "k", "", 0, SECOND, &heard[3]);
	send_request(b, STORE_WATCH, "k", "", 0, TIME_NEVER, &heard[0]);
	steps(); /* c, which came last, is served first */
	cr_assert_eq(heard[0].n, 1u);
	cr_assert_str_eq(heard[0].news[0], ".");
	HEARD(&heard[1], "k=x", "k-");
}

/* The client does not read: what it misses is made up for by the latest values, and costs no memory. */
Test(store_watch, slow_client_gets_the_latest)
{
	static char value[FAR_STORE_VALUE_MAX];
	char key[16];
	memset(value, 'v', sizeof value - 1);
	watch(b, "k/", 0, &heard[0]);
	b_stopped = true;
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 64; i++) {
			snprintf(key, sizeof key, "k/%02d", i);
			snprintf(value, sizeof value, "%02d", round);
			value[2] = 'v';
			send_request(here, STORE_SET, key, value, 0, SECOND, &heard[3]);
		}
		steps_n(80);
		heard[3].n = 0;
	}
	cr_assert_eq(store_server_drops(server, STORE_DROP_BACKLOG), 0u);
	b_stopped = false;
	steps_n(400);
	/* Each key came to its last value, in order; far fewer than there were changes. */
	cr_assert_lt(heard[0].n, 64u * 40u);
	for (unsigned i = 0; i < 64; i++) {
		const char *last = heard[0].news[heard[0].n - 64 + i];
		snprintf(key, sizeof key, "k/%02u=39v", i);
		cr_assert(strncmp(last, key, strlen(key)) == 0, "%s, not %s", last, key);
	}
}

Test(store_watch, a_deleted_key_is_reported_to_slow_clients)
{
	static char value[FAR_STORE_VALUE_MAX];
	memset(value, 'v', sizeof value - 1);
	watch(b, "k", 0, &heard[0]);
	b_stopped = true;
	request_once(here, STORE_SET, "k", "x", "0:");
	for (int i = 0; i < 100; i++)
		request_once(here, STORE_SET, "k/long", value, "0:");
	request_once(here, STORE_DELETE, "k", "", "0:");
	b_stopped = false;
	steps_n(200);
	cr_assert_str_eq(heard[0].news[heard[0].n - 1], "k-");
}

/* Keys that come and go while somebody does not read: the table does not grow for it without bound. */
Test(store_watch, too_slow_for_what_is_deleted_is_dropped)
{
	static char value[FAR_STORE_VALUE_MAX];
	char key[16];
	memset(value, 'v', sizeof value - 1);
	watch(b, "k", 0, &heard[0]);
	watch(c, "k/none", 0, &heard[1]);
	b_stopped = true;
	for (int i = 0; i < 100; i++)
		request_once(here, STORE_SET, "k/long", value, "0:");
	unsigned i = 0;
	for (; i < 2 * FAR_STORE_DELETED_MAX && !store_server_drops(server, STORE_DROP_BACKLOG); i++) {
		snprintf(key, sizeof key, "k%u", i);
		send_request(here, STORE_SET, key, value, 0, SECOND, &heard[3]);
		send_request(here, STORE_DELETE, key, "", 0, SECOND, &heard[3]);
		steps_n(2);
		heard[3].n = 0;
	}
	cr_assert_eq(store_server_drops(server, STORE_DROP_BACKLOG), 1u);
	cr_assert_geq(i, FAR_STORE_DELETED_MAX);
	cr_assert_eq(store_client_connection(c), STORE_CONNECTED);
	b_stopped = false;
	steps();
	cr_assert_eq(store_client_connection(b), STORE_LOST);
	cr_assert_str_eq(heard[0].news[heard[0].n - 1], "end");
}

Test(store_watch, watches_of_a_client_are_bounded)
{
	for (int i = 0; i < FAR_STORE_WATCHES_MAX; i++)
		send_request(b, STORE_WATCH, "k", "", 0, TIME_NEVER, &heard[0]);
	send_request(b, STORE_WATCH, "k", "", 0, TIME_NEVER, &heard[1]);
	steps();
	cr_assert_eq(heard[0].n, (unsigned)FAR_STORE_WATCHES_MAX);
	cr_assert_eq(heard[1].n, 1u);
	cr_assert_str_eq(heard[1].news[0], "refused");
	request_once(c, STORE_SET, "k", "x", "0:");
	steps();
	cr_assert_eq(heard[0].n, 2u * FAR_STORE_WATCHES_MAX);
	cr_assert_eq(heard[1].n, 1u);
	/* They go with the client. */
	store_client_destroy(b);
	b = NULL;
	request_once(c, STORE_SET, "k", "y", "0:");
	request_once(c, STORE_DELETE, "k", "", "0:");
	cr_assert_eq(store_server_clients(server), 1u);
}

/* ---- holds ---- */

Test(store_watch, a_held_key_goes_with_its_client)
{
	watch(here, "k", 0, &heard[0]);
	request_once(b, STORE_HOLD, "k", "b", "0:");
	request_once(b, STORE_HOLD, "k", "bb", "0:");
	request_once(c, STORE_HOLD, "k", "c", "2:bb");
	request_once(here, STORE_HOLD, "k", "h", "2:bb");
	request_once(c, STORE_GET, "k", "", "0:bb");
	store_client_destroy(b);
	b = NULL;
	steps();
	HEARD(&heard[0], "k=b", "k=bb", "k-");
	request_once(c, STORE_HOLD, "k", "c", "0:");
	request_once(here, STORE_HOLD, "k", "h", "2:c");
}

Test(store_watch, what_the_server_itself_holds_nobody_gets)
{
	request_once(here, STORE_HOLD, "k", "h", "0:");
	request_once(b, STORE_HOLD, "k", "b", "2:h");
	world->now += 10 * FAR_STORE_SILENT_NS;
	steps();
	request_once(b, STORE_HOLD, "k", "b", "2:h");
}

Test(store_watch, a_plain_key_cannot_be_held)
{
	request_once(c, STORE_SET, "k", "x", "0:");
	request_once(b, STORE_HOLD, "k", "b", "2:x");
	request_once(b, STORE_DELETE, "k", "", "0:");
	request_once(b, STORE_HOLD, "k", "b", "0:");
	/* Deleted, it is free. */
	request_once(c, STORE_DELETE, "k", "", "0:");
	request_once(c, STORE_HOLD, "k", "c", "0:");
	store_client_destroy(b);
	b = NULL;
	request_once(c, STORE_GET, "k", "", "0:c");
}

/* The holder's machine is gone without a packet: another client gets the key after a bound. */
Test(store_watch, a_silent_holder_is_dropped)
{
	request_once(b, STORE_HOLD, "k", "b", "0:");
	b_stopped = true;
	send_request(c, STORE_HOLD, "k", "c", 0, 60 * SECOND, &heard[0]);
	steps();
	send_request(here, STORE_HOLD, "k", "h", 0, 60 * SECOND, &heard[1]);
	steps();
	bool busy = false;
	cr_assert_eq(store_server_step(server, world->now, &busy), world->now + FAR_STORE_SILENT_NS);
	world->now += FAR_STORE_SILENT_NS - 1;
	steps();
	cr_assert_eq(heard[0].n + heard[1].n, 0u);
	world->now += 1;
	steps();
	cr_assert_eq(store_server_drops(server, STORE_DROP_SILENT), 1u);
	cr_assert_str_eq(heard[0].news[0], "0:");
	cr_assert_str_eq(heard[1].news[0], "2:c");
	cr_assert_eq(heard[0].n + heard[1].n, 2u);
	b_stopped = false;
	steps();
	cr_assert_eq(store_client_connection(b), STORE_LOST);
	request_once(c, STORE_GET, "k", "", "0:c");
}

/* It answers late, but it answers. */
Test(store_watch, a_slow_holder_keeps_its_key)
{
	request_once(b, STORE_HOLD, "k", "b", "0:");
	b_stopped = true;
	send_request(c, STORE_HOLD, "k", "c", 0, 60 * SECOND, &heard[0]);
	steps();
	world->now += FAR_STORE_SILENT_NS - 1;
	steps();
	b_stopped = false;
	steps();
	cr_assert_eq(heard[0].n, 1u);
	cr_assert_str_eq(heard[0].news[0], "2:b");
	world->now += FAR_STORE_SILENT_NS;
	steps();
	cr_assert_eq(store_server_drops(server, STORE_DROP_SILENT), 0u);
}

Test(store_watch, who_gives_up_meanwhile_does_not_get_it)
{
	request_once(b, STORE_HOLD, "k", "b", "0:");
	b_stopped = true;
	send_request(c, STORE_HOLD, "k", "c", 0, SECOND, &heard[0]);
	send_request(here, STORE_HOLD, "k", "h", 0, SECOND, &heard[1]);
	steps();
	store_client_destroy(c);
	c = NULL;
	steps();
	world->now += SECOND;
	steps();
	cr_assert(heard[1].result == -ETIMEDOUT || strcmp(heard[1].news[0], "3:") == 0);
	store_client_destroy(b);
	b = NULL;
	steps();
	request_once(here, STORE_GET, "k", "", "1:");
}

/* The holder goes while others wait: the first has it, the others hear so, and watchers see it pass. */
Test(store_watch, a_key_passes_to_the_first_who_wants_it)
{
	watch(here, "k", 0, &heard[2]);
	request_once(b, STORE_HOLD, "k", "b", "0:");
	b_stopped = true;
	send_request(c, STORE_HOLD, "k", "c", 0, 60 * SECOND, &heard[0]);
	steps();
	send_request(here, STORE_HOLD, "k", "h", 0, 60 * SECOND, &heard[1]);
	steps();
	store_client_destroy(b);
	b = NULL;
	steps();
	cr_assert_str_eq(heard[0].news[0], "0:");
	cr_assert_str_eq(heard[1].news[0], "2:c");
	HEARD(&heard[2], "k=b", "k=c");
}

Test(store_watch, undecided_holds_of_a_client_are_bounded)
{
	request_once(b, STORE_HOLD, "k", "b", "0:");
	b_stopped = true;
	for (int i = 0; i <= FAR_STORE_CONTESTS_MAX; i++)
		send_request(c, STORE_HOLD, "k", "c", 0, 60 * SECOND, &heard[0]);
	steps();
	cr_assert_eq(heard[0].n, 1u);
	cr_assert_str_eq(heard[0].news[0], "4:");
}

/* While a group ends, the end of a client is reported to the one in the server's process alone. */
Test(store_watch, goings_after_the_door_is_shut)
{
	request_once(b, STORE_HOLD, "k", "b", "0:");
	watch(here, "k", STORE_WATCH_FROM_NOW, &heard[0]);
	watch(c, "k", STORE_WATCH_FROM_NOW, &heard[1]);
	store_server_shut(server);
	store_client_destroy(b);
	b = NULL;
	request_once(c, STORE_SET, "k2", "x", "0:");
	HEARD(&heard[0], "k-", "k2=x");
	HEARD(&heard[1], "k2=x");
}

/* ---- hostile ---- */

static size_t raw(uint8_t *out, enum store_op op, const char *key, int64_t number)
{
	struct store_msg m = {.op = op, .id = 7, .number = number, .key = (const uint8_t *)key, .key_len = strlen(key)};
	return store_msg_encode(&m, out);
}

Test(store_watch, malformed_requests_drop_their_client)
{
	static const struct {
		enum store_op op;
		const char *key;
		int64_t number;
		size_t at;
		uint8_t value;
	} cases[] = {
		{STORE_WATCH, "k", 4, 0, 'F'}, {STORE_WATCH, "k", -1, 0, 'F'}, {STORE_WATCH, "", 0, 0, 'F'},
		{STORE_HOLD, "", 0, 0, 'F'},   {STORE_HOLD, "k", 1, 0, 'F'},   {STORE_PING, "k", 0, 0, 'F'},
		{STORE_PING, "", 1, 0, 'F'},   {STORE_WATCH, "k", 0, 5, 0x89}, {STORE_PING, "", 0, 5, 0x8a},
		{STORE_WATCH, "k", 0, 35, 1},  {STORE_HOLD, "k", 0, 37, 1},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t f[STORE_FRAME_MAX];
		uint64_t before = store_server_drops(server, STORE_DROP_MALFORMED);
		int h = net->ops->connect(net, "h", PORT);
		net->ops->send(net, h, f, raw(f, STORE_LOGIN, "", 0));
		steps();
		size_t len = raw(f, cases[i].op, cases[i].key, cases[i].number);
		f[cases[i].at] = cases[i].value;
		memset(f + len, 'x', 1); /* what a length announces */
		net->ops->send(net, h, f, len + 1);
		steps();
		cr_assert_eq(store_server_drops(server, STORE_DROP_MALFORMED), before + 1, "case %zu", i);
		net->ops->close(net, h);
	}
}

/* Frames that a process sent before it died may arrive after the check whether it runs. */
Test(store_watch, frames_of_a_dead_process_do_not_show_that_it_runs)
{
	uint8_t f[STORE_FRAME_MAX];
	int h = net->ops->connect(net, "h", PORT);
	net->ops->send(net, h, f, raw(f, STORE_LOGIN, "", 0));
	net->ops->send(net, h, f, raw(f, STORE_HOLD, "k", 0));
	steps();
	send_request(c, STORE_HOLD, "k", "c", 0, 60 * SECOND, &heard[0]);
	steps();
	net->ops->send(net, h, f, raw(f, STORE_GET, "k", 0));
	steps();
	cr_assert_eq(heard[0].n, 0u, "decided by %s", heard[0].news[0]);
	net->ops->close(net, h);
	steps();
	cr_assert_eq(heard[0].n, 1u);
	cr_assert_str_eq(heard[0].news[0], "0:");
	request_once(here, STORE_GET, "k", "", "0:c");
}

/* ---- the table ---- */

static struct kv_bytes text(const char *s)
{
	return (struct kv_bytes){(const uint8_t *)s, strlen(s)};
}

/* 1000 keys that lie in one chain of 4096 by a hash without a secret, base/hash.h. Expect no chain: a look-up compares
 * less than two entries on average. */
Test(store_watch, keys_chosen_to_collide)
{
	enum { KEYS = 1000 };
	static char keys[KEYS][16];
	struct kv *kv = kv_create(KEYS);
	struct kv_bytes value;
	for (unsigned n = 0, i = 0; n < KEYS; i++) {
		snprintf(keys[n], sizeof *keys, "%x", i);
		n += hash64(keys[n], strlen(keys[n])) % 4096 == 0;
	}
	for (unsigned i = 0; i < KEYS; i++)
		cr_assert_eq(kv_set(kv, text(keys[i]), text("x")), 0);
	uint64_t before = kv_probes(kv);
	for (unsigned i = 0; i < KEYS; i++)
		cr_assert_eq(kv_get(kv, text(keys[i]), &value), 0);
	uint64_t probes = kv_probes(kv) - before;
	cr_assert(probes >= KEYS && probes < 2 * KEYS, "%llu", (unsigned long long)probes);
	kv_destroy(kv);
}

Test(store_watch, tables_have_secrets_of_their_own)
{
	struct kv *one = kv_create(1), *other = kv_create(1);
	cr_assert_neq(kv_hash(one, "key", 3), kv_hash(other, "key", 3));
	cr_assert_eq(kv_hash(one, "key", 3), kv_hash(one, "key", 3));
	kv_destroy(one);
	kv_destroy(other);
}

Test(store_watch, changes_of_the_table)
{
	struct kv *kv = kv_create(3);
	struct kv_change change;
	cr_assert_null(kv_changes_after(kv, 0));
	kv_set(kv, text("a"), text("1"));
	kv_set(kv, text("b"), text("2"));
	kv_set(kv, text("a"), text("3"));
	cr_assert_eq(kv_changes(kv), 3u);
	const struct kv_entry *at = kv_change_read(kv_changes_after(kv, 0), &change);
	cr_assert(change.number == 2 && change.key.data[0] == 'b');
	cr_assert_null(kv_change_read(at, &change));
	cr_assert(change.number == 3 && change.value.data[0] == '3');
	cr_assert_null(kv_changes_after(kv, 3));
	/* Nobody is to be notified: gone at once. */
	cr_assert_eq(kv_delete(kv, text("a")), 0);
	cr_assert_null(kv_changes_after(kv, 3));
	kv_deleted_keep(kv, true);
	cr_assert_eq(kv_delete(kv, text("b")), 0);
	cr_assert_eq(kv_delete(kv, text("b")), -ENOENT);
	cr_assert_eq(kv_get(kv, text("b"), &change.value), -ENOENT);
	cr_assert_eq(kv_count(kv), 0u);
	cr_assert_null(kv_change_read(kv_changes_after(kv, 3), &change));
	cr_assert(change.deleted && change.number == 5);
	/* It comes back in its place. */
	cr_assert_eq(kv_cas(kv, text("b"), text(""), text("4"), &change.value), 0);
	cr_assert_eq(kv_count(kv), 1u);
	cr_assert_eq(kv_deleted_forget(kv, UINT64_MAX), 0u);
	cr_assert_eq(kv_get(kv, text("b"), &change.value), 0);
	kv_delete(kv, text("b"));
	cr_assert_eq(kv_deleted_forget(kv, 6), 1u);
	cr_assert_eq(kv_deleted_forget(kv, 7), 0u);
	cr_assert_null(kv_changes_after(kv, 0));
	kv_destroy(kv);
}
