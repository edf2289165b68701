/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports with a link over the datagram driver in memory, under a clock that the test moves. */
#ifndef LINK_BENCH_H
#define LINK_BENCH_H

#include "fake_dgram.h"
#include "transport/transport.h"

enum { LINK_ENDS = 4, LINK_BENCH_HEAD = 28 };
#define BENCH_MS UINT64_C(1000000)

struct link_end {
	struct nic_port *port;
	struct nic_queue *q; /* queue 0 */
	unsigned queues;
	int refuse;
	unsigned hellos, ups, downs, fails, refusals;
	uint32_t refused;
	uint32_t up, accepted, down, up_queue, hello_queue; /* the last; `accepted` without a user */
	int error;                                          /* of the last FAILED or DOWN */
	char text[NIC_TEXT_BYTES_MAX];
	char words[NIC_HELLO_BYTES_MAX + 1];
	uint64_t next; /* what step() returned */
	/* what recv() handed up, while `collect` */
	uint64_t got;
	uint64_t got_bytes;
	bool bad; /* a packet was not the one that was due */
};

struct link_bench {
	struct dgram_fabric fabric;
	struct link_end ends[LINK_ENDS];
	uint64_t now;
	uint32_t first_packet;
	uint64_t limit_ns;
	bool unchecked[LINK_ENDS];
	const struct group_key *key;        /* of ends that are opened; NULL: nothing is proven */
	const struct random_source *random; /* of ends that are opened; NULL: the kernel's */
	uint64_t step_ns;                   /* by which a turn moves the clock */
	void (*before)(void);               /* each turn; NULL: nothing */
	unsigned steps_every;               /* turns there is a step(); 0: in each */
	unsigned turns;
};
extern struct link_bench bench;
/** That bench_init() gives to all ends. */
extern const struct group_key bench_key;

/** Everything of the test before is gone. */
void bench_init(void);
void bench_fini(void);
void end_open(unsigned e, unsigned queues);
void end_close(unsigned e);
/** One step and one recv() of every queue of every end, and `step_ns` later. Packets that come are checked: see
 * bench_send(). */
void bench_turn(void);
/** Turns until *count is `at_least`: false when that takes more than `turns`. */
bool bench_until(const unsigned *count, unsigned at_least, unsigned turns);
/** Starts connecting queue `qf` of `from` to queue `qt` of `to`. */
int bench_connect(unsigned from, unsigned qf, unsigned to, unsigned qt, uint64_t within_ns);
/** Connects both and attaches both. */
void bench_pair(unsigned from, unsigned to, uint32_t *at_from, uint32_t *at_to);
/** Two ends, 0 connected to 1; what they call each other. */
void bench_two(uint32_t *at_0, uint32_t *at_1);

/** Sends message number `seq` of `len` bytes, which the receiver checks by its head: 0 or -errno. */
int bench_send(unsigned e, uint32_t peer, uint64_t seq, uint64_t len);
/** Fills what was reserved as message number `seq`. */
void bench_fill(struct nic_tx *tx, uint64_t seq, uint64_t len);
/** Is it message number `seq` as bench_send() sent it. */
bool bench_is(const struct nic_pkt *pkt, uint64_t seq);
/** Takes what there is, of queue `queue`: how many. */
unsigned bench_take(unsigned e, unsigned queue);
/** Sends `n` messages of the lengths of `len_of` and waits until all have come, in order, within so many turns. */
bool bench_stream(unsigned e, uint32_t peer, unsigned to, uint64_t n, uint64_t (*len_of)(uint64_t seq), unsigned turns);

#endif
