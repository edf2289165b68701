/* SPDX-License-Identifier: BSD-3-Clause */
/** Draws the line of a training on a terminal. Main thread. */
#include "progress.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PERIOD_NS    UINT64_C(200000000)
#define COLUMNS      80u /* of a terminal without a size */
#define COLUMNS_MAX  512u
#define BAR_LEAST    3u /* columns of a bar, without its brackets and the blank behind it */
#define BAR_MOST     24u
#define BAR_ENDS     3u
#define CLEAR        "\r\033[K"
#define CLEAR_LENGTH (sizeof CLEAR - 1)

void progress_open(struct progress *p, enum progress_where where)
{
	*p = (struct progress){.fd = -1};
	if (where == PROGRESS_AUTO && isatty(STDERR_FILENO) == 1)
		p->fd = dup(STDERR_FILENO);
	if (where != PROGRESS_TERMINAL)
		return;
	signal(SIGTTOU, SIG_IGN); /* 'farcall run' has a process group for each member */
	p->fd = open("/dev/tty", O_WRONLY | O_CLOEXEC | O_NOCTTY);
}

bool progress_due(struct progress *p, uint64_t now_ns)
{
	if (p->fd < 0 || now_ns - p->shown_ns < PERIOD_NS)
		return false;
	p->shown_ns = now_ns;
	return true;
}

static unsigned columns(int fd)
{
	struct winsize size;
	if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_col < 2)
		return COLUMNS;
	return size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
}

static void put(const struct progress *p, const char *text, size_t len)
{
	ssize_t n = write(p->fd, text, len); /* a terminal that is gone shows nothing */
	(void)n;
}

void progress_show(struct progress *p, double done, const char *text)
{
	char line[CLEAR_LENGTH + COLUMNS_MAX + 1] = CLEAR;
	char *to = line + CLEAR_LENGTH;
	unsigned room = columns(p->fd) - 1, len = (unsigned)strlen(text); /* in the last column the cursor wraps */
	if (room >= len + BAR_ENDS + BAR_LEAST) {
		unsigned bar = room - len - BAR_ENDS;
		bar = bar < BAR_MOST ? bar : BAR_MOST;
		*to++ = '[';
		for (unsigned i = 0; i < bar; i++)
			*to++ = (i + 0.5) / bar < done ? '=' : ' ';
		*to++ = ']';
		*to++ = ' ';
	}
	unsigned used = (unsigned)(to - line - CLEAR_LENGTH);
	len = len < room - used ? len : room - used;
	memcpy(to, text, len);
	put(p, line, (size_t)(to - line) + len);
	p->shown = true;
}

static void hide(struct progress *p)
{
	if (p->shown)
		put(p, CLEAR, CLEAR_LENGTH);
	p->shown = false;
}

void progress_line(struct progress *p, const char *text)
{
	hide(p);
	fprintf(stderr, "%s\n", text);
}

void progress_close(struct progress *p)
{
	if (p->fd < 0)
		return;
	hide(p);
	close(p->fd);
	p->fd = -1;
}
