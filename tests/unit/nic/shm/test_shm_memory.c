/* SPDX-License-Identifier: BSD-3-Clause */
/** Memories by reference: how a peer gets one, every field of a reference and of a message that a hostile peer writes,
 * and the ends of memory, link and port in each order. The test's thread. */
#include "nic/shm/shm_control.h"
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BYTES = 40000 };

static struct test_port a, b;
static uint32_t to_b, to_a; /* a's name for b, b's name for a */
static uint8_t *memory;     /* of a */
static uint64_t whole;      /* its bytes */

static uint8_t *alloc(size_t bytes)
{
	int error;
	uint8_t *p = shared_alloc(bytes, &error);
	cr_assert_not_null(p);
	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(i * 7 + i / 256);
	return p;
}

static void setup(void)
{
	shm_dir_setup();
	test_port_open(&a, 1);
	test_port_open(&b, 2);
	test_ports_connect(&a, &b, &to_b, &to_a);
	memory = alloc(BYTES);
	whole = shared_size(memory);
}

static void teardown(void)
{
	test_port_close(&a);
	test_port_close(&b);
	shm_dir_teardown();
}

TestSuite(shm_memory, .init = setup, .fini = teardown);

static struct shm_link *link_at(const struct test_port *p, uint32_t peer)
{
	return ((struct shm_port *)(void *)p->port)->links[peer];
}

static int refer(const uint8_t *at, uint64_t len, uint64_t *reference)
{
	return a.q->ops->refer(a.q, to_b, at, len, reference);
}

static int map(uint64_t reference, uint64_t len, const uint8_t **at, void **hold)
{
	return b.q->ops->map(b.q, to_a, reference, len, at, hold);
}

/* The reference of [at, at + len), once the peer has mapped the memory. */
static uint64_t given(const uint8_t *at, uint64_t len)
{
	uint64_t reference = 0;
	for (unsigned i = 0; i < 10 && refer(at, len, &reference); i++)
		test_ports_step(&a, 0, &b, 0);
	cr_assert_eq(refer(at, len, &reference), 0);
	return reference;
}

static uint32_t key_of(const uint8_t *at)
{
	uint32_t key = 0;
	uint64_t offset;
	cr_assert(shared_find(at, 1, &key, &offset));
	return key;
}

static void expect_up(void)
{
	for (unsigned i = 0; i < 3; i++)
		test_ports_step(&a, 0, &b, 0);
	for (unsigned i = 0; i < b.events_n; i++)
		cr_assert_neq(b.events[i].type, NIC_EVENT_DOWN);
}

Test(shm_memory, the_peer_reads_in_place)
{
	const uint8_t *at;
	void *hold;
	uint64_t reference;
	cr_assert_eq(refer(memory, BYTES, &reference), -EAGAIN, "it is not mapped");
	cr_assert_eq(refer(memory, BYTES, &reference), -EAGAIN);
	reference = given(memory + 100, 30000);
	cr_assert_eq(map(reference, 30000, &at, &hold), 0);
	cr_assert_neq((const void *)at, (const void *)(memory + 100), "another mapping of the same pages");
	cr_assert_eq(memcmp(at, memory + 100, 30000), 0);
	memory[100] ^= 1;
	cr_assert_eq(at[0], memory[100]);
	b.q->ops->unmap(hold);
	cr_assert_eq(refer((const uint8_t *)&at, 1, &reference), -EOPNOTSUPP, "no shared memory");
	cr_assert_eq(refer(memory + whole - 1, 2, &reference), -EOPNOTSUPP, "beyond its end");
	cr_assert_eq(a.q->ops->refer(a.q, to_b + 1, memory, 1, &reference), -EOPNOTSUPP, "no such peer");
	expect_up();
}

/* Each field of a reference, at both sides of its bound. */
Test(shm_memory, references_that_lie)
{
	const uint8_t *at;
	void *hold;
	uint64_t key = key_of(memory), first = given(memory, 1);
	cr_assert_eq(first, key << SHARED_OFFSET_BITS);
	cr_assert_eq(map(first, whole, &at, &hold), 0);
	b.q->ops->unmap(hold);
	cr_assert_eq(map(first + whole - 1, 1, &at, &hold), 0);
	b.q->ops->unmap(hold);
	cr_assert_eq(map(first, whole + 1, &at, &hold), -EINVAL);
	cr_assert_eq(map(first + whole - 1, 2, &at, &hold), -EINVAL);
	cr_assert_eq(map(first + whole, 1, &at, &hold), -EINVAL);
	cr_assert_eq(map(first + whole + 1, 0, &at, &hold), -EINVAL);
	cr_assert_eq(map(first + 1, UINT64_MAX, &at, &hold), -EINVAL);
	cr_assert_eq(map(first | (SHARED_BYTES_MAX - 1), 1, &at, &hold), -EINVAL);
	static const uint64_t keys[] = {1, FAR_SHARED_MAX, 2 * FAR_SHARED_MAX, SHARED_KEY_END - 1};
	for (unsigned i = 0; i < sizeof keys / sizeof *keys; i++)
		cr_assert_eq(map((key ^ keys[i]) << SHARED_OFFSET_BITS, 1, &at, &hold), -EINVAL, "key %u", i);
	cr_assert_eq(map(0, 1, &at, &hold), -EINVAL);
	cr_assert_eq(map(UINT64_MAX, 1, &at, &hold), -EINVAL);
	cr_assert_eq(b.q->ops->map(b.q, to_a + 1, first, 1, &at, &hold), -EINVAL, "no such peer");
	b.q->ops->detach(b.q, to_a);
	cr_assert_eq(map(first, 1, &at, &hold), -EINVAL, "not attached");
	b.q->ops->attach(b.q, to_a);
	cr_assert_eq(map(first, 1, &at, &hold), 0, "the mapping itself is whole");
	b.q->ops->unmap(hold);
}

/* ---- messages of a hostile peer ---- */

static const int good_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static int file(size_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

/* What b has mapped of a in the slot of `key` once it has received this. `fd` is closed. */
static uint32_t mapped_by(uint32_t key, uint64_t bytes, size_t len, int fd)
{
	struct shm_memory_msg content[2] = {{.bytes = bytes, .key = key}}; /* `len` may be too long */
	struct shm_control_msg message = shm_control_make(SHM_CONTROL_MEMORY, 0, content, len);
	cr_assert_eq(shm_control_send(link_at(&a, to_b)->fd, &message, &fd, fd >= 0), 0);
	if (fd >= 0)
		close(fd);
	expect_up();
	return atomic_load(&link_at(&a, to_b)->tx->mapped[SHARED_SLOT(key)]);
}

Test(shm_memory, messages_that_lie)
{
	const size_t len = sizeof(struct shm_memory_msg);
	const uint32_t key = 5 * FAR_SHARED_MAX + 7;
	cr_assert_eq(mapped_by(key, 8192, len, file(8192, good_seals)), key);
	cr_assert_eq(mapped_by(key, 0, len, -1), 0u, "freed");
	cr_assert_eq(mapped_by(key, 8192, len, -1), 0u, "no descriptor");
	cr_assert_eq(mapped_by(key, 8193, len, file(8192, good_seals)), 0u, "a longer one than the file");
	cr_assert_eq(mapped_by(key, 4096, len, file(8192, good_seals)), 0u, "a shorter one");
	cr_assert_eq(mapped_by(key, 0, len, file(0, good_seals)), 0u, "an empty one");
	cr_assert_eq(mapped_by(key, SHARED_BYTES_MAX + 4096, len, file(SHARED_BYTES_MAX + 4096, good_seals)), 0u);
	cr_assert_eq(mapped_by(key, 8192, len, file(8192, F_SEAL_GROW)), 0u, "it could shrink");
	cr_assert_eq(mapped_by(key, 8192, len, file(8192, F_SEAL_SHRINK | F_SEAL_SEAL)), 0u, "it could grow");
	cr_assert_eq(mapped_by(key, 8192, len - 1, file(8192, good_seals)), 0u, "a short message");
	cr_assert_eq(mapped_by(key, 8192, len + 1, file(8192, good_seals)), 0u, "a long one");
	cr_assert_eq(mapped_by(FAR_SHARED_MAX - 1, 8192, len, file(8192, good_seals)), 0u, "no such key");
	cr_assert_eq(mapped_by(SHARED_KEY_END, 8192, len, file(8192, good_seals)), 0u, "nor this one");
	cr_assert_eq(mapped_by(SHARED_KEY_END - 1, 8192, len, file(8192, good_seals)), SHARED_KEY_END - 1);
	int huge = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (huge >= 0 && ftruncate(huge, 2 << 20) == 0 && fcntl(huge, F_ADD_SEALS, good_seals) == 0)
		cr_assert_eq(mapped_by(key, 2 << 20, len, huge), 0u, "pages that may be missing");
	int pipes[2];
	cr_assert_eq(pipe(pipes), 0);
	close(pipes[1]);
	cr_assert_eq(mapped_by(key, 8192, len, pipes[0]), 0u, "no file");
	cr_assert_eq(mapped_by(key, 8192, len, file(8192, good_seals)), key, "the connection goes on");
}

/* Another kind of message is the end of the connection, as before. */
Test(shm_memory, other_messages_end_the_connection)
{
	struct shm_control_msg message = shm_control_make(SHM_CONTROL_RESPONSE, 0, NULL, 0);
	cr_assert_eq(shm_control_send(link_at(&a, to_b)->fd, &message, NULL, 0), 0);
	test_ports_step(&a, 0, &b, b.events_n + 1);
	cr_assert_eq(b.events[b.events_n - 1].type, NIC_EVENT_DOWN);
}

/* The consumer claims to have mapped what it has not: only its own references fail. */
Test(shm_memory, a_consumer_that_lies)
{
	const uint8_t *at;
	void *hold;
	uint64_t reference;
	uint32_t key = key_of(memory);
	atomic_store(&link_at(&b, to_a)->rx->mapped[SHARED_SLOT(key)], key + FAR_SHARED_MAX);
	cr_assert_eq(refer(memory, 1, &reference), -EAGAIN, "another key");
	atomic_store(&link_at(&b, to_a)->rx->mapped[SHARED_SLOT(key)], key);
	cr_assert_eq(refer(memory, 1, &reference), 0);
	cr_assert_eq(map(reference, 1, &at, &hold), -EINVAL);
}

/* ---- ends ---- */

/* The mapping of a hold stays when the memory is freed, the link and the port end. */
Test(shm_memory, a_hold_outlasts_everything)
{
	const uint8_t *at;
	void *hold;
	uint64_t reference = given(memory, BYTES), last = whole - 1;
	cr_assert_eq(map(reference, whole, &at, &hold), 0);
	memory[last] = 9;
	cr_assert(shared_free(memory));
	expect_up();
	cr_assert_eq(atomic_load(&link_at(&a, to_b)->tx->mapped[SHARED_SLOT(reference >> SHARED_OFFSET_BITS)]), 0u);
	void *again;
	const uint8_t *later;
	cr_assert_eq(map(reference, 1, &later, &again), -EINVAL, "it is taken back");
	cr_assert_eq(at[last], 9);
	test_port_close(&a);
	test_port_close(&b);
	cr_assert_eq(at[last], 9);
	shm_unmap_hold(hold);
}

/* The next memory of the slot has another key, and the old reference names nothing. */
Test(shm_memory, the_next_memory_of_a_slot)
{
	const uint8_t *at;
	void *hold;
	uint64_t old = given(memory, 1), reference;
	shared_free(memory);
	memory = alloc(BYTES);
	cr_assert_eq(refer(memory, 1, &reference), -EAGAIN);
	cr_assert_eq(SHARED_SLOT(key_of(memory)), SHARED_SLOT(old >> SHARED_OFFSET_BITS));
	reference = given(memory, 1);
	cr_assert_neq(reference, old);
	cr_assert_eq(map(old, 1, &at, &hold), -EINVAL);
	cr_assert_eq(map(reference, 1, &at, &hold), 0);
	b.q->ops->unmap(hold);
}

/* Without a free descriptor the peer maps nothing, and the connection goes on. */
Test(shm_memory, a_peer_without_descriptors)
{
	uint64_t reference;
	struct rlimit all, few;
	getrlimit(RLIMIT_NOFILE, &all);
	cr_assert_eq(refer(memory, 1, &reference), -EAGAIN);
	struct shm_port *p = (struct shm_port *)(void *)a.port;
	p->base.ops->step(a.port, 0, NULL, NULL); /* it is sent */
	int next = dup(0);
	close(next);
	few = (struct rlimit){(rlim_t)next, all.rlim_max};
	setrlimit(RLIMIT_NOFILE, &few);
	b.port->ops->step(b.port, 0, NULL, NULL);
	setrlimit(RLIMIT_NOFILE, &all);
	expect_up();
	cr_assert_eq(refer(memory, 1, &reference), -EAGAIN, "for ever");
	expect_up();
	uint8_t *other = alloc(BYTES);
	given(other, 1);
}

/* More memories than a process maps of one peer at once do not exist; as many can be given. */
Test(shm_memory, as_many_as_there_are)
{
	uint8_t *all[FAR_SHARED_MAX];
	const uint8_t *at;
	void *hold;
	for (unsigned i = 1; i < FAR_SHARED_MAX; i++)
		all[i] = alloc(i);
	for (unsigned i = 1; i < FAR_SHARED_MAX; i++) {
		uint64_t reference = given(all[i], i);
		cr_assert_eq(map(reference, i, &at, &hold), 0);
		cr_assert_eq(memcmp(at, all[i], i), 0);
		b.q->ops->unmap(hold);
	}
	for (unsigned i = 1; i < FAR_SHARED_MAX; i++)
		shared_free(all[i]);
	for (unsigned i = 0; i < FAR_SHARED_MAX; i++) /* a message in each step */
		expect_up();
	for (unsigned i = 0; i < FAR_SHARED_MAX; i++)
		cr_assert_eq(atomic_load(&link_at(&b, to_a)->mappings[i]), 0u);
}

/* More bytes than the own region has are not mapped; what a reader still holds counts. */
Test(shm_memory, as_many_bytes_as_the_region_has)
{
	const uint8_t *at;
	void *hold;
	uint64_t reference, more;
	((struct shm_port *)(void *)b.port)->memory_bytes = whole + 4096;
	reference = given(memory, 1);
	cr_assert_eq(map(reference, 1, &at, &hold), 0);
	uint8_t *large = alloc(4097), *small = alloc(4096);
	cr_assert_eq(refer(large, 1, &more), -EAGAIN);
	expect_up();
	cr_assert_eq(refer(large, 1, &more), -EAGAIN);
	given(small, 1);
	shared_free(small);
	shared_free(memory);
	expect_up();
	expect_up();
	memory = alloc(BYTES);
	cr_assert_eq(refer(memory, 1, &more), -EAGAIN);
	expect_up();
	cr_assert_eq(refer(memory, 1, &more), -EAGAIN, "a reader holds as much");
	b.q->ops->unmap(hold);
	shared_free(memory);
	memory = alloc(BYTES);
	given(memory, 1);
}

/* Both ends are one queue: messages to oneself travel as others. */
Test(shm_memory, both_ends_are_one_queue)
{
	uint64_t reference;
	uint32_t self, same;
	test_ports_connect(&a, &a, &self, &same);
	cr_assert_eq(a.q->ops->refer(a.q, self, memory, 1, &reference), -EOPNOTSUPP);
}
