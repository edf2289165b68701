/* SPDX-License-Identifier: BSD-3-Clause */
/** A NIC port in memory: set-up and death, no packets. */
#ifndef FAKE_PORT_H
#define FAKE_PORT_H

#include "nic/nic.h"

#define FAKE_PORTS_MAX 96

struct fake_fabric {
	struct fake_port *ports[FAKE_PORTS_MAX];
	int refuse;           /* not 0: a connect() fails with it */
	int refuse_next;      /* what `refuse` becomes after one */
	bool stepwise;        /* a port reports one event when it was allowed to */
	bool lose_next;       /* the next connect() finds nobody and times out */
	uint64_t unreachable; /* reach() says no to the port of this id; 0: to none */
	uint64_t remarkable;  /* the port of this id remarks on all others; 0: none does */
	bool mute;            /* a connect() to another port reports nothing */
	/* Of one driver only; NULL: of none */
	const char *far_driver;  /* reach() says no */
	const char *deaf_driver; /* a connect() FAILED later with `deaf` */
	int deaf;
	const char *refuse_driver; /* `refuse` is its alone */
	/* What was asked for, by driver: "fake" 0, "other" 1. */
	unsigned connects[2];
	uint64_t deadline[2]; /* of the last */
};

/** `driver` is "fake" or "other": ports of different drivers do not meet. */
struct nic_port *fake_port_create(struct fake_fabric *f, const char *driver, uint64_t id);
/** As a process's death or close(): the peers see DOWN. */
void fake_port_destroy(struct nic_port *port);
/** `stepwise`: one event of the port may be reported. */
void fake_port_allow(struct nic_port *port);
/** Sessions that exist. */
unsigned fake_port_peers(const struct nic_port *port);
/** The peer's host refuses its port, or somebody says so. */
void fake_port_refuse(struct nic_port *port, uint32_t peer);
/** Cuts the session at this end: both ends see DOWN. */
void fake_port_cut(struct nic_port *port, uint32_t peer);

#endif
