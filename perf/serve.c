/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf serve --listen HOST:PORT`: hosts the store as rank 0 of 2, and serves who comes until it leaves.
 * Main thread of each process. */
#include "address.h"
#include "peer.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TIMEOUT_NS (300 * FAR_SEC) /* for somebody to come; --timeout */

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	stopped = sig;
}

static void stop_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
}

/* Until somebody connects: 0; a signal: its number; nobody: -ETIMEDOUT. The agent takes the listener over with what
 * waits there. */
static int await_peer(int listener, uint64_t until)
{
	sigset_t set;
	struct signalfd_siginfo info;
	stop_signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	int signals = signalfd(-1, &set, SFD_CLOEXEC), rc = 1;
	if (signals < 0)
		return -errno;
	while (rc == 1) {
		struct pollfd p[] = {{.fd = listener, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
		uint64_t now = floor_now();
		uint64_t ms = now < until ? (until - now + 999999) / 1000000 : 0;
		int n = poll(p, 2, ms > INT32_MAX ? INT32_MAX : (int)ms);
		if (n < 0 && errno != EINTR)
			rc = -errno;
		else if (n > 0 && p[1].revents)
			rc = read(signals, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : -EIO;
		else if (n > 0)
			rc = 0;
		else if (n == 0 && floor_now() >= until)
			rc = -ETIMEDOUT;
	}
	close(signals);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	return rc;
}

static enum far_status join(struct server *s, const struct perf_opts *o, const struct address *at, int listener,
			    uint64_t until, struct far_err *err)
{
	static struct far_msg_handler handlers[SERVER_HANDLERS];
	char url[ADDRESS_TEXT_MAX], fd_text[16];
	uint64_t now = floor_now();
	address_url(at, url);
	snprintf(fd_text, sizeof fd_text, "%d", listener);
	setenv("FAR_STORE_FD", fd_text, 1);
	server_handlers(s, handlers);
	struct far_opts opts = {.init_method = url,
				.nic = o->nic,
				.security = o->security,
				.progress = FAR_PROGRESS_SHARED,
				.shards = (unsigned)o->shards,
				.fibers = PEER_FIBERS,
				.init_timeout_ns = now + FAR_SEC < until ? until - now : FAR_SEC,
				.peer_limit_ns = PEER_LIMIT_NS,
				.messages = handlers,
				.functions = server_functions,
				.functions_n = SERVER_FUNCTIONS,
				.messages_n = SERVER_HANDLERS};
	return far_init_rpc("server", 0, 2, &opts, &s->agent, err);
}

static int serve(struct server *s, const struct perf_opts *o)
{
	struct far_err err;
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	fprintf(stderr, "%s: serving\n", o->what);
	enum server_end end = server_run(s);
	if (end == SERVER_NOTIFIED) {
		if (far_shutdown(s->agent, PEER_LEAVE_NS, &err) != FAR_OK)
			return peer_complain(o, &err);
		fprintf(stderr, "%s: the measuring process has left\n", o->what);
		return 0;
	}
	far_shutdown_local(s->agent, NULL);
	if (end == SERVER_SIGNALLED)
		fprintf(stderr, "%s: ended by signal %d (%s)\n", o->what, (int)stopped, strsignal(stopped));
	else if (end == SERVER_LOST)
		fprintf(stderr, "%s: the measuring process died; see its last log lines\n", o->what);
	else if (end == SERVER_SILENT)
		fprintf(stderr, "%s: the measuring process no longer answers\n", o->what);
	return end != SERVER_SIGNALLED;
}

int perf_serve(const struct perf_opts *o)
{
	static struct server s = {.client = 1, .signal = &stopped};
	struct address at;
	struct far_err err;
	char text[ADDRESS_TEXT_MAX];
	uint64_t until = floor_now() + (o->timeout_ns ? o->timeout_ns : TIMEOUT_NS);
	address_parse(o->listen, true, &at, text); /* was checked with the other flags */
	int listener = address_listen(&at, o->beyond_host, text);
	if (listener < 0) {
		fprintf(stderr, "%s: %s\n", o->what, text);
		return 1;
	}
	s.cpu = perf_cpu(1);
	s.shared_fd = peer_share(&s.shared);
	if (s.shared_fd < 0) {
		fprintf(stderr, "%s: cannot make the memory of the floors: %s\n", o->what, strerror(-s.shared_fd));
		return 1;
	}
	address_url(&at, text);
	printf("%s: listening on %s\n", o->what, text + strlen("tcp://"));
	fflush(stdout);
	int rc = await_peer(listener, until);
	if (rc > 0)
		fprintf(stderr, "%s: ended by signal %d (%s) before a client connected\n", o->what, rc, strsignal(rc));
	else if (rc == -ETIMEDOUT)
		fprintf(stderr,
			"%s: no client connected; start 'farcall perf latency --connect %s' within the --timeout, or "
			"give a "
			"longer one\n",
			o->what, text + strlen("tcp://"));
	else if (rc < 0)
		fprintf(stderr, "%s: cannot wait for connections: %s\n", o->what, strerror(-rc));
	if (rc) {
		close(listener);
		return rc < 0;
	}
	if (join(&s, o, &at, listener, until, &err) != FAR_OK)
		return peer_complain(o, &err);
	return serve(&s, o);
}
