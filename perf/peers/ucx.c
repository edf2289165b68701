/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * UCX: active messages of UCP, as ucx_perftest's ucp_am_lat sends them.
 *
 * UCX_TLS and UCX_NET_DEVICES choose the transport (UCX documentation, "Frequently Asked Questions", "Selecting
 * networks and transports"). UCS_THREAD_MODE_SINGLE; ucp_worker_progress() without a pause, as ucx_perftest -E poll.
 * A long message arrives as a descriptor that ucp_am_recv_data_nbx() fetches (ucp.h, UCP_AM_RECV_ATTR_FLAG_RNDV).
 * Replies are sent outside the callback.
 */
#include "bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define AM_ID       1
#define ADDRESS_MAX 4096

/* A request whose reply waits for the end of the callback. */
struct pending {
	const void *reply;
	size_t len;
};

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep;
static void *buffers[BENCH_DEPTH_MAX]; /* where long messages are fetched to, as many as are in flight */
static struct pending queue[2 * BENCH_DEPTH_MAX];
static unsigned queued, buffers_n;
static unsigned long sends; /* not complete */
static bool serving;

static void check(ucs_status_t status, const char *what)
{
	if (status < 0)
		bench_die("%s: %s", what, ucs_status_string(status));
}

static void take(const void *data, size_t len)
{
	if (!serving) {
		bench_reply(data, len);
		return;
	}
	if (queued == sizeof queue / sizeof *queue)
		bench_die("more than %u requests at once", queued);
	struct pending *p = &queue[queued++];
	p->reply = bench_answer(data, len, &p->len);
}

static void fetched(void *request, ucs_status_t status, size_t len, void *user)
{
	check(status, "ucp_am_recv_data_nbx");
	take(user, len);
	buffers[buffers_n++] = user;
	ucp_request_free(request);
}

static ucs_status_t arrived(void *arg, const void *head, size_t head_len, void *data, size_t len,
			    const ucp_am_recv_param_t *param)
{
	(void)arg;
	(void)head;
	(void)head_len;
	if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
		take(data, len);
		return UCS_OK;
	}
	if (!buffers_n)
		bench_die("more than %u long messages at once", bench.depth);
	void *to = buffers[--buffers_n];
	ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
						 UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
				 .datatype = ucp_dt_make_contig(1),
				 .cb.recv_am = fetched,
				 .user_data = to};
	ucs_status_ptr_t r = ucp_am_recv_data_nbx(worker, data, to, len, &p);
	check(UCS_PTR_STATUS(r), "ucp_am_recv_data_nbx");
	return UCS_INPROGRESS;
}

static void sent(void *request, ucs_status_t status, void *user)
{
	(void)user;
	check(status, "ucp_am_send_nbx");
	sends--;
	ucp_request_free(request);
}

static void transmit(const void *data, size_t len)
{
	ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_CALLBACK |
						 UCP_OP_ATTR_FIELD_USER_DATA,
				 .datatype = ucp_dt_make_contig(1),
				 .cb.send = sent};
	ucs_status_ptr_t r = ucp_am_send_nbx(ep, AM_ID, NULL, 0, data, len, &p);
	check(UCS_PTR_STATUS(r), "ucp_am_send_nbx");
	sends += UCS_PTR_IS_PTR(r);
}

static void progress(void)
{
	ucp_worker_progress(worker);
}

static void connect_over(int fd)
{
	struct {
		size_t len;
		char bytes[ADDRESS_MAX];
	} mine = {0}, theirs;
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
	ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				  .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_am_handler_param_t hp = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
						   UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
				     .id = AM_ID,
				     .cb = arrived,
				     .flags = UCP_AM_FLAG_WHOLE_MSG};
	ucp_config_t *config;
	ucp_address_t *address;
	for (buffers_n = 0; buffers_n < bench.depth; buffers_n++)
		buffers[buffers_n] = bench_alloc(serving ? bench.bytes : bench.reply_bytes);
	check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	check(ucp_init(&params, config, &context), "ucp_init");
	ucp_config_release(config);
	check(ucp_worker_create(context, &wp, &worker), "ucp_worker_create");
	check(ucp_worker_set_am_recv_handler(worker, &hp), "ucp_worker_set_am_recv_handler");
	check(ucp_worker_get_address(worker, &address, &mine.len), "ucp_worker_get_address");
	if (mine.len > sizeof mine.bytes)
		bench_die("an address of %zu bytes", mine.len);
	memcpy(mine.bytes, address, mine.len);
	ucp_worker_release_address(worker, address);
	bench_swap(fd, &mine, &theirs, sizeof mine);
	ucp_ep_params_t ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
				     .address = (const ucp_address_t *)theirs.bytes};
	check(ucp_ep_create(worker, &ep_params, &ep), "ucp_ep_create");
}

static void disconnect(void)
{
	while (sends)
		progress();
	ucp_request_param_t p = {0};
	ucs_status_ptr_t r = ucp_ep_close_nbx(ep, &p);
	if (UCS_PTR_IS_PTR(r)) {
		while (ucp_request_check_status(r) == UCS_INPROGRESS)
			progress();
		ucp_request_free(r);
	}
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
}

static void serve(int fd)
{
	serving = true;
	connect_over(fd);
	while (!bench_stopped() || queued) {
		progress();
		for (unsigned i = 0; i < queued; i++)
			transmit(queue[i].reply, queue[i].len);
		queued = 0;
	}
	disconnect();
}

static void send_request(unsigned slot, const void *data, size_t len)
{
	(void)slot;
	transmit(data, len);
}

static void version(char *text, size_t cap)
{
	snprintf(text, cap, "%s", ucp_get_version_string());
}

int main(int argc, char **argv)
{
	static const struct bench_peer peer = {"ucx",        "shm tcp",    version,  serve,
					       connect_over, send_request, progress, disconnect};
	return bench_main(argc, argv, &peer);
}
