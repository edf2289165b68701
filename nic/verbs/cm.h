/* SPDX-License-Identifier: BSD-3-Clause */
/** The functions of librdmacm, which sets connections up. Loaded by dlopen() when a port first needs connections, so
 * that ports of datagrams do without the library. Loading: control thread; the functions: control thread and worker
 * threads.
 */
#ifndef NIC_VERBS_CM_H
#define NIC_VERBS_CM_H

#include "nic/nic.h"

#include <rdma/rdma_cma.h>

/* All functions that are used. */
#define VERBS_CM_CALLS(X)                                                                                              \
	X(struct rdma_event_channel *, rdma_create_event_channel, (void))                                              \
	X(void, rdma_destroy_event_channel, (struct rdma_event_channel * channel))                                     \
	X(int, rdma_create_id,                                                                                         \
	  (struct rdma_event_channel * channel, struct rdma_cm_id * *id, void *context, enum rdma_port_space ps))      \
	X(int, rdma_destroy_id, (struct rdma_cm_id * id))                                                              \
	X(int, rdma_bind_addr, (struct rdma_cm_id * id, struct sockaddr * addr))                                       \
	X(int, rdma_listen, (struct rdma_cm_id * id, int backlog))                                                     \
	X(__be16, rdma_get_src_port, (struct rdma_cm_id * id))                                                         \
	X(int, rdma_resolve_addr,                                                                                      \
	  (struct rdma_cm_id * id, struct sockaddr * from, struct sockaddr * to, int timeout_ms))                      \
	X(int, rdma_resolve_route, (struct rdma_cm_id * id, int timeout_ms))                                           \
	X(int, rdma_init_qp_attr, (struct rdma_cm_id * id, struct ibv_qp_attr * attr, int *mask))                      \
	X(int, rdma_connect, (struct rdma_cm_id * id, struct rdma_conn_param * param))                                 \
	X(int, rdma_establish, (struct rdma_cm_id * id))                                                               \
	X(int, rdma_accept, (struct rdma_cm_id * id, struct rdma_conn_param * param))                                  \
	X(int, rdma_reject, (struct rdma_cm_id * id, const void *words, uint8_t len))                                  \
	X(int, rdma_disconnect, (struct rdma_cm_id * id))                                                              \
	X(int, rdma_get_cm_event, (struct rdma_event_channel * channel, struct rdma_cm_event * *event))                \
	X(int, rdma_ack_cm_event, (struct rdma_cm_event * event))

#define VERBS_CM_MEMBER(type, name, args) type(*name) args;
struct verbs_cm {
	VERBS_CM_CALLS(VERBS_CM_MEMBER)
};

/** The library's functions; loaded once and kept. NULL: `err` states what is missing, and the remedy. Control thread,
 * or any thread that may load libraries. */
const struct verbs_cm *verbs_cm_load(struct nic_err *err);

#endif
