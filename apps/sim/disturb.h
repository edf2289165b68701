/* SPDX-License-Identifier: BSD-3-Clause */
/** What happens to the packets and workers of a run, drawn from its seed, and noted in its history.
 * The thread of the simulated world. */
#ifndef SIM_DISTURB_H
#define SIM_DISTURB_H

#include "apps/sim/cluster.h"
#include "sim/load.h"

#define DISTURB_MAX 4096 /* incidents of a run */

struct disturb;

/** One partition, crash, pause or outage. */
struct disturb_incident {
	struct disturb *disturb;
	enum incident_kind kind;
	bool one_way, restart;
	uint32_t a, b;
	uint64_t lasts_ns;
	size_t number; /* in the history */
};

struct disturb {
	const struct scenario *scenario;
	struct cluster *cluster;
	struct load *load;
	struct history *history;
	struct sim_random random;
	struct sim_random stale, stale_ctl; /* of packets that come once more; of mails and streams */
	struct disturb_incident *incidents;
	unsigned incidents_n, under_way;
	uint32_t drops_left[DISTURB_DROPS];
	unsigned rail; /* of all outages */
	bool dropping; /* some packets are to be lost by their type */
	bool late;     /* the packet that leaves now comes late, and only then */
	bool over;
};

void disturb_init(struct disturb *d, const struct scenario *scenario, struct cluster *cluster, struct load *load,
		  struct history *history);
/** A sim_lose_fn: the packets that are lost by their type. All zero, it loses none. */
bool disturb_lose(void *disturb, const uint8_t *body, uint32_t len);
/** A sim_again_fn: the packets that come once more. All zero, there are none. */
uint64_t disturb_again(void *disturb, const uint8_t *body, uint32_t len);
/** A cluster_again_fn: the mails that come once more. */
uint64_t disturb_mail(void *disturb);
/** Packets are disturbed from now on. */
void disturb_packets(struct disturb *d);
/** Draws the incidents; their times count from now on. */
void disturb_begin(struct disturb *d);
/** Nothing is disturbed any more, and what is cut is healed. */
void disturb_end(struct disturb *d);
void disturb_fini(struct disturb *d);

#endif
