/* SPDX-License-Identifier: BSD-3-Clause */
/** Probes whether a device checks the bounds of memory windows: some do not, and no capability reports it. Two queue
 * pairs of the device are connected with each other. Reading inside the window must succeed; reading beside it, in the
 * same region, must fail, on either side. Everything is freed again. Control thread; sleeps for milliseconds. */
#include "nic/verbs/bulk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Parts of the region: before the window, the window, behind it, and the target of reads. */
#define PART      4096u
#define PARTS     4u
#define BEYOND    8 /* bytes by which the second read exceeds the window */
#define POLL_NS   20000
#define TIMEOUT   14 /* 67 ms between retransmissions of the device */
#define RETRIES   3
#define RNR_WAIT  12
#define HOP_LIMIT 64

struct probe {
	const struct verbs_choice *on;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_qp *qp[2]; /* [0] owns the window, [1] reads */
	uint8_t *memory;
	uint64_t limit; /* ns */
	struct nic_err *why;
};

static int failed(const struct probe *t, const char *what, int error)
{
	return verbs_error(t->why, error ? -error : -EIO, "%s: %s", what, strerror(error ? error : EIO));
}

static int pair_open(struct probe *t, unsigned i)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = t->cq,
		.recv_cq = t->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	errno = 0;
	t->qp[i] = ibv_create_qp(t->pd, &attr);
	return t->qp[i] ? 0 : failed(t, "a queue pair to try windows with", errno);
}

static int pair_connect(struct probe *t, unsigned i)
{
	const struct verbs_choice *on = t->on;
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = on->port, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
				  .path_mtu = on->attr.active_mtu,
				  .dest_qp_num = t->qp[!i]->qp_num,
				  .max_dest_rd_atomic = 1,
				  .min_rnr_timer = RNR_WAIT,
				  .ah_attr = {.is_global = 1,
					      .port_num = on->port,
					      .grh = {.dgid = on->gid.gid,
						      .sgid_index = (uint8_t)on->gid.gid_index,
						      .hop_limit = HOP_LIMIT}}};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
				  .timeout = TIMEOUT,
				  .retry_cnt = RETRIES,
				  .rnr_retry = RETRIES,
				  .max_rd_atomic = 1};
	int error =
		ibv_modify_qp(t->qp[i], &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (!error)
		error = ibv_modify_qp(t->qp[i], &rtr,
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (!error)
		error = ibv_modify_qp(t->qp[i], &rts,
				      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return error ? failed(t, "a connection of the device with itself", error) : 0;
}

static int probe_open(struct probe *t)
{
	errno = 0;
	t->pd = ibv_alloc_pd(t->on->context);
	if (!t->pd)
		return failed(t, "a protection domain to try windows with", errno);
	t->cq = ibv_create_cq(t->on->context, 8, NULL, NULL, 0);
	if (!t->cq)
		return failed(t, "a completion queue to try windows with", errno);
	t->mr = ibv_reg_mr(t->pd, t->memory, (size_t)PARTS * PART, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	if (!t->mr)
		return failed(t, "memory to try windows with (see ulimit -l)", errno);
	t->mw = ibv_alloc_mw(t->pd, IBV_MW_TYPE_2);
	if (!t->mw)
		return failed(t, "a memory window", errno);
	for (unsigned i = 0; i < 2; i++)
		if (pair_open(t, i))
			return -EIO;
	for (unsigned i = 0; i < 2; i++)
		if (pair_connect(t, i))
			return -EIO;
	return 0;
}

static void probe_close(struct probe *t)
{
	if (t->mw)
		ibv_dealloc_mw(t->mw);
	for (unsigned i = 0; i < 2; i++)
		if (t->qp[i])
			ibv_destroy_qp(t->qp[i]);
	if (t->mr)
		ibv_dereg_mr(t->mr);
	if (t->cq)
		ibv_destroy_cq(t->cq);
	if (t->pd)
		ibv_dealloc_pd(t->pd);
}

/* Posts a work request and waits: its completion status, or -errno. */
static int post(struct probe *t, unsigned i, struct ibv_send_wr *wr)
{
	const struct timespec pause = {.tv_nsec = POLL_NS};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	wr->send_flags = IBV_SEND_SIGNALED;
	int error = ibv_post_send(t->qp[i], wr, &bad), n;
	if (error)
		return failed(t, "a request of a memory window", error);
	while ((n = ibv_poll_cq(t->cq, 1, &wc)) == 0 && verbs_now() < t->limit)
		nanosleep(&pause, NULL);
	if (n < 0)
		return failed(t, "a completion", EIO);
	if (n == 0)
		return failed(t, "a read of a memory window of this device by itself", ETIMEDOUT);
	return (int)wc.status;
}

/* Reads one part from `addr` on. */
static int read_at(struct probe *t, uint32_t rkey, uint64_t addr)
{
	uint8_t *to = t->memory + (size_t)(PARTS - 1) * PART;
	struct ibv_sge sge = {.addr = (uintptr_t)to, .length = PART, .lkey = t->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2,
				 .opcode = IBV_WR_RDMA_READ,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .wr.rdma = {.remote_addr = addr, .rkey = rkey}};
	memset(to, 0, PART);
	return post(t, 1, &wr);
}

static int check_window(struct probe *t, int beyond)
{
	const uint8_t *window = t->memory + PART;
	uint32_t rkey = ibv_inc_rkey(t->mw->rkey);
	struct ibv_send_wr bind = {.wr_id = 1,
				   .opcode = IBV_WR_BIND_MW,
				   .bind_mw = {.mw = t->mw,
					       .rkey = rkey,
					       .bind_info = {.mr = t->mr,
							     .addr = (uintptr_t)window,
							     .length = PART,
							     .mw_access_flags = IBV_ACCESS_REMOTE_READ}}};
	int status = post(t, 0, &bind);
	if (status == IBV_WC_SUCCESS)
		status = read_at(t, rkey, (uintptr_t)window);
	if (status < 0)
		return status;
	if (status != IBV_WC_SUCCESS || memcmp(window, window + (size_t)(PARTS - 2) * PART, PART) != 0)
		return verbs_error(t->why, -EIO, "a memory window of the device cannot be read (status %d)", status);
	status = read_at(t, rkey, (uintptr_t)window + (uintptr_t)(intptr_t)beyond);
	if (status < 0 || status == IBV_WC_REM_ACCESS_ERR)
		return status < 0 ? status : 0;
	if (status != IBV_WC_SUCCESS)
		return verbs_error(t->why, -EIO,
				   "a read beyond a memory window of the device ended with status %d, not %d", status,
				   IBV_WC_REM_ACCESS_ERR);
	return verbs_error(t->why, -EPERM,
			   "it does not check the bounds of memory windows: a peer could read memory beside a message");
}

static int bounds_check(const struct verbs_choice *on, struct nic_err *why)
{
	uint8_t *memory = aligned_alloc(PART, (size_t)PARTS * PART);
	int error = memory ? 0 : verbs_error(why, -ENOMEM, "out of memory");
	for (size_t i = 0; memory && i < (size_t)PARTS * PART; i++)
		memory[i] = (uint8_t)(i * 31 + i / PART + 1);
	uint64_t limit = verbs_now() + VERBS_PROBE_NS;
	for (int before = 0; !error && before < 2; before++) {
		struct probe t = {.on = on, .memory = memory, .limit = limit, .why = why};
		error = probe_open(&t);
		if (!error)
			error = check_window(&t, before ? -BEYOND : BEYOND);
		probe_close(&t);
	}
	free(memory);
	return error;
}

/* Checks that the kernel's rdma_cm is available; the library alone is not enough. */
static int cm_check(const struct verbs_choice *on, struct nic_err *why)
{
	const struct verbs_cm *cm = verbs_cm_load(why);
	if (!cm)
		return -ENOENT;
	errno = 0;
	struct rdma_event_channel *channel = cm->rdma_create_event_channel();
	if (!channel)
		return verbs_cannot_cm(on->device, errno, why);
	cm->rdma_destroy_event_channel(channel);
	return 0;
}

int verbs_bulk_probe(const struct verbs_choice *on, const struct ibv_device_attr *limits, struct nic_err *why)
{
	if (on->rc)
		return verbs_error(why, -EPROTONOSUPPORT, "packets go over connections, not as datagrams");
	if (!on->ethernet)
		return verbs_error(why, -EPROTONOSUPPORT, "it is InfiniBand, not RoCE v2");
	if (!verbs_has_windows(limits))
		return verbs_error(why, -EOPNOTSUPP, "no memory windows of type 2");
	int error = cm_check(on, why);
	return error ? error : bounds_check(on, why);
}
