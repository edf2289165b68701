/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Agents without threads, with an injected clock, network and random source: for the simulator. They are the objects
 * that far_init_rpc() makes, but never wait, never sleep, and do not depend on the machine, so that one thread can step
 * any number of them.
 *
 * That one thread calls all functions, outside of the agent's fibers. The public API is used on fibers of the agent
 * (fiber_spawn(), handlers of kind fiber), where a wait switches to another fiber. Elsewhere calls may be started, and
 * functions that wait return FAR_WOULD_DEADLOCK; a future made by the application belongs to no agent, and a wait for
 * it outside of a fiber would block the thread. far_shutdown(), far_shard_acquire() and handlers of kind blocking
 * return FAR_UNSUPPORTED.
 */
#ifndef FAR_AGENT_ENV_H
#define FAR_AGENT_ENV_H

#include "base/auth.h"
#include "base/clock.h"
#include "base/random.h"
#include "control/net.h"
#include "nic/nic.h"

#include <farcall/agent.h>

/** Environment of an agent. Clock, random source and context outlive it; it takes over net and ports. */
struct agent_env {
	const struct clock_source *clock;
	const struct random_source *random; /* incarnation, identities, tokens */
	const struct auth_key *key;         /* the group's, copied; NULL: security=none */
	struct ctl_net *net;                /* NULL once taken over */
	struct nic_port *const *ports; /* best first, with a queue for each shard; the transport is put above datagram
					* ports */
	unsigned ports_n;              /* [1, FAR_PORTS_MAX]; 0 once taken over */
	unsigned self;                 /* index of the port for sessions of the worker with itself */
	/** A port has work for the control thread: agent_step_ctl() is due now. */
	void (*ctl_due)(void *ctx);
	void *ctx;
};

struct shard;

enum agent_state {
	AGENT_JOINING,
	AGENT_READY,   /* names are known, calls can be made */
	AGENT_LEAVING, /* after agent_leave(); handlers still run */
	AGENT_LEFT,    /* agent_why() has the result of the shutdown */
	AGENT_FAILED   /* the join failed; agent_why() has the reason */
};

/**
 * As far_init_rpc(), without the wait for the group. `opts` as there, but `nic`, `listen`, `advertise`, `security` and
 * `key_file` are not read. On failure net and ports are closed. Errors of the join follow in agent_state().
 */
enum far_status agent_create_stepped(const char *name, int rank, int world, const struct far_opts *opts,
				     struct agent_env *env, struct far_agent **agent, struct far_err *err);

/** Runs one step of the control thread. Returns the absolute time of the next call at the latest; due earlier when
 * `ctl_due` is called, or the net is woken or readable. */
uint64_t agent_step_ctl(struct far_agent *a, uint64_t now);
/** Runs one turn of shard `i` (shard_turn()). Returns the absolute time of the next; now: there is more to do. Due
 * earlier when the queue's wake_fd would be readable or, while the shard does not sleep, when a packet arrives. */
uint64_t agent_step_shard(struct far_agent *a, unsigned i);
/** One step of the control thread and one turn of each shard. */
uint64_t agent_step(struct far_agent *a, uint64_t now);

enum agent_state agent_state(const struct far_agent *a);
/** Reason of FAILED, or result of the shutdown; else FAR_OK. */
enum far_status agent_why(const struct far_agent *a, struct far_err *err);
/** True if shard `i` sleeps, false if it polls. */
bool agent_asleep(const struct far_agent *a, unsigned i);

/** agent_env.ctx of the stepped agent whose handler, callback or fiber runs; NULL: none runs. */
void *agent_ctx_here(void);
/** Its shard; NULL: none runs. */
struct shard *agent_shard_here(void);

/** As far_shutdown(), without the wait: LEAVING, then LEFT within `timeout_ns` (0: 60 s). */
void agent_leave(struct far_agent *a, uint64_t timeout_ns);
/**
 * Ends and frees the agent in any state, as far_shutdown_local() and the end of far_shutdown(): pending calls end,
 * waits of fibers return FAR_CANCELLED, and fibers run to their ends. Returns the number of fibers that kept waiting;
 * their stacks are freed.
 */
uint32_t agent_destroy(struct far_agent *a);
/** The same for a killed process: arrived packets are dropped, no handler begins. The caller has disconnected the
 * ports, so that nothing is sent. */
uint32_t agent_crash(struct far_agent *a);

#endif
