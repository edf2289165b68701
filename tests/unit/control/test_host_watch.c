/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a member's process on this host, over etcd. The test's thread; the other member is a child. */
#include "base/clock.h"
#include "control/group.h"
#include "readable.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD = 3, OTHER = 1, ELSEWHERE = 2, CONNECTIONS = 100, NOBODY = 65534 };

static struct group g;
static struct ctl_member members[WORLD];
static struct peer peers[WORLD];
static uint64_t own, others; /* incarnations, other ones in each test process */
static int set;              /* the descriptor of the set of processes */

static int next_descriptor(void)
{
	int fd = dup(0);
	close(fd);
	return fd;
}

static void begin(int rank, uint64_t incarnation)
{
	g = (struct group){.url = {.scheme = URL_ETCD, .world = WORLD, .rank = rank, .dynamic = true},
			   .config = {.net = ctl_net_os_create(), .incarnation = incarnation},
			   .phase = PHASE_READY,
			   .store_lost = true, /* no request */
			   .members = members,
			   .peers = peers};
	cr_assert(g.config.net);
	for (int r = 0; r < WORLD; r++) {
		members[r].name = "";
		peers[r] = (struct peer){.group = &g, .rank = r};
	}
	set = next_descriptor();
	host_watch_listen(&g);
	cr_assert(g.host_watch);
}

static void end(void)
{
	host_watch_end(&g);
	g.config.net->ops->destroy(g.config.net);
}

/* A member of a user listens as incarnation `others` until it is killed. −1: not permitted. */
static pid_t other_of(uid_t user)
{
	int ready[2];
	char c;
	cr_assert_eq(pipe(ready), 0);
	pid_t pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		if (setuid(user))
			_exit(0);
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* setuid() clears it */
		begin(OTHER, others);
		cr_assert_eq(write(ready[1], "", 1), 1);
		while (pause())
			;
	}
	close(ready[1]);
	bool listens = read(ready[0], &c, 1) == 1;
	close(ready[0]);
	return listens ? pid : -1;
}

static pid_t other(void)
{
	pid_t pid = other_of(getuid());
	cr_assert_gt(pid, 0);
	return pid;
}

static void know(int rank, uint64_t incarnation)
{
	peers[rank].known = true;
	members[rank].incarnation = incarnation;
	host_watch_due(&g);
}

static void kill_now(pid_t pid)
{
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

static void setup(void)
{
	own = (uint64_t)getpid() << 32 | 1;
	others = own + 1;
}

TestSuite(control_host_watch, .init = setup, .timeout = 60);

/* The control thread wakes by itself. One that is on no process here stays. */
Test(control_host_watch, a_member_is_lost_when_its_process_ends)
{
	pid_t pid = other();
	begin(0, own);
	know(OTHER, others);
	know(ELSEWHERE, others + 1);
	host_watch_step(&g);
	cr_assert_not(peers[OTHER].dead);
	kill_now(pid);
	g.config.net->ops->wait(g.config.net, TIME_NEVER);
	host_watch_step(&g);
	cr_assert(peers[OTHER].dead);
	cr_assert_not(peers[ELSEWHERE].dead);
	end();
}

/* The process of a former incarnation says nothing about the present one. */
Test(control_host_watch, a_former_incarnation_may_end)
{
	pid_t former = other();
	begin(0, own);
	know(OTHER, others);
	host_watch_step(&g);
	others++;
	pid_t present = other();
	members[OTHER].incarnation = others; /* its info is being read */
	kill_now(former);
	g.config.net->ops->wait(g.config.net, TIME_NEVER);
	host_watch_step(&g);
	cr_assert_not(peers[OTHER].dead);
	host_watch_due(&g);
	host_watch_step(&g);
	kill_now(present);
	g.config.net->ops->wait(g.config.net, TIME_NEVER);
	host_watch_step(&g);
	cr_assert(peers[OTHER].dead);
	end();
}

/* While this worker joins, nothing is looked for; afterwards, the members that it has read. */
Test(control_host_watch, a_join_looks_for_processes_when_it_is_over)
{
	pid_t pid = other();
	begin(0, own);
	g.phase = PHASE_GATHER;
	know(OTHER, others);
	host_watch_step(&g);
	g.phase = PHASE_READY;
	host_watch_step(&g);
	kill_now(pid);
	g.config.net->ops->wait(g.config.net, TIME_NEVER);
	host_watch_step(&g);
	cr_assert(peers[OTHER].dead);
	end();
}

/* Any user may take the name of a member that has no socket, and end its process as it likes. */
Test(control_host_watch, the_process_of_another_user_is_no_member)
{
	pid_t pid = other_of(NOBODY);
	if (pid < 0)
		cr_skip_test("becoming another user needs root");
	begin(0, own);
	know(OTHER, others);
	host_watch_step(&g);
	kill_now(pid);
	host_watch_step(&g);
	cr_assert_not(peers[OTHER].dead);
	end();
}

/* A child of the application has the descriptors, too: an end that nobody handles would keep the control thread awake.
 */
Test(control_host_watch, a_forked_child_leaves_nothing_in_the_set)
{
	pid_t pid = other();
	begin(0, own);
	know(OTHER, others);
	host_watch_step(&g);
	pid_t child = fork();
	cr_assert_geq(child, 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (pause())
			;
	}
	int same = dup(set);
	host_watch_end(&g);
	kill_now(pid);
	cr_assert_not(is_readable(same));
	close(same);
	kill_now(child);
	end();
}

/* The lease of a member counts for which no descriptor is left but those of the application. */
Test(control_host_watch, half_of_the_descriptors_are_for_others)
{
	struct rlimit limit;
	pid_t pid = other();
	begin(0, own);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	int next = next_descriptor();
	limit.rlim_cur = 2 * (rlim_t)next;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	know(OTHER, others);
	host_watch_step(&g);
	kill_now(pid);
	host_watch_step(&g);
	cr_assert_not(peers[OTHER].dead);
	cr_assert_eq(next_descriptor(), next);
	end();
}

/* How many of the connections were accepted, and closed. */
static unsigned accepted(const int fd[CONNECTIONS])
{
	unsigned n = 0;
	for (unsigned i = 0; i < CONNECTIONS; i++)
		n += is_readable(fd[i]);
	return n;
}

/* Connections without end do not keep the control thread: a step takes some of them, and the thread comes back for the
 * others. */
Test(control_host_watch, a_step_accepts_some_connections)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "farcall/%016" PRIx64, own), fd[CONNECTIONS];
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	begin(0, own);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		cr_assert_eq(connect(fd[i], (const struct sockaddr *)&at, len), 0);
	}
	host_watch_step(&g);
	cr_assert_lt(accepted(fd), (unsigned)CONNECTIONS);
	for (unsigned before = accepted(fd); before < CONNECTIONS; before = accepted(fd)) {
		g.config.net->ops->wait(g.config.net, TIME_NEVER);
		host_watch_step(&g);
		cr_assert_gt(accepted(fd), before);
	}
	for (unsigned i = 0; i < CONNECTIONS; i++)
		close(fd[i]);
	end();
}

/* Over other stores the connection to the store, or the file's lock, ends with the process. */
Test(control_host_watch, there_is_none_over_tcp)
{
	g.url.scheme = URL_TCP;
	host_watch_listen(&g);
	cr_assert_null(g.host_watch);
	host_watch_due(&g);
	host_watch_step(&g);
	host_watch_end(&g);
}
