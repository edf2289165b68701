/* SPDX-License-Identifier: BSD-3-Clause */
/** Opens NIC ports for a floor, with a control thread that drives their set-up. */
#include "floor_port.h"
#include "agent/nic_spec.h"
#include "base/random.h"
#include "floor_udp.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define UP_NS       UINT64_C(10000000000) /* for a device, and for what is between the two, to be up */
#define LOOK_NAP_NS 1000000

/* The one driver that a side has. */
static int read_spec(const char *nic, struct nic_spec_entry *out, const struct nic_port_ops **ops,
		     char text[FLOOR_TEXT_BYTES])
{
	struct nic_spec spec;
	struct far_err err;
	struct nic_err why = {""};
	if (nic_spec_parse(nic, &spec, &err) != FAR_OK) {
		snprintf(text, FLOOR_TEXT_BYTES, "%s", err.text);
		return -EINVAL;
	}
	if (spec.automatic || spec.n != 1 || strcmp(spec.entries[0].name, "shm") == 0) {
		snprintf(text, FLOOR_TEXT_BYTES,
			 "\"%.64s\": the floor of a NIC is that of one driver on both sides, such as udp; those of "
			 "memory "
			 "need neither --nic nor --server-nic",
			 nic);
		return -EINVAL;
	}
	*out = spec.entries[0];
	*ops = nic_find(out->name, &why);
	if (!*ops)
		snprintf(text, FLOOR_TEXT_BYTES, "%s", why.text);
	return *ops ? 0 : -ENODEV;
}

/* As an agent would, but for its link, which nothing here needs. */
static int open_port(struct floor_port *p, const char *nic, const struct perf_opts *o, char text[FLOOR_TEXT_BYTES])
{
	const struct nic_port_ops *ops;
	struct nic_spec_entry e;
	struct nic_err why = {""};
	if (p->port)
		return 0;
	int rc = read_spec(nic, &e, &ops, text);
	if (rc < 0)
		return rc;
	const struct nic_config config = {.id = random_u64(),
					  .any_user = o->security != NULL,
					  .beyond_host = o->beyond_host,
					  .queues = 1,
					  .args = e.has_args ? e.args : NULL,
					  .listen = getenv("FAR_LISTEN")};
	rc = ops->open(&config, &p->port, &why);
	if (rc < 0) {
		p->port = NULL;
		snprintf(text, FLOOR_TEXT_BYTES, "%s", why.text[0] ? why.text : strerror(-rc));
	}
	return rc;
}

static int on_event(void *ctx, const struct nic_event *e)
{
	struct floor_port *p = ctx;
	if (e->user != p)
		return -ECONNREFUSED;
	p->peer = e->peer;
	if (e->type == NIC_EVENT_FAILED) {
		p->error = e->error ? e->error : -EIO;
		snprintf(p->why, sizeof p->why, "%s", e->text ? e->text : strerror(-p->error));
	}
	atomic_store_explicit(&p->settled, true, memory_order_release); /* pairs with connect_queue() */
	return 0;
}

/* What the control thread is to a port of an agent. */
static void *control_main(void *arg)
{
	struct floor_port *p = arg;
	struct pollfd fds[] = {{.fd = p->stop_fd, .events = POLLIN},
			       {.fd = p->port->ops->fd(p->port), .events = POLLIN}};
	while (!(fds[0].revents & POLLIN)) {
		uint64_t next = p->port->ops->step(p->port, floor_now(), on_event, p), now = floor_now();
		int ms = next == UINT64_MAX ? -1 : next <= now ? 0 : (int)((next - now) / 1000000 % 1000) + 1;
		poll(fds, 2, ms);
	}
	return NULL;
}

static int control_start(struct floor_port *p)
{
	p->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (p->stop_fd < 0)
		return -errno;
	int error = pthread_create(&p->control, NULL, control_main, p);
	p->controlled = error == 0;
	if (error)
		close(p->stop_fd);
	return -error;
}

static void control_stop(struct floor_port *p)
{
	uint64_t one = 1;
	if (!p->controlled)
		return;
	while (write(p->stop_fd, &one, sizeof one) < 0 && errno == EINTR)
		;
	pthread_join(p->control, NULL);
	close(p->stop_fd);
	p->controlled = false;
}

static int await_place(struct floor_port *p, uint64_t until, char text[FLOOR_TEXT_BYTES])
{
	bool settled;
	while (!(settled = atomic_load_explicit(&p->settled, memory_order_acquire)) && floor_now() < until)
		nanosleep(&(struct timespec){.tv_nsec = LOOK_NAP_NS}, NULL);
	if (!settled)
		snprintf(text, FLOOR_TEXT_BYTES, "the other port was not reached within %d s",
			 (int)(UP_NS / 1000000000));
	else if (p->error)
		snprintf(text, FLOOR_TEXT_BYTES, "%s", p->why);
	return settled ? p->error : -ETIMEDOUT;
}

/* A place at the other port, for queue 0. */
static int connect_queue(struct floor_port *p, const struct nic_addr *to, char text[FLOOR_TEXT_BYTES])
{
	const struct nic_port_ops *ops = p->port->ops;
	struct nic_queue *q = ops->queue(p->port, 0);
	struct nic_err why = {""};
	uint64_t until = floor_now() + UP_NS;
	if (!q->ops->raw) {
		snprintf(text, FLOOR_TEXT_BYTES, "nothing can be sent beside the driver %s, so it has no floor",
			 ops->name);
		return -EOPNOTSUPP;
	}
	int rc = ops->connect(p->port, &(struct nic_connect){0, to, 0, NULL, 0, until, p}, &why);
	if (rc == 0)
		rc = control_start(p);
	if (rc < 0) {
		snprintf(text, FLOOR_TEXT_BYTES, "%s", why.text[0] ? why.text : strerror(-rc));
		return rc;
	}
	rc = await_place(p, until, text);
	if (rc == 0)
		rc = q->ops->attach(q, p->peer);
	if (rc < 0)
		return rc;
	uint64_t bytes = q->ops->tx_bytes_max(q, p->peer);
	p->attached = true;
	p->nic = (struct floor_nic){.ops = q->ops->raw,
				    .queue = q,
				    .peer = p->peer,
				    .bytes_max = bytes < FLOOR_NIC_BYTES_MAX ? (uint32_t)bytes : FLOOR_NIC_BYTES_MAX,
				    .window = FLOOR_NIC_WINDOW,
				    .fd = -1};
	return 0;
}

void floor_port_close(struct floor_port *p)
{
	control_stop(p);
	if (p->attached) {
		p->nic.queue->ops->detach(p->nic.queue, p->nic.peer);
		p->port->ops->drop(p->port, p->nic.peer);
	}
	floor_udp_close(&p->nic);
	if (p->port)
		p->port->ops->close(p->port);
	*p = (struct floor_port){.nic = {.fd = -1}};
}

/* ---- server ---- */

static struct floor_port served = {.nic = {.fd = -1}};

static void accept_end(struct floor_shared *s, const struct perf_opts *o)
{
	struct floor_meeting *m = &s->meeting;
	if (m->what == FLOOR_MEET_SOCKET) {
		floor_udp_accept(&served.nic, s);
		return;
	}
	m->error = open_port(&served, perf_server_nic(o), o, m->text);
	if (m->error == 0 && m->what == FLOOR_MEET_ADDRESS)
		served.port->ops->address(served.port, &m->server);
	else if (m->error == 0)
		m->error = connect_queue(&served, &m->client, m->text);
}

int floor_port_serve(struct floor_shared *s, const struct perf_opts *o, uint64_t mode)
{
	switch ((enum floor_mode)(mode & 0xff)) {
	case FLOOR_NIC_OPEN:
		accept_end(s, o);
		return 0;
	case FLOOR_STOP:
		floor_port_close(&served);
		return 0;
	default:
		return floor_nic_serve(s, &served.nic, mode);
	}
}

/* ---- client ---- */

static int meet(struct floor_port *p, struct floor_shared *s, const struct perf_opts *o, char text[FLOOR_TEXT_BYTES])
{
	struct floor_meeting *m = &s->meeting;
	const struct nic_port_ops *ops;
	struct nic_spec_entry e;
	int rc = read_spec(o->nic, &e, &ops, text);
	if (rc == 0)
		rc = read_spec(perf_server_nic(o), &e, &ops, text);
	/* The server comes first: a memif server makes the socket that the client looks for. */
	if (rc == 0)
		rc = floor_nic_meet(s, FLOOR_MEET_ADDRESS, text);
	if (rc == 0)
		rc = open_port(p, o->nic, o, text);
	if (rc < 0)
		return rc;
	p->port->ops->address(p->port, &m->client);
	if (strncmp(m->client.driver, m->server.driver, sizeof m->client.driver) != 0) {
		snprintf(text, FLOOR_TEXT_BYTES, "the two sides have no driver in common: %.16s here, %.16s there",
			 m->client.driver, m->server.driver);
		return -EXDEV;
	}
	if (strcmp(m->client.driver, "udp") == 0)
		return floor_udp_open(&p->nic, s, text);
	rc = floor_nic_meet(s, FLOOR_MEET_QUEUE, text);
	if (rc == 0)
		rc = connect_queue(p, &m->server, text);
	if (rc == 0 && floor_nic_ping(s, &p->nic, UP_NS) < 0) {
		snprintf(text, FLOOR_TEXT_BYTES, "no packet came back within %d s; is the link between the two up?",
			 (int)(UP_NS / 1000000000));
		rc = -ETIMEDOUT;
	}
	return rc;
}

int floor_port_open(struct floor_port *p, struct floor_shared *s, const struct perf_opts *o,
		    char where[FLOOR_PORT_TEXT], char text[FLOOR_TEXT_BYTES])
{
	char from[FLOOR_PORT_TEXT / 2 - 8] = "?", to[FLOOR_PORT_TEXT / 2 - 8] = "?";
	*p = (struct floor_port){.nic = {.fd = -1}};
	int rc = meet(p, s, o, text);
	if (rc < 0) {
		floor_port_close(p);
		return rc;
	}
	p->port->ops->address_text(&s->meeting.client, from, sizeof from);
	p->port->ops->address_text(&s->meeting.server, to, sizeof to);
	snprintf(where, FLOOR_PORT_TEXT, "%s to %s", from, to);
	return 0;
}
