/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages whose memory the driver below uses, over a fake driver: held until its event, released once.
 * The test's thread. */
#include "transport/onesided.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct transport_onesided_table o;
static struct far_buf buf;
static uint64_t user[FAR_TRANSPORT_ONESIDED + 1];
static uint32_t user_n, withdrawn_n, withdrawn;
static int refuses;
static char bytes[64];
static int message, other;

static int fake_expose(struct nic_queue *q, uint32_t peer, const void *at, uint64_t len, uint64_t u, uint32_t *handle,
		       struct nic_bulk_key *key)
{
	cr_assert_eq(peer, 7);
	if (refuses)
		return refuses;
	*handle = 100 + user_n;
	*key = (struct nic_bulk_key){len, (uintptr_t)at};
	user[user_n++] = u;
	return 0;
}

static void fake_withdraw(struct nic_queue *q, uint32_t handle)
{
	withdrawn = handle;
	withdrawn_n++;
}

static int fake_read(struct nic_queue *q, uint32_t peer, const struct nic_bulk_key *key, uint64_t offset, void *to,
		     uint32_t len, uint64_t u)
{
	cr_assert_eq(peer, 7);
	if (refuses)
		return refuses;
	user[user_n++] = u;
	return 0;
}

static const struct nic_bulk_ops bulk = {.expose = fake_expose, .withdraw = fake_withdraw, .read = fake_read};
static const struct nic_queue_ops ops = {.bulk = &bulk};
static struct nic_queue lower = {.ops = &ops};

static void begin(void)
{
	atomic_init(&buf.refs, 1); /* the test's own: it is never freed */
}

static unsigned refs(void)
{
	return atomic_load(&buf.refs);
}

static int expose(uint32_t *entry)
{
	struct transport_onesided_request request = {&lower, 7, sizeof bytes, &buf, bytes, &message};
	int error = transport_onesided_expose(&o, &request, 1, entry);
	const struct nic_bulk_key *key = &o.entry[*entry].key;
	if (!error)
		cr_assert(key->key == sizeof bytes && key->addr == (uintptr_t)bytes);
	return error;
}

static int read_of(void *owner)
{
	struct nic_bulk_key key = {1, 2};
	struct transport_onesided_request request = {&lower, 7, sizeof bytes, &buf, bytes, owner};
	return transport_onesided_read(&o, &request, &key, 3);
}

static void *event_of(uint64_t u, unsigned event)
{
	struct nic_pkt pkt = {.peer = NIC_PEER_BULK, .body_len = event, .cookie = u};
	struct transport_onesided_result got = {0};
	void *owner = transport_onesided_event(&o, &pkt, &got);
	cr_assert(!owner || got.event == event);
	cr_assert(!owner || event < NIC_BULK_READ || (got.offset == 3 && got.len == sizeof bytes));
	return owner;
}

TestSuite(transport_onesided, .init = begin);

Test(transport_onesided, exposed_until_withdrawn)
{
	uint32_t entry = 0;
	cr_assert_eq(expose(&entry), 0);
	cr_assert_eq(refs(), 2);
	cr_assert_eq(event_of(user[0], NIC_BULK_EXPOSED), &message);
	cr_assert_eq(event_of(user[0], NIC_BULK_EXPOSED), NULL);
	cr_assert_eq(o.stray, 1, "it says so once");
	transport_onesided_withdraw(&o, &lower, entry);
	transport_onesided_withdraw(&o, &lower, entry);
	cr_assert(withdrawn_n == 1 && withdrawn == 100);
	cr_assert_eq(refs(), 2, "the window is still open");
	cr_assert_eq(event_of(user[0], NIC_BULK_WITHDRAWN), NULL);
	cr_assert(refs() == 1 && o.n == 0 && o.stray == 1);
}

/* The connection broke, without a request to end. The message gets the event. */
Test(transport_onesided, withdrawn_before_exposed)
{
	uint32_t entry = 0;
	cr_assert_eq(expose(&entry), 0);
	cr_assert_eq(event_of(user[0], NIC_BULK_WITHDRAWN), &message);
	cr_assert(refs() == 1 && o.n == 0);
	cr_assert_eq(event_of(user[0], NIC_BULK_WITHDRAWN), NULL);
	cr_assert(refs() == 1 && o.stray == 1);
	transport_onesided_withdraw(&o, &lower, entry);
	cr_assert_eq(withdrawn_n, 0);
}

Test(transport_onesided, exposed_after_withdraw)
{
	uint32_t entry = 0;
	cr_assert_eq(expose(&entry), 0);
	transport_onesided_withdraw(&o, &lower, entry);
	cr_assert_eq(event_of(user[0], NIC_BULK_EXPOSED), NULL);
	cr_assert(refs() == 2 && o.stray == 0);
	event_of(user[0], NIC_BULK_WITHDRAWN);
	cr_assert(refs() == 1 && o.stray == 0);
}

Test(transport_onesided, message_ends_first)
{
	uint32_t entry = 0;
	cr_assert_eq(expose(&entry), 0);
	cr_assert_eq(read_of(&message), 0);
	cr_assert_eq(read_of(&other), 0);
	transport_onesided_forget(&o, &lower, &message);
	cr_assert(refs() == 4 && withdrawn_n == 1);
	cr_assert_eq(event_of(user[1], NIC_BULK_READ), NULL);
	cr_assert_eq(event_of(user[0], NIC_BULK_WITHDRAWN), NULL);
	cr_assert_eq(event_of(user[2], NIC_BULK_READ_FAILED), &other);
	cr_assert(refs() == 1 && o.n == 0 && o.stray == 0);
}

/* An event of an entry's earlier generation, of another kind, of no kind, of no entry. */
Test(transport_onesided, events_of_others)
{
	cr_assert_eq(read_of(&message), 0);
	event_of(user[0], NIC_BULK_READ);
	cr_assert_eq(read_of(&other), 0);
	const uint64_t wrong[] = {user[0], 0, UINT64_MAX, user[1] + FAR_TRANSPORT_ONESIDED};
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
		cr_assert_eq(event_of(wrong[i], NIC_BULK_READ), NULL);
	cr_assert_eq(event_of(user[1], NIC_BULK_EXPOSED), NULL);
	cr_assert_eq(event_of(user[1], NIC_BULK_WITHDRAWN), NULL);
	cr_assert_eq(event_of(user[1], 0), NULL);
	cr_assert_eq(event_of(user[1], 99), NULL);
	cr_assert(o.stray == 8 && o.n == 1 && refs() == 2);
	cr_assert_eq(event_of(user[1], NIC_BULK_READ), &other);
}

Test(transport_onesided, refused_or_full)
{
	uint32_t entry = 0;
	refuses = -ENOMEM;
	cr_assert_eq(expose(&entry), -ENOMEM);
	cr_assert_eq(read_of(&message), -ENOMEM);
	cr_assert(refs() == 1 && o.n == 0);
	refuses = 0;
	for (unsigned i = 0; i < FAR_TRANSPORT_ONESIDED; i++)
		cr_assert_eq(read_of(&message), 0);
	cr_assert_eq(read_of(&message), -EAGAIN);
	cr_assert_eq(expose(&entry), -EAGAIN);
	cr_assert_eq(user_n, FAR_TRANSPORT_ONESIDED);
	event_of(user[40], NIC_BULK_READ);
	cr_assert_eq(expose(&entry), 0);
	cr_assert_eq(entry, 40);
	cr_assert_eq(refs(), 1 + FAR_TRANSPORT_ONESIDED);
}
