/* SPDX-License-Identifier: BSD-3-Clause */
/** Prefixes each line of the workers' output with the rank and keeps the last lines of each worker. Main thread. */
#include "apps/cli/output.h"
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define READS_MAX 16   /* per call: a worker that floods must not starve the others */
#define DRAIN_MAX 4096 /* of output_finish(): blocks that a pipe with surviving writers may still bring */

static void emit(struct output *o, const char *data, size_t len)
{
	while (len && !o->lost) {
		struct pollfd p[2] = {{.fd = o->fd, .events = POLLOUT}, {.fd = o->interrupt_fd, .events = POLLIN}};
		if (poll(p, 2, -1) < 0 && errno != EINTR) {
			o->lost = true;
			return;
		}
		if (!p[0].revents && p[1].revents) { /* Ctrl-C must work on a stopped terminal */
			o->lost = true;
			return;
		}
		ssize_t n = write(o->fd, data, len);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0) {
			o->lost = o->gone = true;
			return;
		}
		data += n;
		len -= (size_t)n;
	}
}

static void tail_add(struct output_tail *t, const char *data, size_t len, bool middle)
{
	if (!middle)
		t->len[t->next++ % OUTPUT_TAIL_LINES] = 0;
	unsigned i = (t->next - 1) % OUTPUT_TAIL_LINES;
	size_t room = OUTPUT_TAIL_BYTES - t->len[i];
	size_t n = len < room ? len : room;
	memcpy(t->line[i] + t->len[i], data, n);
	t->len[i] += n;
}

/* Prints a piece of a line, its end when `newline`. */
static void piece(struct output *o, struct output_stream *s, const char *data, size_t len, bool newline)
{
	char block[OUTPUT_BLOCK_BYTES + 32];
	size_t n = 0;
	if (o->open && o->open != s)
		block[n++] = '\n'; /* another worker's line is unfinished */
	if (!s->middle || o->open != s)
		n += (size_t)snprintf(block + n, sizeof block - n, "[%d] ", s->rank);
	memcpy(block + n, data, len);
	n += len;
	if (newline)
		block[n++] = '\n';
	emit(o, block, n);
	tail_add(s->tail, data, len, s->middle);
	s->middle = !newline;
	o->open = newline ? NULL : s;
}

static void lines(struct output *o, struct output_stream *s)
{
	size_t at = 0;
	for (char *end; (end = memchr(s->buf + at, '\n', s->len - at)); at = (size_t)(end - s->buf) + 1)
		piece(o, s, s->buf + at, (size_t)(end - s->buf) - at, true);
	s->len -= at;
	memmove(s->buf, s->buf + at, s->len);
	if (s->len == sizeof s->buf) {
		piece(o, s, s->buf, s->len, false);
		s->len = 0;
	}
}

static void end_line(struct output *o, struct output_stream *s)
{
	if (s->len || s->middle)
		piece(o, s, s->buf, s->len, true);
	s->len = 0;
}

/* Up to `max` blocks. */
static void take(struct output *o, struct output_stream *s, int max)
{
	for (int i = 0; i < max && s->fd >= 0; i++) {
		ssize_t n = read(s->fd, s->buf + s->len, sizeof s->buf - s->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			end_line(o, s);
			close(s->fd);
			s->fd = -1;
			return;
		}
		s->len += (size_t)n;
		lines(o, s);
	}
}

void output_read(struct output *o, struct output_stream *s)
{
	take(o, s, READS_MAX);
}

void output_finish(struct output *o, struct output_stream *s)
{
	if (s->fd < 0)
		return;
	take(o, s, DRAIN_MAX);
	end_line(o, s);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

void output_tail_print(struct output *o, const struct output_tail *tail, int rank)
{
	unsigned first = tail->next > OUTPUT_TAIL_LINES ? tail->next - OUTPUT_TAIL_LINES : 0;
	for (unsigned l = first; l != tail->next; l++) {
		unsigned i = l % OUTPUT_TAIL_LINES;
		output_print(o, "[%d] %.*s", rank, (int)tail->len[i], tail->line[i]);
	}
}

bool output_tail_has(const struct output_tail *tail, const char *text)
{
	unsigned n = tail->next < OUTPUT_TAIL_LINES ? tail->next : OUTPUT_TAIL_LINES;
	for (unsigned i = 0; i < n; i++)
		if (memmem(tail->line[i], tail->len[i], text, strlen(text)))
			return true;
	return false;
}

void output_print(struct output *o, const char *format, ...)
{
	char line[OUTPUT_TAIL_BYTES + 256];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	if (n > (int)sizeof line - 2)
		n = (int)sizeof line - 2;
	if (o->open) {
		emit(o, "\n", 1);
		o->open = NULL;
	}
	line[n] = '\n';
	emit(o, line, (size_t)n + 1);
}
