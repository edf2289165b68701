/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Agents without threads, under a clock, a network and a random source that somebody else owns: what a simulator steps.
 * The same objects as far_init_rpc() makes, but that nothing of them ever waits, sleeps or depends on the machine: any
 * number of them live in one thread.
 *
 * All functions are called by that one thread, outside of the agent's fibers. The public interface is used on fibers of
 * the agent (fiber_spawn(), handlers of kind fiber), where every wait parks. Elsewhere calls may be started, and
 * whatever would wait for one returns FAR_WOULD_DEADLOCK; a future that the application makes belongs to no agent, and
 * waiting for one there would block the thread. far_shutdown(), far_shard_acquire() and handlers of kind blocking are
 * FAR_UNSUPPORTED.
 */
#ifndef FAR_AGENT_ENV_H
#define FAR_AGENT_ENV_H

#include "base/auth.h"
#include "base/clock.h"
#include "base/random.h"
#include "control/net.h"
#include "nic/nic.h"

#include <farcall/agent.h>

/** What an agent lives in. Clock, source and context outlive it; net and ports become its own. */
struct agent_env {
	const struct clock_source *clock;
	const struct random_source *random; /* incarnation, identities, tokens */
	const struct auth_key *key;         /* the group's, copied; NULL: security=none */
	struct ctl_net *net;                /* NULL once it was taken over */
	struct nic_port *const *ports; /* best first, opened with a queue for each shard; a link is put over those that
					  need one */
	unsigned ports_n;              /* [1, FAR_PORTS_MAX]; 0 once they were taken over */
	unsigned self;                 /* the one for sessions with oneself */
	/** A port has work for the control core: agent_step_ctl() is due now. */
	void (*ctl_due)(void *ctx);
	void *ctx;
};

struct shard;

enum agent_state {
	AGENT_JOINING,
	AGENT_READY,   /* names can be looked up, calls made */
	AGENT_LEAVING, /* after agent_leave(); handlers go on serving */
	AGENT_LEFT,    /* agent_why() has the result of the shutdown */
	AGENT_FAILED   /* to join; agent_why() has the reason */
};

/**
 * As far_init_rpc(), up to where that would begin to wait. `opts` as there, but `nic`, `listen`, `advertise`,
 * `security` and `key_file`, which are not read. Net and ports are closed on failure. Errors: those that need nobody
 * else.
 */
enum far_status agent_create_stepped(const char *name, int rank, int world, const struct far_opts *opts,
				     struct agent_env *env, struct far_agent **agent, struct far_err *err);

/** Runs the control core once. Returns the absolute time to be called again at the latest. Due before when `ctl_due`
 * was called, or the net was woken or has something to read. */
uint64_t agent_step_ctl(struct far_agent *a, uint64_t now);
/** One turn of shard `i` (shard_turn()). Returns when the next is due: now, when there is more to do. Due before when
 * the queue's wake_fd would be readable or, while it does not sleep, when a packet arrives. */
uint64_t agent_step_shard(struct far_agent *a, unsigned i);
/** All of it once: the control core and each shard. */
uint64_t agent_step(struct far_agent *a, uint64_t now);

enum agent_state agent_state(const struct far_agent *a);
/** Why it is FAILED, or what came of leaving; FAR_OK otherwise. */
enum far_status agent_why(const struct far_agent *a, struct far_err *err);
/** Does shard `i` sleep, or poll. */
bool agent_asleep(const struct far_agent *a, unsigned i);

/** agent_env.ctx of the stepped agent whose handler, callback or fiber the calling flow is in; NULL: of none. */
void *agent_ctx_here(void);
/** Its shard; NULL: of none. */
struct shard *agent_shard_here(void);

/** As far_shutdown(), without the waiting: LEAVING, then LEFT within `timeout_ns` (0: 60 s). */
void agent_leave(struct far_agent *a, uint64_t timeout_ns);
/**
 * Ends and frees it in any state, as far_shutdown_local() and the end of far_shutdown(): pending calls end, the waits
 * of fibers return FAR_CANCELLED, and they run to their ends. Returns fibers that waited on and on; their stacks are
 * gone.
 */
uint32_t agent_destroy(struct far_agent *a);
/** The same, for a process that was killed: what has arrived is not looked at, no handler is begun. The caller has cut
 * the ports off, so that nothing is said to anybody. */
uint32_t agent_crash(struct far_agent *a);

#endif
