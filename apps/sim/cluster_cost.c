/* SPDX-License-Identifier: BSD-3-Clause */
/* What work costs in instructions, and where the numbers are from: callgrind's counts of the release build by gcc 12
 * (perf/instructions.expected: message; tests/nic/transport_cost.sh: checksums by the link). They are of both sides
 * together; halves are taken where the parts are not counted apart. The thread of the simulated world. */
#include "apps/sim/cluster.h"

const struct cluster_cost cluster_cost_default = {
	.per_us = 6000,   /* 3 GHz, two instructions in a cycle */
	.pass = 115,      /* message, loop: 229 for both sides' passes of a call */
	.packet = 447,    /* transport_cost, 0 bytes: 895 for a message of one packet, sent and received */
	.call = 379,      /* message, call */
	.answer = 113,    /* message, complete */
	.request = 265,   /* message, dispatch and reply: 94 + 171 */
	.handler = 100,   /* an echo's, and the application's around it */
	.byte_1024 = 340, /* transport_cost, 1024 bytes against 128: 596 for 896 bytes and both sides */
	.step = 3000,     /* of the order of a look at the sockets, the ports and the mailboxes */
	.wake = 240000,   /* 40 us: perf/NOTES.md, wake: an eventfd takes 37 to 43 us; a machine of its own, a tenth */
};
