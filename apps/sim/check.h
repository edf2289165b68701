/* SPDX-License-Identifier: BSD-3-Clause */
/** The checkers: was a run right. Pure functions of its history. Any thread. */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "sim/history.h"

#define CHECK_TEXT_MAX 512

struct check_failure {
	enum checker checker;
	char text[CHECK_TEXT_MAX];
};

/**
 * Runs the checkers in `checks` over the history, in the order of enum checker. Each reports its first objection.
 * Returns the number of objections; the first `max` of them are in `out`.
 *
 *   once         a call that ended well ran once; none ran twice, on another worker, or was made up
 *   reply        the reply is the one that this call's handler made
 *   bytes        requests arrived as they were sent
 *   deadline     every call ended, once, by its deadline and the slack (its worker's pauses do not count)
 *   class        an error fits what happened: TIMEOUT at the deadline, PEER_LOST after an incident, …
 *   executed     NO: it never ran; YES: it did
 *   incarnation  a call to one incarnation of a worker did not run in the next; nor did a call of a dead caller's next
 * incarnation not send order        one-way messages of one worker to another ran in order delivered    one-way
 * messages ran, unless an incident excuses it conserved    credits, grants, slots agree (what the walk over the engines
 * found) level        nothing is left allocated (likewise) no-death     no call ended with PEER_LOST or UNREACHABLE
 *   no-timeout   none with TIMEOUT
 *   resends      at most `checks->resends` packets were sent again
 *   quiet        the engines came to rest, and logged nothing unexpected
 *   late         a delivery took longer than its work, history.late_ns and the faults that touch it account for; or a
 *                worker that came back is still taken for dead
 *   orphans      a handler whose caller died went on, though it waits
 */
unsigned check_history(const struct history *h, const struct checks *checks, struct check_failure *out, unsigned max);

#endif
