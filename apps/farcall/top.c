/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall top`: the workers of a group on this host, as a live view of a terminal or once as text or JSON. Reads the
 * admin sockets. Main thread. */
#include "top.h"

#include "apps/cli/options.h"
#include "base/clock.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define FIRST_LOOK_NS (200 * FAR_MS) /* rates need two looks: a terminal is drawn after this time */
#define NAME_COLUMNS  12             /* of a terminal of 80 */

static volatile sig_atomic_t stopped, resized;

static void on_signal(int number)
{
	if (number == SIGWINCH)
		resized = 1;
	else
		stopped = 1;
}

/* ---- rates ---- */

/* The sample before this one of the same process; NULL: there is none. */
static const struct sample *before(const struct view *v, const struct sample *s)
{
	for (unsigned i = 0; i < v->before_n; i++)
		if (v->before[i].pid == s->pid && strcmp(v->before[i].worker, s->worker) == 0)
			return &v->before[i];
	return NULL;
}

static double rate(const struct view *v, uint64_t now, uint64_t then)
{
	return v->before_n && v->at > v->before_at && now >= then
		       ? (double)(now - then) * 1e9 / (double)(v->at - v->before_at)
		       : 0;
}

/* Adds the calls of `s` that `then` (may be NULL) had not. */
static void merge(struct bucket *all, unsigned *n, const struct sample *s, const struct sample *then)
{
	for (unsigned i = 0; i < s->buckets_n; i++) {
		struct bucket b = s->buckets[i];
		unsigned at = 0;
		for (unsigned k = 0; then && k < then->buckets_n; k++)
			if (then->buckets[k].end == b.end)
				b.n -= then->buckets[k].n < b.n ? then->buckets[k].n : b.n;
		while (at < *n && all[at].end < b.end)
			at++;
		if (at == *n || all[at].end != b.end) {
			if (*n == BUCKETS_MAX)
				return;
			memmove(&all[at + 1], &all[at], (*n - at) * sizeof *all);
			all[at] = (struct bucket){b.end, 0};
			++*n;
		}
		all[at].n += b.n;
	}
}

struct latency {
	uint64_t n, p50, p90, p99, p999;
};

static uint64_t percentile(const struct bucket *b, unsigned buckets, uint64_t n, unsigned share)
{
	uint64_t left = (n * share + 999) / 1000;
	for (unsigned i = 0; i < buckets && n; i++) {
		if (b[i].n >= left)
			return b[i].end - 1;
		left -= b[i].n;
	}
	return 0;
}

static struct latency latency_from(const struct bucket *b, unsigned n)
{
	struct latency l = {0};
	for (unsigned i = 0; i < n; i++)
		l.n += b[i].n;
	l.p50 = percentile(b, n, l.n, 500);
	l.p90 = percentile(b, n, l.n, 900);
	l.p99 = percentile(b, n, l.n, 990);
	l.p999 = percentile(b, n, l.n, 999);
	return l;
}

/* Of the calls since the sample before, of [0, n) workers. */
static struct latency latency_of(const struct view *v, const struct sample *s, unsigned n)
{
	struct bucket all[BUCKETS_MAX];
	unsigned buckets = 0;
	for (unsigned i = 0; i < n; i++)
		merge(all, &buckets, &s[i], before(v, &s[i]));
	return latency_from(all, buckets);
}

/* What a line shows: of a worker, or the sum of all. */
struct line {
	double calls, requests, errors, sent, received, drops, busy;
	uint64_t active, serving, owned, held, forks, unconfirmed, silent;
	struct latency latency;
};

static void line_add(struct line *l, const struct view *v, const struct sample *s)
{
	static const struct sample zero;
	const struct sample *then = before(v, s);
	const struct sample *b = then ? then : v->before_n ? s : &zero; /* a new worker has no rates yet */
	l->calls += rate(v, s->calls, b->calls);
	l->requests += rate(v, s->requests, b->requests);
	l->errors += rate(v, s->errors, b->errors);
	l->sent += rate(v, s->sent, b->sent);
	l->received += rate(v, s->received, b->received);
	l->drops += rate(v, s->drops, b->drops);
	l->busy += rate(v, s->busy, b->busy);
	l->active += s->active;
	l->serving += s->serving;
	l->owned += s->owned;
	l->held += s->held;
	l->forks += s->forks;
	l->unconfirmed += s->unconfirmed;
	l->silent += s->silent;
}

static struct line total_of(const struct view *v)
{
	struct line all = {0};
	for (unsigned i = 0; i < v->now_n; i++)
		line_add(&all, v, &v->now[i]);
	all.latency = latency_of(v, v->now, v->now_n);
	return all;
}

static struct line line_of(const struct view *v, const struct sample *s)
{
	struct line one = {0};
	line_add(&one, v, s);
	one.latency = latency_of(v, s, 1);
	return one;
}

static double cpu_share(const struct view *v, const struct sample *s, unsigned shard)
{
	const struct sample *then = before(v, s);
	return then && shard < then->shards_n ? rate(v, s->cpu_ns[shard], then->cpu_ns[shard]) / 1e7 : 0;
}

/* Sessions by driver, "shm 12 udp 3"; as members of a JSON object with `json`. */
static void sessions_text(const struct view *v, bool json, char *out, size_t cap)
{
	struct {
		char nic[16];
		uint64_t n;
	} all[NICS_MAX];
	unsigned n = 0;
	size_t len = 0;
	for (unsigned i = 0; i < v->now_n; i++)
		for (unsigned k = 0; k < v->now[i].nics_n; k++) {
			unsigned at = 0;
			while (at < n && strcmp(all[at].nic, v->now[i].nics[k].nic) != 0)
				at++;
			if (at == NICS_MAX)
				continue;
			if (at == n) {
				memcpy(all[n].nic, v->now[i].nics[k].nic, sizeof all[n].nic);
				all[n++].n = 0;
			}
			all[at].n += v->now[i].nics[k].sessions;
		}
	*out = 0;
	for (unsigned i = 0; i < n && len < cap; i++)
		len += (size_t)snprintf(out + len, cap - len, json ? "%s\"%s\":%" PRIu64 : "%s%s %" PRIu64,
					i == 0 ? ""
					: json ? ","
					       : "  ",
					all[i].nic, all[i].n);
}

/* ---- text ---- */

static const char *count_text(double n, char out[16])
{
	static const char units[] = " kMGT";
	unsigned u = 0;
	for (; n >= 9999.5 && units[u + 1]; u++)
		n /= 1000;
	if (u == 0)
		snprintf(out, 16, n < 9.95 && n != (double)(int)n ? "%.1f" : "%.0f", n);
	else
		snprintf(out, 16, "%.*f%c", n < 99.95 ? 1 : 0, n, units[u]);
	return out;
}

static const char *time_text(uint64_t ns, char out[16])
{
	double n = (double)ns;
	if (ns == 0)
		snprintf(out, 16, "-");
	else if (n < 999.5)
		snprintf(out, 16, "%.0fns", n);
	else if (n < 999.5e3)
		snprintf(out, 16, "%.*fus", n < 99.95e3, n / 1e3);
	else if (n < 999.5e6)
		snprintf(out, 16, "%.*fms", n < 99.95e6, n / 1e6);
	else
		snprintf(out, 16, "%.1fs", n / 1e9);
	return out;
}

/* A screen: lines of at most `columns`, at most `rows` of them. */
struct screen {
	FILE *out;
	int columns, rows, row;
	int names;      /* columns of a worker's name */
	unsigned first; /* worker that is shown first */
	bool live;      /* a terminal: each line is erased to its end */
};

__attribute__((format(printf, 2, 3))) static void put_line(struct screen *s, const char *format, ...)
{
	char line[512];
	va_list args;
	if (s->row == s->rows)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	/* The last line ends without a newline: it would scroll. */
	fprintf(s->out, "%.*s%s", s->columns, line, s->live ? "\033[K" : "");
	s->row++;
	if (s->row < s->rows)
		fputs(s->live ? "\r\n" : "\n", s->out);
}

/* Cuts the middle out of a longer name: names of a group differ at their end. */
static const char *name_text(const char *name, int columns, char out[FAR_NAME_MAX + 1])
{
	size_t len = strlen(name), room = (size_t)columns, head = (room - 1) / 2;
	if (len <= room)
		return name;
	snprintf(out, FAR_NAME_MAX + 1, "%.*s~%s", (int)head, name, name + len - (room - 1 - head));
	return out;
}

static void put_worker(struct screen *screen, const struct view *v, const struct sample *s)
{
	struct line l = line_of(v, s);
	char calls[16], requests[16], active[16], p50[16], p99[16], drops[16], refs[16], cpu[96] = "";
	char name[FAR_NAME_MAX + 1];
	size_t len = 0;
	for (unsigned i = 0; i < s->shards_n && len < sizeof cpu; i++)
		len += (size_t)snprintf(cpu + len, sizeof cpu - len, "%s%.0f", i ? " " : "", cpu_share(v, s, i));
	put_line(screen, "%4" PRIu64 " %-*s %-7.7s%8s%7s%7s%7s%7s%7s%6s  %s%s", s->rank, screen->names,
		 name_text(s->worker, screen->names, name), s->silent ? "STUCK" : s->state, count_text(l.calls, calls),
		 count_text(l.requests, requests), count_text((double)l.active, active), time_text(l.latency.p50, p50),
		 time_text(l.latency.p99, p99), count_text(l.drops + l.errors, drops),
		 count_text((double)(l.owned + l.held), refs), cpu, s->shards_n ? "%" : "");
}

/* Of all members, as the worker that knows the most of them sees them. */
static void members_text(const struct view *v, char *out, size_t cap)
{
	uint64_t members = 0, alive = 0;
	for (unsigned i = 0; i < v->now_n; i++)
		if (v->now[i].members >= members) {
			alive = v->now[i].members > members || v->now[i].alive < alive ? v->now[i].alive : alive;
			members = v->now[i].members;
		}
	int len = snprintf(out, cap, "%u", v->now_n);
	if (members > v->now_n)
		len += snprintf(out + len, cap - (size_t)len, " of %" PRIu64, members);
	len += snprintf(out + len, cap - (size_t)len, " worker%s here", members > 1 || v->now_n != 1 ? "s" : "");
	if (alive < members)
		snprintf(out + len, cap - (size_t)len, ", %" PRIu64 " lost", members - alive);
}

/* As many as fit, from the first one that is chosen. */
static void put_workers(struct screen *screen, const struct view *v)
{
	unsigned left =
		screen->rows > screen->row + screen->live ? (unsigned)(screen->rows - screen->row - screen->live) : 0;
	unsigned most = v->now_n > left ? v->now_n - left + 1 : 0; /* the last line counts the others */
	unsigned first = screen->first = screen->first < most ? screen->first : most;
	unsigned shown = most ? left - 1 : v->now_n;
	for (unsigned i = first; left && i < first + shown; i++)
		put_worker(screen, v, &v->now[i]);
	if (left && most)
		put_line(screen, "     and %u more worker%s: j, k or arrows move", v->now_n - shown,
			 v->now_n - shown == 1 ? "" : "s");
}

/* Columns for names: what a line of 80 has, and what the screen has beyond. */
static int name_columns(const struct view *v, int columns)
{
	int longest = NAME_COLUMNS, room = NAME_COLUMNS + (columns > 80 ? columns - 80 : 0);
	for (unsigned i = 0; i < v->now_n; i++)
		if ((int)strlen(v->now[i].worker) > longest)
			longest = (int)strlen(v->now[i].worker);
	return longest < room ? longest : room;
}

static void put_view(struct screen *screen, const struct view *v)
{
	struct line all = total_of(v);
	char a[16], b[16], c[16], d[16], e[16], nics[160], clock[16], members[64];
	time_t now = time(NULL);
	struct tm tm;
	screen->names = name_columns(v, screen->columns);
	localtime_r(&now, &tm);
	strftime(clock, sizeof clock, "%H:%M:%S", &tm);
	members_text(v, members, sizeof members);
	put_line(screen, "farcall top  %s  %s  group %s, store %s", clock, members, v->group, v->store);
	put_line(screen, "calls/s  %-9s requests/s %-9s in flight %-8s serving %s", count_text(all.calls, a),
		 count_text(all.requests, b), count_text((double)all.active, c), count_text((double)all.serving, d));
	put_line(screen, "latency  p50 %-8s p90 %-8s p99 %-8s p99.9 %-8s (%s measured)", time_text(all.latency.p50, a),
		 time_text(all.latency.p90, b), time_text(all.latency.p99, c), time_text(all.latency.p999, d),
		 count_text((double)all.latency.n, e));
	put_line(screen, "traffic  sent %sB/s  received %sB/s", count_text(all.sent, a), count_text(all.received, b));
	put_line(screen, "lost     errors/s %-7s drops/s %-7s busy/s %-7s", count_text(all.errors, a),
		 count_text(all.drops, b), count_text(all.busy, c));
	put_line(screen, "refs     owned %-8s held %-8s forks %-8s unconfirmed %s", count_text((double)all.owned, a),
		 count_text((double)all.held, b), count_text((double)all.forks, c),
		 count_text((double)all.unconfirmed, d));
	sessions_text(v, false, nics, sizeof nics);
	put_line(screen, "sessions %s", nics);
	put_line(screen, "%s%s%.*s", v->stuck_n ? "! " : "", v->stuck_n ? v->stuck : "", v->stuck_n > 1 ? 20 : 0,
		 ", and others");
	put_line(screen, "%4s %-*s %-7s%8s%7s%7s%7s%7s%7s%6s  %s", "RANK", screen->names, "WORKER", "STATE", "CALLS/s",
		 "REQ/s", "FLIGHT", "P50", "P99", "LOST/s", "REFS", "CPU");
	put_workers(screen, v);
}

/* ---- JSON ---- */

static void json_line(const struct line *l)
{
	printf("\"calls_per_s\":%.1f,\"requests_per_s\":%.1f,\"errors_per_s\":%.1f,\"drops_per_s\":%.1f,"
	       "\"busy_per_s\":%.1f,\"sent_bytes_per_s\":%.1f,\"received_bytes_per_s\":%.1f,\"calls_active\":%" PRIu64
	       ",\"requests_active\":%" PRIu64 ",\"rrefs_owned\":%" PRIu64 ",\"rrefs_held\":%" PRIu64
	       ",\"rrefs_forks\":%" PRIu64 ",\"rrefs_unconfirmed\":%" PRIu64 ",\"latency_n\":%" PRIu64
	       ",\"latency_p50_ns\":%" PRIu64 ",\"latency_p90_ns\":%" PRIu64 ",\"latency_p99_ns\":%" PRIu64
	       ",\"latency_p999_ns\":%" PRIu64,
	       l->calls, l->requests, l->errors, l->drops, l->busy, l->sent, l->received, l->active, l->serving,
	       l->owned, l->held, l->forks, l->unconfirmed, l->latency.n, l->latency.p50, l->latency.p90,
	       l->latency.p99, l->latency.p999);
}

static void print_json(const struct view *v)
{
	struct line all = total_of(v);
	char nics[256];
	sessions_text(v, true, nics, sizeof nics);
	printf("{\"group\":\"%s\",\"store\":\"%s\",\"workers_silent\":%u,\"sessions\":{%s},", v->group, v->store,
	       v->stuck_n, nics);
	json_line(&all);
	printf(",\"workers\":[");
	for (unsigned i = 0; i < v->now_n; i++) {
		const struct sample *s = &v->now[i];
		struct line l = line_of(v, s);
		printf("%s{\"worker\":\"%s\",\"rank\":%" PRIu64 ",\"pid\":%" PRIu64
		       ",\"state\":\"%s\",\"shards_silent\":%" PRIu64 ",",
		       i ? "," : "", s->worker, s->rank, s->pid, s->state, s->silent);
		json_line(&l);
		printf(",\"cpu_percent\":[");
		for (unsigned k = 0; k < s->shards_n; k++)
			printf("%s%.1f", k ? "," : "", cpu_share(v, s, k));
		printf("]}");
	}
	printf("]}\n");
}

/* ---- the terminal ---- */

/* What a key asks for; CONTINUE: nothing. */
enum wish { CONTINUE, LOOK, REDRAW, UP, DOWN, QUIT };

static enum wish wish_of(const char *key, ssize_t n)
{
	if (*key == 'q' || *key == 'Q')
		return QUIT;
	bool arrow = n >= 3 && key[0] == '\033' && (key[1] == '[' || key[1] == 'O');
	if (*key == 'j' || (arrow && key[2] == 'B'))
		return DOWN;
	return *key == 'k' || (arrow && key[2] == 'A') ? UP : CONTINUE;
}

/* Waits until a time (LOOK), a key, a signal or another size of the terminal. */
static enum wish wait_for_key(uint64_t until)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	for (;;) {
		uint64_t now = clock_now(&clock_monotonic);
		char key[8];
		enum wish wish;
		if (stopped)
			return QUIT;
		if (resized) {
			resized = 0;
			return REDRAW;
		}
		if (now >= until)
			return LOOK;
		if (poll(&in, 1, (int)((until - now) / 1000000 + 1)) <= 0)
			continue;
		ssize_t n = read(STDIN_FILENO, key, sizeof key);
		if (n <= 0)
			in.fd = -1;
		else if ((wish = wish_of(key, n)) != CONTINUE)
			return wish;
	}
}

static void draw(const struct view *v, unsigned *first)
{
	struct winsize size = {.ws_row = 24, .ws_col = 80};
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row < 2 || size.ws_col < 2)
		size = (struct winsize){.ws_row = 24, .ws_col = 80};
	struct screen screen = {
		.out = stdout, .columns = size.ws_col, .rows = size.ws_row, .first = *first, .live = true};
	fputs("\033[H", stdout);
	put_view(&screen, v);
	fputs("\033[J", stdout);
	fflush(stdout);
	*first = screen.first;
}

/* Draws until the user ends it, or the group is gone: −1. */
static int show(struct view *v, uint64_t interval_ns)
{
	uint64_t wait_ns = interval_ns < FIRST_LOOK_NS ? interval_ns : FIRST_LOOK_NS;
	unsigned first = 0;
	for (;; wait_ns = interval_ns) {
		uint64_t until = clock_now(&clock_monotonic) + wait_ns;
		enum wish wish;
		while ((wish = wait_for_key(until)) != LOOK) {
			if (wish == QUIT)
				return 0;
			if (wish == DOWN)
				first++;
			else if (wish == UP && first)
				first--;
			draw(v, &first);
		}
		if (top_look(v, false))
			return -1;
		draw(v, &first);
	}
}

static int watch(struct view *v, uint64_t interval_ns)
{
	struct termios before_raw, raw;
	struct sigaction on = {.sa_handler = on_signal};
	bool tty = tcgetattr(STDIN_FILENO, &before_raw) == 0;
	sigaction(SIGINT, &on, NULL);
	sigaction(SIGTERM, &on, NULL);
	sigaction(SIGWINCH, &on, NULL);
	if (tty) {
		raw = before_raw;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	fputs("\033[?1049h\033[?25l", stdout); /* the other screen; no cursor */
	int rc = show(v, interval_ns);
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	if (tty)
		tcsetattr(STDIN_FILENO, TCSANOW, &before_raw);
	return rc ? 1 : 0;
}

int cmd_top(int argc, char **argv)
{
	bool once = false, json = false;
	uint64_t interval_ns = FAR_SEC;
	struct view v = {0};
	const struct option_spec specs[] = {
		ADMIN_CHOICE_OPTIONS(v.choice),
		{"interval", 'i', OPTION_DURATION, &interval_ns, 100 * FAR_MS, 3600 * FAR_SEC, "TIME",
		 "time between two looks (default 1s)", NULL},
		{"once", 0, OPTION_FLAG, &once, 0, 0, NULL, "print one view, of one interval, and end", NULL},
		{"json", 0, OPTION_FLAG, &json, 0, 0, NULL, "with --once: print JSON", NULL},
		{.name = ""}};
	const struct option_command command = {
		TOP_NAME, "[OPTIONS]",
		"Shows the workers of one group on this host, of this user: calls per second, latency percentiles, "
		"calls\n"
		"in flight, errors and drops, sessions by NIC, references, CPU of each shard's poller. Latencies are\n"
		"those of the calls of the interval that were measured, one in FAR_METRICS_SAMPLE. q ends it; j, k "
		"and\n"
		"arrows move through the workers.",
		specs};
	int rest;
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest < argc)
		return options_wrong(TOP_NAME, "%s: arguments are not expected", argv[rest]);
	if (json && !once)
		return options_wrong(TOP_NAME, "--json needs --once");
	if (!once && !isatty(STDOUT_FILENO))
		return options_wrong(TOP_NAME, "the output is no terminal; give --once");
	int status = top_look(&v, true) ? 1 : 0;
	struct timespec pause = {(time_t)(interval_ns / FAR_SEC), (long)(interval_ns % FAR_SEC)};
	if (!status && once) {
		nanosleep(&pause, NULL);
		status = top_look(&v, false) ? 1 : 0;
	}
	if (!status && once && json) {
		print_json(&v);
	} else if (!status && once) {
		struct screen screen = {.out = stdout, .columns = 512, .rows = 4096};
		put_view(&screen, &v);
	} else if (!status) {
		status = watch(&v, interval_ns);
	}
	free(v.now);
	free(v.before);
	return status;
}
