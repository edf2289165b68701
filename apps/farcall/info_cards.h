/* SPDX-License-Identifier: BSD-3-Clause */
/** The part of `farcall info` about network cards that DPDK could take over. Main thread. */
#ifndef FARCALL_INFO_CARDS_H
#define FARCALL_INFO_CARDS_H

#include "perf/json.h"

#include <stdio.h>

/** Prints every PCI network card: its kernel driver, and what nic=dpdk still needs. `j`: an object that is open, or
 * NULL. */
void info_cards(FILE *out, struct json *j);

#endif
