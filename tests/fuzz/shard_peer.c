/* SPDX-License-Identifier: BSD-3-Clause */
/** The peers of fuzz_shard, which follow what the shard sends, and the control thread. */
#include "shard_peer.h"

#include "base/must.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/session.h"
#include "features/references/wire.h"

#include <string.h>

struct peer peers[APP_PEERS];
static uint8_t last_bodies[APP_PEERS][1024];

uint64_t peer_incarnation(uint32_t worker)
{
	if (worker == APP_SELF)
		return rref_incarnation(APP_SELF, app.shard->config.incarnation);
	return rref_incarnation(worker, worker <= APP_PEERS ? peers[worker - 1].incarnation : 1);
}

void peer_mail(const struct peer *p, enum mail_type type, enum far_status status)
{
	struct mail m = {.type = type,
			 .worker = p->worker,
			 .peer = PEER_NIC + p->worker,
			 .incarnation = p->incarnation,
			 .status = (uint8_t)status};
	if (mailbox_put(&app.shard->mail_in, &m))
		shard_take_mail(app.shard);
}

void peers_start(void)
{
	memset(peers, 0, sizeof peers);
	for (uint32_t i = 0; i < APP_PEERS; i++) {
		peers[i].worker = i + 1;
		peers[i].incarnation = 5;
		peer_mail(&peers[i], MAIL_PEER_UP, FAR_OK);
		app.shard->sessions[i + 1].eager_max = APP_WHOLE;
	}
}

static void on_request(struct peer *p, const union packet_head *h, size_t len)
{
	unsigned at = p->got_n++ % PEER_SENT;
	p->got[at] = *h;
	p->got_ops[at] = h->request.handler == RREF_CONTROL && !(h->flags & PACKET_TYPED)
				 ? (uint8_t)(len / sizeof(struct rref_op))
				 : 0;
}

static void on_announcement(struct peer *p, const struct packet_rendezvous *h, size_t len)
{
	must(len == sizeof(union packet_head) && h->lane < FAR_RENDEZVOUS_LANES);
	p->in[h->lane].epoch = h->epoch;
	p->in[h->lane].open = true;
	p->in[h->lane].total = h->total;
	p->in[h->lane].at = p->in[h->lane].granted = 0;
}

static void on_packet(struct peer *p, const union packet_head *h, size_t len)
{
	unsigned lane = h->lane.lane % FAR_RENDEZVOUS_LANES;
	switch (h->type) {
	case PACKET_REQUEST:
		on_request(p, h, len);
		break;
	case PACKET_ONEWAY:
		p->oneways++;
		break;
	case PACKET_RENDEZVOUS:
		on_announcement(p, &h->rendezvous, len);
		p->units++;
		break;
	case PACKET_DATA:
		must(h->data.lane < FAR_RENDEZVOUS_LANES && h->data.epoch == p->in[lane].epoch &&
		     h->data.offset == p->in[lane].at);
		must(h->data.offset + len <=
		     p->in[lane].total); /* what is granted by spoiled packets is not known here */
		p->in[lane].at += len;
		p->units++;
		break;
	case PACKET_ABORT:
		p->units++;
		break;
	case PACKET_GRANT:
		must(h->grant.lane < FAR_RENDEZVOUS_LANES);
		if (h->grant.epoch == p->out[lane].epoch)
			p->out[lane].granted = h->grant.granted;
		break;
	default:
		break;
	}
}

static void on_mail(const struct mail *m)
{
	if (m->worker < 1 || m->worker > APP_PEERS)
		return;
	struct peer *p = &peers[m->worker - 1];
	p->protocol_error |= m->type == MAIL_PROTOCOL_ERROR;
	p->detached |= m->type == MAIL_DETACHED;
}

bool peers_read(void)
{
	union packet_head h;
	const struct fake_packet *packet;
	struct mail m;
	while (mailbox_get(&app.shard->mail_out, &m))
		on_mail(&m);
	while ((packet = fake_queue_sent(app.queue, &h)))
		on_packet(&peers[packet->peer - PEER_NIC - 1], &h, packet->body_len);
	return app.queue->out_n < FAKE_PACKETS / 2 && app.queue->in_n < FAKE_PACKETS / 2;
}

void peer_put(struct peer *p, const union packet_head *h, const void *body, size_t len)
{
	if (body != last_bodies[p - peers]) {
		p->last = *h;
		p->last_len = len < sizeof last_bodies[0] ? len : 0;
		if (p->last_len)
			memcpy(last_bodies[p - peers], body, p->last_len);
	}
	fake_queue_put(app.queue, PEER_NIC + p->worker, h, body, len);
}

const uint8_t *peer_last(const struct peer *p)
{
	return last_bodies[p - peers];
}
