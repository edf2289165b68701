/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * libfabric: messages of a reliable datagram endpoint, as fi_pingpong -e rdm -m msg sends them (fi_pingpong(1)).
 * Main thread of each process.
 *
 * Providers: shm (fi_shm(7)), and tcp under ofi_rxm (fi_rxm(7): RDM over the message endpoints of fi_tcp(7)). Receives
 * are posted ahead for all requests in flight; requests below inject_size go by fi_inject() (fi_msg(3)), longer ones by
 * fi_send(); completions are polled by fi_cq_read() (fi_cq(3)), one completion a read, from one queue for each
 * direction. Memory is registered if the provider wants it (fi_mr(3), FI_MR_LOCAL).
 */
#include "bench.h"
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 256
#define RECEIVES     (BENCH_DEPTH_MAX + 8)

struct receive {
	struct fi_context2 context; /* the provider's (FI_CONTEXT2) */
	void *data;
	struct fid_mr *mr;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *rx, *tx;
static struct fid_ep *ep;
static fi_addr_t there;
static struct receive receives[RECEIVES];
static struct fi_context2 sends[RECEIVES];
static unsigned receives_n, sends_begun, sends_ended;
static size_t receive_len;
static bool serving;

/* Memory that is sent from: of few addresses, each registered at its first use. */
static struct {
	const void *data;
	struct fid_mr *mr;
} sources[BENCH_DEPTH_MAX];

static void check(ssize_t rc, const char *what)
{
	if (rc < 0)
		bench_die("%s: %s", what, fi_strerror((int)-rc));
}

static struct fid_mr *reg(const void *data, size_t len, uint64_t access)
{
	static uint64_t key;
	struct fid_mr *mr = NULL;
	if (info->domain_attr->mr_mode & FI_MR_LOCAL)
		check(fi_mr_reg(domain, data, len, access, 0, ++key, 0, &mr, NULL), "fi_mr_reg");
	return mr;
}

static void *source_of(const void *data, size_t len)
{
	if (!(info->domain_attr->mr_mode & FI_MR_LOCAL))
		return NULL;
	for (unsigned i = 0; i < BENCH_DEPTH_MAX; i++) {
		if (!sources[i].data) {
			sources[i].data = data;
			sources[i].mr = reg(data, len, FI_SEND);
		}
		if (sources[i].data == data)
			return fi_mr_desc(sources[i].mr);
	}
	bench_die("more than %d buffers are sent from", BENCH_DEPTH_MAX);
}

/* 0 or 1 completions. */
static ssize_t poll_queue(struct fid_cq *cq, struct fi_cq_msg_entry *e)
{
	ssize_t n = fi_cq_read(cq, e, 1);
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry err = {0};
		fi_cq_readerr(cq, &err, 0);
		bench_die("a completion failed: %s", fi_strerror(err.err));
	}
	if (n != -FI_EAGAIN)
		check(n, "fi_cq_read");
	return n > 0 ? n : 0;
}

static void poll_sends(void)
{
	struct fi_cq_msg_entry e;
	sends_ended += (unsigned)poll_queue(tx, &e);
}

static void post(struct receive *r)
{
	ssize_t rc;
	while ((rc = fi_recv(ep, r->data, receive_len, r->mr ? fi_mr_desc(r->mr) : NULL, FI_ADDR_UNSPEC,
			     &r->context)) == -FI_EAGAIN)
		poll_sends();
	check(rc, "fi_recv");
}

static void transmit(const void *data, size_t len)
{
	ssize_t rc;
	if (len < info->tx_attr->inject_size) {
		while ((rc = fi_inject(ep, data, len, there)) == -FI_EAGAIN)
			poll_sends();
		check(rc, "fi_inject");
		return;
	}
	while (sends_begun - sends_ended >= RECEIVES)
		poll_sends();
	while ((rc = fi_send(ep, data, len, source_of(data, len), there, &sends[sends_begun % RECEIVES])) == -FI_EAGAIN)
		poll_sends();
	check(rc, "fi_send");
	sends_begun++;
}

static void progress(void)
{
	struct fi_cq_msg_entry e;
	if (poll_queue(rx, &e)) {
		struct receive *r = (struct receive *)e.op_context;
		if (serving) {
			size_t len;
			const void *reply = bench_answer(r->data, e.len, &len);
			transmit(reply, len);
		} else {
			bench_reply(r->data, e.len);
		}
		post(r);
	}
	if (sends_begun != sends_ended)
		poll_sends();
}

static void open_fabric(void)
{
	struct fi_info *hints = fi_allocinfo();
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup(bench.variant);
	bool tcp = strcmp(bench.variant, "tcp") == 0;
	check(fi_getinfo(FI_VERSION(1, 17), tcp ? "127.0.0.1" : NULL, NULL, tcp ? FI_SOURCE : 0, hints, &info),
	      "fi_getinfo");
	fi_freeinfo(hints);
	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	struct fi_cq_attr ca = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_NONE, .size = info->rx_attr->size};
	struct fi_av_attr aa = {.type = info->domain_attr->av_type};
	check(fi_cq_open(domain, &ca, &rx, NULL), "fi_cq_open");
	ca.size = info->tx_attr->size;
	check(fi_cq_open(domain, &ca, &tx, NULL), "fi_cq_open");
	check(fi_av_open(domain, &aa, &av, NULL), "fi_av_open");
	check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(ep, &rx->fid, FI_RECV), "fi_ep_bind");
	check(fi_ep_bind(ep, &tx->fid, FI_TRANSMIT), "fi_ep_bind");
	check(fi_enable(ep), "fi_enable");
}

static void connect_over(int fd)
{
	struct {
		size_t len;
		char bytes[NAME_MAX_LEN];
	} mine = {.len = NAME_MAX_LEN}, theirs;
	char ready = 1;
	open_fabric();
	receive_len = serving ? bench.bytes : bench.reply_bytes;
	receive_len = receive_len < BENCH_SMALL ? BENCH_SMALL : receive_len;
	receives_n = bench.depth + 1; /* one is posted again only after its message was handled */
	for (unsigned i = 0; i < receives_n; i++) {
		receives[i].data = bench_alloc(receive_len);
		receives[i].mr = reg(receives[i].data, receive_len, FI_RECV);
		post(&receives[i]);
	}
	check(fi_getname(&ep->fid, mine.bytes, &mine.len), "fi_getname");
	bench_swap(fd, &mine, &theirs, sizeof mine);
	if (fi_av_insert(av, theirs.bytes, 1, &there, 0, NULL) != 1)
		bench_die("fi_av_insert does not take the other process's address");
	bench_swap(fd, &ready, &ready, 1);
}

static void close_all(void)
{
	while (sends_begun != sends_ended)
		poll_sends();
	fi_close(&ep->fid);
	for (unsigned i = 0; i < receives_n; i++)
		if (receives[i].mr)
			fi_close(&receives[i].mr->fid);
	for (unsigned i = 0; i < BENCH_DEPTH_MAX && sources[i].mr; i++)
		fi_close(&sources[i].mr->fid);
	fi_close(&av->fid);
	fi_close(&rx->fid);
	fi_close(&tx->fid);
	fi_close(&domain->fid);
	fi_close(&fabric->fid);
	fi_freeinfo(info);
}

static int control;

static void serve(int fd)
{
	char ready = 1;
	serving = true;
	connect_over(fd);
	while (!bench_stopped())
		progress();
	/* The client has the last reply when it swaps; an injected message may still need progress here. */
	while (!bench_waiting(fd))
		poll_sends();
	bench_swap(fd, &ready, &ready, 1);
	close_all();
}

static void open_client(int fd)
{
	control = fd;
	connect_over(fd);
}

static void close_client(void)
{
	char ready = 1;
	bench_swap(control, &ready, &ready, 1);
	close_all();
}

static void send_request(unsigned slot, const void *data, size_t len)
{
	(void)slot;
	transmit(data, len);
}

static void version(char *text, size_t cap)
{
	uint32_t v = fi_version();
	snprintf(text, cap, "%u.%u", FI_MAJOR(v), FI_MINOR(v));
}

int main(int argc, char **argv)
{
	static const struct bench_peer peer = {"libfabric", "shm tcp",    version,  serve,
					       open_client, send_request, progress, close_client};
	return bench_main(argc, argv, &peer);
}
