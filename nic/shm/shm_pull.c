/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Copies bodies from the memory of the peer's process (process_vm_readv). Set-up: control thread; the rest: poller.
 *
 * The kernel names the process of the peer (SO_PEERCRED) and permits the copy, or does not: another pid namespace, Yama
 * and seccomp refuse it. Each end writes the address of a random number in its memory into the pair. Who reads this
 * number from that process knows that it is the peer's, and that it may.
 */
#include "nic/shm/shm.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static unsigned side_of(const struct shm_link *link)
{
	return link->tx == &((struct shm_pair *)link->map)->direction[0] ? 0 : 1;
}

void shm_pull_offer(const struct shm_port *p, const struct shm_link *link)
{
	struct shm_process mine = {.at = (uintptr_t)p->nonce};
	memcpy(mine.nonce, p->nonce, sizeof mine.nonce);
	((struct shm_pair *)link->map)->process[side_of(link)] = mine;
}

/* The process at the other end, if it runs as the same user; else 0. Another user could make our poller wait, with
 * memory that comes slowly. */
static pid_t process_of(const struct shm_link *link)
{
	struct ucred cred;
	socklen_t len = sizeof cred;
	if (link->fd < 0)
		return getpid(); /* both ends are one queue */
	if (getsockopt(link->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || cred.uid != geteuid())
		return 0;
	return cred.pid; /* 0: in no pid namespace of ours */
}

static bool proven(pid_t pid, const struct shm_process *its)
{
	uint8_t found[sizeof its->nonce];
	struct iovec to = {found, sizeof found}, from = {(void *)(uintptr_t)its->at, sizeof found};
	return process_vm_readv(pid, &to, 1, &from, 1, 0) == sizeof found &&
	       memcmp(found, its->nonce, sizeof found) == 0;
}

static void notify_peer(const struct shm_link *link)
{
	atomic_store_explicit(&link->rx->consumer.rx_pulls, link->pull_pid ? SHM_PULLS_YES : SHM_PULLS_NO,
			      memory_order_relaxed);
}

void shm_pull_probe(struct shm_link *link)
{
	unsigned side = link->fd < 0 ? side_of(link) : 1 - side_of(link);
	struct shm_process its = ((struct shm_pair *)link->map)->process[side];
	pid_t pid = process_of(link);
	link->pull_pid = pid > 0 && proven(pid, &its) ? pid : 0;
	notify_peer(link);
}

bool shm_peer_pulls(struct nic_queue *nq, uint32_t peer)
{
	const struct shm_link *link = shm_attached_link((struct shm_queue *)nq, peer);
	return link && atomic_load_explicit(&link->tx->consumer.rx_pulls, memory_order_relaxed) == SHM_PULLS_YES;
}

static size_t bytes_of(const struct iovec *range, unsigned n)
{
	size_t bytes = 0;
	while (n--)
		bytes += range++->iov_len;
	return bytes;
}

int shm_pull(struct nic_queue *nq, uint32_t peer, const struct iovec *to, unsigned to_n, const struct iovec *from,
	     unsigned from_n)
{
	struct shm_link *link = shm_attached_link((struct shm_queue *)nq, peer);
	if (!link || !link->pull_pid)
		return -EOPNOTSUPP;
	ssize_t n = process_vm_readv(link->pull_pid, to, to_n, from, from_n, 0);
	if (n >= 0 || errno == EFAULT)
		return n >= 0 && (size_t)n == bytes_of(to, to_n) ? 0 : -EFAULT;
	link->pull_pid = 0; /* what permitted it has changed, or the process is gone */
	notify_peer(link);
	return -EOPNOTSUPP;
}
