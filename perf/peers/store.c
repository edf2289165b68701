/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A client of a key-value store over a unix socket: loads rows, or measures batch gets. One thread, which polls.
 *
 * usage: store load|get redis-mget|redis-hmget|memcached SOCKET --rows N --bytes N [--keys N] [--depth N] [--seconds S]
 *
 * A batch is one command: MGET, HMGET of one hash, or get. `depth` batches are in flight: they are written one behind
 * the other, and each that was answered is followed by the next (pipelining; Redis documentation, "Redis pipelining";
 * memcached, doc/protocol.txt). The time of a batch counts from before its command is written until its last value was
 * checked. A value is the number of its key, and zeros.
 */
#include "perf/hist.h"
#include "perf/ps_keys.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#define DEPTH_MAX 64
#define KEYS_MAX  4096u
#define LOAD_KEYS 500u /* of a command while loading */
#define BATCHES   32u  /* of keys, drawn before the clock starts */
#define SILENT_NS UINT64_C(20000000000)
#define AT_LEAST  5u

enum protocol { MGET, HMGET, MEMCACHED };
static const char *const protocols[] = {"redis-mget", "redis-hmget", "memcached"};

static struct {
	enum protocol protocol;
	uint64_t rows, bytes, keys, depth;
	double seconds;
} opts = {.rows = 100000, .bytes = 512, .keys = 500, .depth = 1, .seconds = 0.3};

static int fd;
static char *in, *value;
static size_t in_room, in_n, in_at; /* bytes of `in`: allocated, received, read */

static _Noreturn void __attribute__((format(printf, 1, 2))) die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("store: ", stderr);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- Commands ---- */

struct text {
	char *at;
	size_t n, room;
};

static void put(struct text *t, const void *data, size_t n)
{
	if (t->n + n > t->room) {
		t->room = 2 * (t->n + n);
		t->at = realloc(t->at, t->room);
		if (!t->at)
			die("no memory for a command of %zu bytes", t->room);
	}
	memcpy(t->at + t->n, data, n);
	t->n += n;
}

static void __attribute__((format(printf, 2, 3))) putf(struct text *t, const char *format, ...)
{
	char line[128];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	put(t, line, (size_t)n);
}

static void put_key(struct text *t, uint64_t key)
{
	char word[24];
	int n = snprintf(word, sizeof word, "%" PRIu64, key);
	putf(t, "$%d\r\n%s\r\n", n, word);
}

static const char *fill_value(uint64_t key)
{
	memcpy(value, &key, sizeof key);
	return value;
}

static void put_get(struct text *t, const uint64_t *keys, uint64_t n)
{
	t->n = 0;
	if (opts.protocol == MGET)
		putf(t, "*%" PRIu64 "\r\n$4\r\nMGET\r\n", n + 1);
	else if (opts.protocol == HMGET)
		putf(t, "*%" PRIu64 "\r\n$5\r\nHMGET\r\n$1\r\nh\r\n", n + 2);
	else
		putf(t, "get");
	for (uint64_t i = 0; i < n; i++)
		if (opts.protocol == MEMCACHED)
			putf(t, " %" PRIu64, keys[i]);
		else
			put_key(t, keys[i]);
	if (opts.protocol == MEMCACHED)
		putf(t, "\r\n");
}

/* Keys [from, to), which are answered by one line, or by one for each key (memcached). */
static void put_set(struct text *t, uint64_t from, uint64_t to)
{
	t->n = 0;
	if (opts.protocol == MGET)
		putf(t, "*%" PRIu64 "\r\n$4\r\nMSET\r\n", 2 * (to - from) + 1);
	else if (opts.protocol == HMGET)
		putf(t, "*%" PRIu64 "\r\n$4\r\nHSET\r\n$1\r\nh\r\n", 2 * (to - from) + 2);
	for (uint64_t k = from; k < to; k++) {
		if (opts.protocol == MEMCACHED) {
			putf(t, "set %" PRIu64 " 0 0 %" PRIu64 "\r\n", k, opts.bytes);
		} else {
			put_key(t, k);
			putf(t, "$%" PRIu64 "\r\n", opts.bytes);
		}
		put(t, fill_value(k), opts.bytes);
		put(t, "\r\n", 2);
	}
}

/* ---- The socket ---- */

static void connect_to(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof to.sun_path)
		die("%s: too long for a socket", path);
	strcpy(to.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	/* A server that has just bound its socket listens soon. */
	int rc = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, sizeof to);
	for (int i = 0; rc < 0 && errno == ECONNREFUSED && i < 500; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		rc = connect(fd, (struct sockaddr *)&to, sizeof to);
	}
	if (rc < 0)
		die("cannot connect to %s: %s", path, strerror(errno));
	/* All batches in flight and their replies are larger than what a socket holds: both are read and written by
	 * turns. */
	in_room = (size_t)1 << 20;
	in = malloc(in_room);
	value = calloc(1, opts.bytes + 1);
	if (!in || !value)
		die("no memory for replies");
}

/* Takes what has arrived. False: nothing has. */
static bool receive(void)
{
	if (in_at && in_at == in_n)
		in_at = in_n = 0;
	if (in_n == in_room && in_at) {
		memmove(in, in + in_at, in_n - in_at);
		in_n -= in_at;
		in_at = 0;
	}
	if (in_n == in_room) {
		in_room *= 2;
		in = realloc(in, in_room);
		if (!in)
			die("no memory for a reply of %zu bytes", in_room);
	}
	ssize_t n = recv(fd, in + in_n, in_room - in_n, MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		die("the server has closed the connection%s%s", n ? ": " : "", n ? strerror(errno) : "");
	if (n > 0)
		in_n += (size_t)n;
	return n > 0;
}

/* Waits for `n` bytes that were not read. */
static const char *need(size_t n)
{
	for (uint64_t start = 0; in_n - in_at < n;)
		if (!receive()) {
			start = start ? start : now_ns();
			if (now_ns() - start > SILENT_NS)
				die("no answer within %" PRIu64 " s", SILENT_NS / 1000000000);
		}
	return in + in_at;
}

static void send_all(const struct text *t)
{
	for (size_t at = 0; at < t->n;) {
		ssize_t n = send(fd, t->at + at, t->n - at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			die("cannot send: %s", strerror(errno));
		if (n > 0)
			at += (size_t)n;
		else
			receive(); /* the server waits until its replies are read */
	}
}

/* ---- Replies ---- */

/* Reads a line without its end into `line`. */
static void read_line(char line[128])
{
	for (size_t n = 1;; n++) {
		const char *at = need(n);
		if (at[n - 1] != '\n')
			continue;
		if (n < 2 || n > 127)
			die("a line of %zu bytes", n);
		memcpy(line, at, n - 2);
		line[n - 2] = 0;
		in_at += n;
		return;
	}
}

static void want_line(const char *want)
{
	char line[128];
	read_line(line);
	if (strcmp(line, want) != 0)
		die("the answer is \"%.100s\", not \"%s\"", line, want);
}

static void read_value(uint64_t key)
{
	uint64_t got;
	const char *at = need(opts.bytes + 2);
	memcpy(&got, at, sizeof got);
	if (got != key || (opts.bytes > sizeof got && at[opts.bytes - 1]) || memcmp(at + opts.bytes, "\r\n", 2) != 0)
		die("the value of key %" PRIu64 " is wrong", key);
	in_at += opts.bytes + 2;
}

static void read_batch(const uint64_t *keys, uint64_t n)
{
	char want[128];
	if (opts.protocol != MEMCACHED) {
		snprintf(want, sizeof want, "*%" PRIu64, n);
		want_line(want);
	}
	for (uint64_t i = 0; i < n; i++) {
		if (opts.protocol == MEMCACHED)
			snprintf(want, sizeof want, "VALUE %" PRIu64 " 0 %" PRIu64, keys[i], opts.bytes);
		else
			snprintf(want, sizeof want, "$%" PRIu64, opts.bytes);
		want_line(want);
		read_value(keys[i]);
	}
	if (opts.protocol == MEMCACHED)
		want_line("END");
}

/* ---- The two commands of this program ---- */

static void load(void)
{
	struct text t = {0};
	char want[32];
	for (uint64_t from = 0; from < opts.rows; from += LOAD_KEYS) {
		uint64_t to = from + LOAD_KEYS < opts.rows ? from + LOAD_KEYS : opts.rows;
		put_set(&t, from, to);
		send_all(&t);
		if (opts.protocol == HMGET)
			snprintf(want, sizeof want, ":%" PRIu64, to - from);
		if (opts.protocol == MEMCACHED)
			for (uint64_t k = from; k < to; k++)
				want_line("STORED");
		else
			want_line(opts.protocol == MGET ? "+OK" : want);
	}
}

static uint64_t keys[BATCHES][KEYS_MAX];
static struct hist hist;

/* Batches until the time is over, `depth` in flight. Returns how many there were. */
static uint64_t batches(uint64_t ns, uint64_t *busy_ns)
{
	static uint64_t begun[DEPTH_MAX];
	static struct text t;
	uint64_t start = now_ns(), now = start, sent = 0, done = 0;
	while (done < AT_LEAST || now - start < ns || done < sent) {
		bool more = now - start < ns || sent < AT_LEAST;
		while (more && sent - done < opts.depth) {
			begun[sent % opts.depth] = now_ns();
			put_get(&t, keys[sent % BATCHES], opts.keys);
			send_all(&t);
			sent++;
		}
		read_batch(keys[done % BATCHES], opts.keys);
		now = now_ns();
		hist_record(&hist, now - begun[done % opts.depth]);
		done++;
	}
	*busy_ns = now - start;
	return done;
}

static void get(void)
{
	uint64_t seed = 7, busy_ns;
	for (unsigned b = 0; b < BATCHES; b++)
		ps_keys_draw(&seed, opts.rows, false, keys[b], opts.keys);
	batches((uint64_t)(opts.seconds * 1e9 / 3), &busy_ns);
	hist_reset(&hist);
	uint64_t n = batches((uint64_t)(opts.seconds * 1e9), &busy_ns);
	printf("{\"store\": \"%s\", \"keys\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"rows\": %" PRIu64
	       ", \"depth\": %" PRIu64 ", \"count\": %" PRIu64 ", \"per_s\": %.1f, \"p50_ns\": %" PRIu64
	       ", \"p99_ns\": %" PRIu64 "}\n",
	       protocols[opts.protocol], opts.keys, opts.bytes, opts.rows, opts.depth, n,
	       (double)n * 1e9 / (double)busy_ns, hist_quantile(&hist, 0.5), hist_quantile(&hist, 0.99));
}

static uint64_t number(const char *text, uint64_t min, uint64_t max)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);
	if (*end || end == text || n < min || n > max)
		die("\"%s\" is not between %" PRIu64 " and %" PRIu64, text, min, max);
	return n;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {{"rows", 1, NULL, 'r'},    {"bytes", 1, NULL, 'b'},
						{"keys", 1, NULL, 'k'},    {"depth", 1, NULL, 'd'},
						{"seconds", 1, NULL, 's'}, {0}};
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
		switch (c) {
		case 'r':
			opts.rows = number(optarg, 1, UINT64_C(1) << 32);
			break;
		case 'b':
			opts.bytes = number(optarg, 8, 1 << 20);
			break;
		case 'k':
			opts.keys = number(optarg, 1, KEYS_MAX);
			break;
		case 'd':
			opts.depth = number(optarg, 1, DEPTH_MAX);
			break;
		case 's':
			opts.seconds = strtod(optarg, NULL);
			break;
		default:
			exit(2);
		}
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	bool loads = argc - optind == 3 && strcmp(argv[optind], "load") == 0;
	if (!loads && (argc - optind != 3 || strcmp(argv[optind], "get") != 0))
		die("give load or get, a protocol and a socket");
	for (opts.protocol = MGET; strcmp(argv[optind + 1], protocols[opts.protocol]) != 0; opts.protocol++)
		if (opts.protocol == MEMCACHED)
			die("no protocol \"%s\"", argv[optind + 1]);
	connect_to(argv[optind + 2]);
	if (loads)
		load();
	else
		get();
	return 0;
}
