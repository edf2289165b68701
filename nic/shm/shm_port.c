/* SPDX-License-Identifier: BSD-3-Clause */
/** Port operations, but for connections (shm_connect.c). Control thread. */
#include "nic/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

static int shm_probe(const struct nic_config *config, struct nic_err *err)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int error = shm_dir_open(config->runtime_dir, config->any_user, path, sizeof path, err);
	if (error)
		return error;
	int fd = shm_pair_create();
	if (fd < 0)
		return shm_error(err, fd, "shm: cannot create a sealed memfd: %s", strerror(-fd));
	close(fd);
	return 0;
}

static void queue_close(struct shm_queue *q)
{
	if (q->bells)
		shm_unmap(q->bells);
	shm_close_fd(&q->bells_fd);
	shm_close_fd(&q->wake_fd);
	munmap(q, sizeof *q);
}

static void shm_close(struct nic_port *port)
{
	struct shm_port *p = shm_port_of(port);
	for (uint32_t i = 0; i < SHM_PEERS_MAX; i++)
		if (p->peer_numbers.taken[i / 64] >> i % 64 & 1)
			shm_link_free(p, p->links[i]);
	for (uint32_t i = 0; i < p->queues_n; i++)
		queue_close(p->queues[i]);
	if (p->path[0] && !p->is_private)
		unlink(p->path);
	shm_close_fd(&p->listen_fd);
	shm_close_fd(&p->inotify_fd);
	shm_memory_close(p);
	shm_close_fd(&p->epoll_fd);
	munmap(p, sizeof *p);
}

/* Allocates zeroed pages that become resident when touched; NULL: out of memory. */
static void *pages_new(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static int queue_open(struct shm_port *p, unsigned head_bytes)
{
	struct shm_queue *q = pages_new(sizeof *q);
	if (!q)
		return -ENOMEM;
	q->base.ops = &shm_queue_ops;
	q->base.lanes.hot = q->hot;
	q->base.lanes.dirty = q->dirty;
	q->port = p;
	q->index = p->queues_n;
	q->head_bytes = head_bytes;
	q->inline_max = LANE_LINE_BYTES - head_bytes;
	p->queues[p->queues_n++] = q;
	q->bells_fd = -1;
	q->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (q->wake_fd < 0)
		return -errno;
	q->bells_fd = shm_bells_create();
	return q->bells_fd < 0 ? q->bells_fd : shm_bells_map(q->bells_fd, &q->bells);
}

static int shm_open_port(const struct nic_config *config, struct nic_port **out, struct nic_err *err)
{
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)] = "";
	bool is_private = config->args && strcmp(config->args, "private") == 0;
	if (config->args && !is_private)
		return shm_error(err, -EINVAL, "shm: takes no arguments, not \"%.80s\"", config->args);
	if (config->queues == 0 || config->queues > SHM_QUEUES_MAX)
		return shm_error(err, -EINVAL, "shm: 1 to %u queues, not %u", SHM_QUEUES_MAX, config->queues);
	if (config->head_bytes == 0 || config->head_bytes > SHM_REF_OFFSET)
		return shm_error(err, -EINVAL, "shm: head_bytes must be 1 to %u, not %u", SHM_REF_OFFSET,
				 config->head_bytes);
	int error = is_private ? 0 : shm_dir_open(config->runtime_dir, config->any_user, dir, sizeof dir, err);
	if (error)
		return error;
	if (!is_private)
		shm_dir_sweep(dir);
	struct shm_port *p = pages_new(sizeof *p);
	if (!p)
		return shm_error(err, -ENOMEM, "shm: out of memory");
	p->base.ops = &nic_shm_port_ops;
	p->any_user = config->any_user;
	p->key = config->key;
	p->budget = config->budget;
	p->is_private = is_private;
	p->memory_bytes = config->memory_bytes;
	auth_random(p->nonce, sizeof p->nonce, &random_kernel);
	if (!is_private)
		shm_dir_id(dir, &p->dir);
	p->listen_fd = p->inotify_fd = p->memory_fd = -1;
	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	error = p->epoll_fd < 0 ? -errno : shm_memory_open(p);
	for (unsigned i = 0; !error && i < config->queues; i++)
		error = queue_open(p, config->head_bytes);
	if (error)
		shm_error(err, error, "shm: %s; see `ulimit -n` (five descriptors, and two for each queue)",
			  strerror(-error));
	else if (is_private)
		snprintf(p->path, sizeof p->path, "(private)/%016llx", (unsigned long long)config->id);
	else
		error = shm_listen(p, dir, config->id, err);
	if (error) {
		shm_close(&p->base);
		return error;
	}
	*out = &p->base;
	return 0;
}

static void shm_caps(const struct nic_port *port, struct nic_caps *out)
{
	(void)port;
	*out = (struct nic_caps){
		.connected = true,
		.reliable = true,
		.ordered = true,
		.crc = true,
		.authenticated = true,
		.zero_copy_rx = true,
		.wake = true,
		.head_bytes_max = SHM_REF_OFFSET,
		.inline_bytes_max = LANE_LINE_BYTES,
		.body_align = 32,
		.body_bytes_max = SHM_BODY_MAX,
		.slots = SHM_SLOTS - 2 * LANE_GIVE_BACK,
		.peers_max = SHM_PEERS_MAX,
		.queues_max = SHM_QUEUES_MAX,
	};
}

static void shm_stats(const struct nic_port *port, struct nic_stats *out)
{
	(void)port;
	*out = (struct nic_stats){0};
}

static struct nic_queue *shm_queue_at(struct nic_port *port, unsigned i)
{
	return i < shm_port_of(port)->queues_n ? &shm_port_of(port)->queues[i]->base : NULL;
}

static int shm_fd(const struct nic_port *port)
{
	return shm_port_of(port)->epoll_fd;
}

static void shm_drop(struct nic_port *port, uint32_t peer)
{
	struct shm_port *p = shm_port_of(port);
	if (peer < SHM_PEERS_MAX && p->links[peer])
		shm_link_free(p, p->links[peer]);
}

const struct nic_port_ops nic_shm_port_ops = {
	.name = "shm",
	.probe = shm_probe,
	.open = shm_open_port,
	.close = shm_close,
	.caps = shm_caps,
	.address = shm_address,
	.address_text = shm_address_text,
	.reach = shm_reach,
	.stats = shm_stats,
	.queue = shm_queue_at,
	.connect = shm_connect,
	.step = shm_step,
	.fd = shm_fd,
	.drop = shm_drop,
};
