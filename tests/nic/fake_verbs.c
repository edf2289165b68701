/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_query_port

struct ibv_device fake_devices[FAKE_DEVICES_MAX];
static struct ibv_context *opened;
static struct ibv_async_event events[16];
static _Atomic unsigned events_head, events_tail;

struct fake_verbs fake_verbs;

static struct ibv_gid_entry gid_entry(unsigned index, unsigned type, const char *text)
{
	struct ibv_gid_entry e = {.gid_index = index, .port_num = 1, .gid_type = type, .ndev_ifindex = 1};
	inet_pton(AF_INET6, text, e.gid.raw);
	return e;
}

void fake_verbs_reset(void)
{
	memset(&fake_verbs, 0, sizeof fake_verbs);
	fake_verbs.devices = 1;
	fake_verbs.transport = getenv("FAKE_VERBS_IWARP") ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	fake_verbs.inline_max = 64;
	fake_verbs.reg_most = getenv("FAKE_VERBS_LOCK") ? strtoul(getenv("FAKE_VERBS_LOCK"), NULL, 10) : 0;
	fake_verbs.windows_loose = getenv("FAKE_VERBS_LOOSE") != NULL;
	fake_verbs.keys_watched = getenv("FAKE_VERBS_SAY") != NULL;
	fake_verbs.limits = (struct ibv_device_attr){.fw_ver = "0",
						     .max_qp = 1000,
						     .max_qp_wr = RING,
						     .max_cq = 1000,
						     .max_cqe = RING,
						     .max_ah = 1000,
						     .max_srq = getenv("FAKE_VERBS_OWN") ? 0 : 1000,
						     .max_srq_wr = RING,
						     .device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B,
						     .max_mw = getenv("FAKE_VERBS_NO_WINDOWS") ? 0 : 65536,
						     .max_qp_rd_atom = 16,
						     .phys_port_cnt = 1};
	fake_verbs.port = (struct ibv_port_attr){.max_mtu = IBV_MTU_4096,
						 .active_mtu = IBV_MTU_1024,
						 .gid_tbl_len = FAKE_GIDS_MAX,
						 .link_layer = IBV_LINK_LAYER_ETHERNET};
	fake_verbs.port_state = IBV_PORT_ACTIVE;
	fake_verbs.gids[0] = gid_entry(0, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	fake_verbs.gids[1] = gid_entry(1, IBV_GID_TYPE_ROCE_V1, "::ffff:127.0.0.1");
	fake_verbs.gids[2] = gid_entry(2, IBV_GID_TYPE_ROCE_V2, "::ffff:127.0.0.1");
	fake_verbs.gids[3] = gid_entry(3, IBV_GID_TYPE_ROCE_V2, "::1");
	fake_verbs.gids_n = 4;
}

__attribute__((constructor)) static void begin(void)
{
	fake_verbs_reset();
}

/* ---- devices ---- */

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(FAKE_DEVICES_MAX + 1, sizeof *list);
	for (unsigned i = 0; i < fake_verbs.devices; i++) {
		fake_devices[i].transport_type = fake_verbs.transport;
		snprintf(fake_devices[i].name, sizeof fake_devices[i].name, "fake%u", i);
		snprintf(fake_devices[i].dev_name, sizeof fake_devices[i].dev_name, "uverbs%u", i);
		snprintf(fake_devices[i].dev_path, sizeof fake_devices[i].dev_path, "%s",
			 fake_verbs.entry ? fake_verbs.entry : "");
		list[i] = &fake_devices[i];
	}
	if (n)
		*n = (int)fake_verbs.devices;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	if (fake_verbs.open_error) {
		errno = fake_verbs.open_error;
		return NULL;
	}
	struct ibv_context *c = calloc(1, sizeof *c);
	c->device = device;
	fake_pair_ops(c);
	fake_rdma_ops(c);
	c->async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE);
	c->num_comp_vectors = 1;
	opened = c;
	fake_verbs.contexts++;
	return c;
}

int ibv_close_device(struct ibv_context *c)
{
	fake_verbs.contexts--;
	close(c->async_fd);
	if (opened == c)
		opened = NULL;
	free(c);
	return 0;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *out)
{
	(void)c;
	*out = fake_verbs.limits;
	return 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *out)
{
	(void)c;
	(void)port;
	struct ibv_port_attr attr = fake_verbs.port;
	attr.state = (enum ibv_port_state)fake_verbs.port_state;
	memcpy(out, &attr, sizeof attr);
	return 0;
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
	return state == IBV_PORT_ACTIVE ? "PORT_ACTIVE" : "PORT_DOWN";
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *out, size_t max, uint32_t flags, size_t size)
{
	(void)c;
	(void)flags;
	if (size != sizeof *out || max < fake_verbs.gids_n)
		return -EINVAL;
	memcpy(out, fake_verbs.gids, fake_verbs.gids_n * sizeof *out);
	return (ssize_t)fake_verbs.gids_n;
}

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *out)
{
	(void)c;
	(void)port;
	if (index < 0 || (unsigned)index >= fake_verbs.gids_n)
		return -1;
	*out = fake_verbs.gids[index].gid;
	return 0;
}

/* ---- events ---- */

void fake_verbs_event(enum ibv_event_type type)
{
	events[events_tail++ % 16] = (struct ibv_async_event){.event_type = type};
	eventfd_write(opened->async_fd, 1);
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *out)
{
	eventfd_t one;
	if (eventfd_read(c->async_fd, &one) < 0)
		return -1;
	*out = events[events_head++ % 16];
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

/* ---- memory, handles, channels ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	pd->context = c;
	fake_verbs.pds++;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	fake_verbs.pds--;
	free(pd);
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	if (fake_verbs.ah_delay_ms)
		usleep(fake_verbs.ah_delay_ms * 1000);
	if (fake_verbs.ah_error) {
		errno = fake_verbs.ah_error;
		return NULL;
	}
	struct fake_ah *ah = calloc(1, sizeof *ah);
	ah->base.context = pd->context;
	ah->base.pd = pd;
	ah->attr = *attr;
	fake_verbs.ahs++;
	return &ah->base;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	fake_verbs.ahs--;
	free(ah);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct fake_channel *ch = calloc(1, sizeof *ch);
	struct epoll_event ev = {.events = EPOLLIN};
	ch->base.context = c;
	ch->base.fd = epoll_create1(EPOLL_CLOEXEC);
	ch->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	epoll_ctl(ch->base.fd, EPOLL_CTL_ADD, ch->event_fd, &ev);
	fake_verbs.channels++;
	return &ch->base;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct fake_channel *ch = (struct fake_channel *)channel;
	close(ch->event_fd);
	close(ch->base.fd);
	free(ch);
	fake_verbs.channels--;
	return 0;
}
