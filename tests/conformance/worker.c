/* SPDX-License-Identifier: BSD-3-Clause */
/** A worker's incarnation around the body of its test. Main thread of each process. */
#include "divided.h"
#include "run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct far_agent *agent;
struct far_err err;
int rank;
struct far_opts conform_opts;

static struct conform_shared *shared;
static bool may_leak;

const char *conform_mode(void)
{
	const char *mode = getenv("FAR_CONFORM_NIC");
	return mode && *mode ? mode : "shm";
}

const char *conform_name(int of)
{
	static const char *const names[WORLD] = {"worker0", "worker1", "worker2", "worker3"};
	return names[of % WORLD];
}

int peer_rank(int distance)
{
	return (rank + distance) % WORLD;
}

const char *peer(int distance)
{
	return conform_name(peer_rank(distance));
}

void conform_at(const char *here)
{
	atomic_store_explicit(&shared->worker[rank].place, here, memory_order_relaxed);
}

void conform_fail(const char *here, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	fprintf(stderr, "  %s: ", here);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
	fflush(NULL);
	_exit(1);
}

void conform_want(const char *here, const char *what, enum far_status got, enum far_status want)
{
	if (got == want)
		return;
	conform_fail(here, "%s is %s, not %s%s%s", what, far_status_name(got), far_status_name(want), got ? ": " : "",
		     got ? err.text : "");
}

void conform_error_has(const char *here, const char *part)
{
	if (!strstr(err.text, part))
		conform_fail(here, "\"%s\" lacks \"%s\"", err.text, part);
}

void conform_nap(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / FAR_SEC), (long)(ns % FAR_SEC)};
	nanosleep(&t, NULL);
}

void conform_until(const char *here, bool (*condition)(void *user), void *user)
{
	conform_at(here);
	while (!condition(user)) /* the test's deadline ends it */
		conform_nap(FAR_MS);
}

static bool nothing_left(void *user)
{
	struct far_rref_counts c;
	far_rref_counts_read(agent, &c);
	return !c.owned && !c.held && !c.forks && !c.pending;
}

void conform_flushed(const char *here)
{
	conform_until(here, nothing_left, NULL);
}

void conform_may_die(void)
{
	atomic_store(&shared->worker[rank].may_die, true);
}

void conform_may_leak(void)
{
	may_leak = true;
}

void conform_publish(const char *here, int64_t number)
{
	atomic_store(&shared->worker[rank].number, number);
	if (divided() && !divided_write("number", rank, number))
		conform_fail(here, "cannot show a number to other machines: %s", strerror(errno));
}

int64_t conform_published(int of)
{
	of %= WORLD;
	return divided_has(of) ? atomic_load(&shared->worker[of].number) : divided_read("number", of);
}

static bool all_published(void *user)
{
	for (int r = 0; r < WORLD; r++)
		if (!conform_published(r))
			return false;
	return true;
}

void conform_meet(const char *here)
{
	conform_publish(here, 1);
	conform_until(here, all_published, NULL);
}

bool conform_is_here(int of)
{
	return divided_has(of % WORLD);
}

const char *conform_host(void)
{
	return divided_host();
}

bool conform_stderr_has(const char *part)
{
	static char text[8192];
	fflush(stderr);
	ssize_t n = pread(STDERR_FILENO, text, sizeof text - 1, 0);
	text[n > 0 ? n : 0] = 0;
	return strstr(text, part) != NULL;
}

/* Everybody else is reached by what this run is about. */
static void check_nics(const char *here)
{
	const char *mode = conform_mode(), *driver = mode;
	if (strcmp(mode, "memif") == 0 || strcmp(mode, "cards") == 0)
		driver = "dpdk";
	for (int r = 0; r < WORLD; r++) {
		struct far_worker_info info;
		conform_want(here, "looking up a worker", far_worker_by_rank(agent, r, &info, &err), FAR_OK);
		if (r != rank && strcmp(info.nic, driver) != 0)
			conform_fail(here, "%s is reached by %s, not by %s: %s", info.name, info.nic, driver,
				     info.nic_why);
	}
}

void conform_join(const char *here)
{
	conform_at(here);
	conform_want(here, "joining", far_init_rpc(conform_name(rank), rank, WORLD, &conform_opts, &agent, &err),
		     FAR_OK);
	conform_joined(here);
}

void conform_joined(const char *here)
{
	check_nics(here);
}

void conform_leave(const char *here)
{
	conform_at(here);
	conform_want(here, "leaving", far_shutdown(agent, FAR_FOREVER, &err), FAR_OK);
	agent = NULL;
	if (!may_leak && conform_stderr_has("still hold"))
		conform_fail(here, "left with references that somebody holds");
}

/*
 * Bound until the process ends, so that it is given to nobody else; with SO_REUSEADDR, so that a store may listen
 * there, one after the other. FAR_STORE_FD, which serves one store of a process, is the group's own.
 */
int conform_own_port(const char *here)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = inet_addr(divided_has(0) ? divided_host() : "127.0.0.1")};
	socklen_t len = sizeof at;
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
	    bind(fd, (struct sockaddr *)&at, len) || getsockname(fd, (struct sockaddr *)&at, &len))
		conform_fail(here, "no port of its own: %s", strerror(errno));
	return ntohs(at.sin_port);
}

const char *conform_own_url(const char *here)
{
	static char url[64];
	snprintf(url, sizeof url, "tcp://127.0.0.1:%d", conform_own_port(here));
	return url;
}

static int group; /* a number that all workers of the test have */

/* One memif for each pair of workers; the one with the lower rank is the server. */
static void memif_text(char *out, size_t cap)
{
	const char *dir = getenv("FAR_CONFORM_DIR");
	size_t len = 0;
	int device = 0;
	for (int other = 0; other < WORLD; other++) {
		int low = rank < other ? rank : other, high = rank + other - low;
		if (other == rank)
			continue;
		len += (size_t)snprintf(out + len, cap - len,
					"%sdpdk:net_memif%d,role=%s,id=%d,socket=%s/%d.%d%d,socket-abstract=no",
					len ? ";" : "", device++, rank == low ? "server" : "client", low * WORLD + high,
					dir ? dir : "/tmp", group, low, high);
	}
}

/* A network card for each worker: the names of FAR_CONFORM_CARDS, one after the other, with what is the same of all. */
static void card_text(char *out, size_t cap)
{
	const char *cards = getenv("FAR_CONFORM_CARDS"), *keys = getenv("FAR_CONFORM_KEYS");
	for (int r = 0; cards && r < rank; r++) {
		cards += strcspn(cards, " ");
		cards += strspn(cards, " ");
	}
	if (!cards || !*cards)
		conform_fail(HERE, "FAR_CONFORM_CARDS names no card for worker%d", rank);
	snprintf(out, cap, "dpdk:%.*s,ip=10.8.0.%d/24%s", (int)strcspn(cards, " "), cards, rank + 1, keys ? keys : "");
	conform_opts.security = "none"; /* they may lead anywhere */
}

static void choose_nic(void)
{
	static char text[1024];
	const char *mode = conform_mode();
	if (strcmp(mode, "lossy") == 0)
		snprintf(text, sizeof text,
			 "lossy:over=udp,drop=1%%,duplicate=1%%,delay=1%%:2ms,reorder=1%%,corrupt=1%%,seed=%d",
			 rank + 1);
	else if (strcmp(mode, "memif") == 0)
		memif_text(text, sizeof text);
	else if (strcmp(mode, "cards") == 0)
		card_text(text, sizeof text);
	else
		snprintf(text, sizeof text, "%s", mode);
	conform_opts.nic = text;
	if (getenv("FAR_CONFORM_OPEN")) /* an address that leads to other hosts */
		conform_opts.security = "none";
	/* A process that gets no time for long is not lost. */
	conform_opts.peer_limit_ns = 20 * FAR_SEC;
}

static void set_number(const char *name, int value)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	setenv(name, text, 1);
}

void conform_become(int r)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rank = r;
	set_number("RANK", r);
	choose_nic();
}

_Noreturn void conform_worker(struct conform_shared *s, int r, int port, int listener, conform_body *body, int how)
{
	shared = s;
	rank = r;
	group = (int)getppid();
	set_number("RANK", r);
	set_number("WORLD_SIZE", WORLD);
	set_number("MASTER_PORT", port);
	setenv("MASTER_ADDR", divided_host(), 1);
	unsetenv("FAR_NIC");
	if (r == 0)
		set_number("FAR_STORE_FD", listener);
	else if (listener >= 0)
		close(listener);
	conform_opts.functions = conform_functions;
	conform_opts.functions_n = conform_functions_n;
	conform_opts.types = &conform_box;
	conform_opts.types_n = 1;
	choose_nic();
	if (how == CONFORM_JOINED)
		conform_join(HERE);
	body();
	if (how == CONFORM_JOINED) {
		conform_flushed(HERE);
		conform_leave(HERE);
	}
	fflush(NULL);
	_exit(0);
}
