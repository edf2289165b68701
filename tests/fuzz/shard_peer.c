/* SPDX-License-Identifier: BSD-3-Clause */
/** The peers of fuzz_shard, which follow what the shard sends, and the control core. */
#include "shard_peer.h"

#include "base/must.h"
#include "core/head.h"
#include "core/loop.h"
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

static void on_request(struct peer *p, const struct shm_head *h, size_t len)
{
	unsigned at = p->got_n++ % PEER_SENT;
	p->got[at] = *h;
	p->got_ops[at] =
		h->fn == RREF_CONTROL && !(h->flags & HEAD_TYPED) ? (uint8_t)(len / sizeof(struct rref_op)) : 0;
}

static void on_large(struct peer *p, const void *body, size_t len)
{
	struct head_rendezvous l;
	must(len == sizeof l);
	memcpy(&l, body, sizeof l);
	must(l.lane < FAR_RENDEZVOUS_LANES);
	p->in[l.lane].life = l.life;
	p->in[l.lane].open = true;
	p->in[l.lane].total = l.total;
	p->in[l.lane].at = p->in[l.lane].granted = 0;
}

static void on_packet(struct peer *p, const struct shm_head *h, const void *body, size_t len)
{
	unsigned lane = h->call % FAR_RENDEZVOUS_LANES;
	uint64_t time = head_time(h);
	switch (h->type) {
	case HEAD_REQUEST:
		on_request(p, h, len);
		break;
	case HEAD_ONEWAY:
		p->oneways++;
		break;
	case HEAD_LARGE:
		on_large(p, body, len);
		p->units++;
		break;
	case HEAD_DATA:
		must(h->call < FAR_RENDEZVOUS_LANES && h->gen == p->in[lane].life && time == p->in[lane].at);
		must(time + len <= p->in[lane].total); /* what is granted by spoiled packets is not known here */
		p->in[lane].at += len;
		p->units++;
		break;
	case HEAD_ABORT:
		p->units++;
		break;
	case HEAD_GRANT:
		must(h->call < FAR_RENDEZVOUS_LANES);
		if (h->gen == p->out[lane].life)
			p->out[lane].granted = time;
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
	struct shm_head h;
	const struct fake_packet *packet;
	struct mail m;
	while (mailbox_get(&app.shard->mail_out, &m))
		on_mail(&m);
	while ((packet = fake_queue_sent(app.queue, &h)))
		on_packet(&peers[packet->peer - PEER_NIC - 1], &h, fake_body(packet), packet->body_len);
	return app.queue->out_n < FAKE_PACKETS / 2 && app.queue->in_n < FAKE_PACKETS / 2;
}

void peer_put(struct peer *p, const struct shm_head *h, const void *body, size_t len)
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
