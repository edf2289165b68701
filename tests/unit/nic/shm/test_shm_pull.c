/* SPDX-License-Identifier: BSD-3-Clause */
/** Pulls of the shm driver: what both ends find out at set-up, where the kernel permits it, where it refuses, and where
 * the process is not the peer's. The test's thread. */
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_port a, b;
static uint32_t to_b, to_a; /* a's name for b, b's name for a */

/* What process_vm_readv() does instead of its work. */
static int refused;         /* errno; 0: its work */
static bool another_memory; /* it copies other bytes */
static bool cut_short;      /* it copies one byte less */
static pid_t pid_read;

ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long to_n, const struct iovec *from,
			 unsigned long from_n, unsigned long flags)
{
	pid_read = pid;
	if (refused) {
		errno = refused;
		return -1;
	}
	ssize_t n = syscall(SYS_process_vm_readv, pid, to, to_n, from, from_n, flags);
	if (another_memory && n > 0)
		((uint8_t *)to->iov_base)[n - 1] ^= 1;
	return n - cut_short;
}

static bool another_user; /* this process has become */

uid_t geteuid(void)
{
	return (uid_t)syscall(SYS_geteuid) + another_user;
}

static void setup(void)
{
	shm_dir_setup();
	refused = 0;
	another_memory = cut_short = another_user = false;
	test_port_open(&a, 1);
	test_port_open(&b, 2);
}

static void teardown(void)
{
	test_port_close(&a);
	test_port_close(&b);
	shm_dir_teardown();
}

TestSuite(shm_pull, .init = setup, .fini = teardown);

static struct shm_link *link_at(const struct test_port *p, uint32_t peer)
{
	return ((struct shm_port *)(void *)p->port)->links[peer];
}

static bool pulls(const struct test_port *p, uint32_t peer)
{
	return p->q->ops->peer_pulls(p->q, peer);
}

static int pull_one(const struct test_port *p, uint32_t peer, void *at, const void *from, size_t len)
{
	struct iovec to = {at, len}, source = {(void *)(uintptr_t)from, len};
	return p->q->ops->pull(p->q, peer, &to, 1, &source, 1);
}

Test(shm_pull, ranges_arrive_in_order)
{
	static uint8_t source[100000], got[100000], last[8];
	for (unsigned i = 0; i < sizeof source; i++)
		source[i] = (uint8_t)(i * 7 + i / 256);
	test_ports_connect(&a, &b, &to_b, &to_a);
	cr_assert(pulls(&a, to_b));
	cr_assert(pulls(&b, to_a));
	struct iovec to[2] = {{got, 99990}, {last, 8}};
	struct iovec from[3] = {{source + 10, 5}, {source + 15, 99985}, {source, 8}};
	cr_assert_eq(b.q->ops->pull(b.q, to_a, to, 2, from, 3), 0);
	cr_assert_eq(memcmp(got, source + 10, 99990), 0);
	cr_assert_eq(memcmp(last, source, 8), 0);
	cr_assert_eq(pid_read, getpid());
	cr_assert_eq(a.q->ops->pull(a.q, to_b, to, 1, from, 2), 0);
}

/* Memory that is not there, and a copy that ends early. Expect an error, and that the next pull works. */
Test(shm_pull, memory_that_is_not_there)
{
	uint8_t got[64];
	test_ports_connect(&a, &b, &to_b, &to_a);
	cr_assert_eq(pull_one(&b, to_a, got, (void *)16, sizeof got), -EFAULT);
	cr_assert_eq(pull_one(&b, to_a, got, (void *)(UINTPTR_MAX - 8), sizeof got), -EFAULT);
	cut_short = true;
	cr_assert_eq(pull_one(&b, to_a, got, &a, sizeof got), -EFAULT);
	cut_short = false;
	cr_assert_eq(pull_one(&b, to_a, got, &a, sizeof got), 0);
	cr_assert(pulls(&a, to_b));
	cr_assert_eq(pull_one(&b, to_a + 1, got, &a, sizeof got), -EOPNOTSUPP, "no such peer");
	b.q->ops->detach(b.q, to_a);
	cr_assert_eq(pull_one(&b, to_a, got, &a, sizeof got), -EOPNOTSUPP, "not attached");
	cr_assert_eq(b.q->ops->attach(b.q, to_a), 0);
}

/* Refused at set-up: as another pid namespace, Yama or seccomp do. Expect that both ends know. */
Test(shm_pull, refused_at_set_up)
{
	uint8_t got[64];
	refused = EPERM;
	test_ports_connect(&a, &b, &to_b, &to_a);
	refused = 0;
	cr_assert_not(pulls(&a, to_b));
	cr_assert_not(pulls(&b, to_a));
	cr_assert_eq(pull_one(&b, to_a, got, &a, sizeof got), -EOPNOTSUPP);
}

/* The process has other bytes at that address, or less memory: it is not the peer's. */
Test(shm_pull, another_process)
{
	another_memory = true;
	test_ports_connect(&a, &b, &to_b, &to_a);
	cr_assert_not(pulls(&a, to_b));
	cr_assert_not(pulls(&b, to_a));
	another_memory = false;
	cut_short = true;
	test_ports_connect(&a, &b, &to_b, &to_a);
	cr_assert_not(pulls(&a, to_b));
}

/* Refused later: it stops, and the peer knows. */
Test(shm_pull, refused_later)
{
	uint8_t got[64];
	static const int errors[] = {EPERM, ESRCH, ENOSYS, ENOMEM};
	for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
		test_ports_connect(&a, &b, &to_b, &to_a);
		cr_assert(pulls(&a, to_b));
		refused = errors[i];
		cr_assert_eq(pull_one(&b, to_a, got, &a, sizeof got), -EOPNOTSUPP);
		refused = 0;
		cr_assert_not(pulls(&a, to_b));
		cr_assert(pulls(&b, to_a), "the other direction goes on");
		cr_assert_eq(pull_one(&b, to_a, got, &a, sizeof got), -EOPNOTSUPP);
	}
}

/* Whatever the peer writes there. */
Test(shm_pull, states_that_do_not_exist)
{
	test_ports_connect(&a, &b, &to_b, &to_a);
	for (uint32_t state = 2; state; state *= 2) {
		atomic_store(&link_at(&a, to_b)->tx->consumer.rx_pulls, state);
		cr_assert_not(pulls(&a, to_b));
	}
	cr_assert_not(pulls(&a, to_b + 1), "no such peer");
}

/* A proof that the peer lies about: an address without memory, and a number that is not there. */
Test(shm_pull, proofs_that_lie)
{
	test_ports_connect(&a, &b, &to_b, &to_a);
	struct shm_link *link = link_at(&b, to_a);
	struct shm_process *its = &((struct shm_pair *)link->map)->process[0];
	struct shm_process honest = *its;
	shm_pull_probe(link);
	cr_assert(pulls(&a, to_b));
	its->at = 16;
	shm_pull_probe(link);
	cr_assert_not(pulls(&a, to_b));
	*its = honest;
	its->nonce[15] ^= 1;
	shm_pull_probe(link);
	cr_assert_not(pulls(&a, to_b));
	*its = ((struct shm_pair *)link->map)->process[1]; /* our own */
	shm_pull_probe(link);
	cr_assert(pulls(&a, to_b), "in one process it is the peer's, too");
}

/* A process of another user is not read, whatever the kernel permits. */
Test(shm_pull, a_process_of_another_user)
{
	test_ports_connect(&a, &b, &to_b, &to_a);
	another_user = true;
	shm_pull_probe(link_at(&b, to_a));
	another_user = false;
	cr_assert_not(pulls(&a, to_b));
	shm_pull_probe(link_at(&b, to_a));
	cr_assert(pulls(&a, to_b));
}

Test(shm_pull, both_ends_are_one_queue)
{
	uint8_t got[sizeof a];
	test_ports_connect(&a, &a, &to_b, &to_a);
	cr_assert(pulls(&a, to_b));
	cr_assert_eq(pull_one(&a, to_b, got, &a, sizeof got), 0);
	cr_assert_eq(memcmp(got, &a, sizeof got), 0);
}
