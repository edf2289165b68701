/* SPDX-License-Identifier: BSD-3-Clause */
/* The application's log hook and the level of what is logged. Any thread. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the hook and its argument together */
static far_log_fn *hook;
static void *hook_user;
static _Atomic int limit = -1; /* enum far_log_level; −1: FAR_LOG is not read yet. Relaxed: it orders no data */

int log_level_of(const char *name)
{
	static const char *const names[] = {"none", "error", "warning", "info", "debug"};
	for (int i = FAR_LOG_NONE; i <= FAR_LOG_DEBUG; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

static int limit_read(void)
{
	int level = atomic_load_explicit(&limit, memory_order_relaxed);
	if (level >= 0)
		return level;
	const char *env = getenv("FAR_LOG");
	level = env ? log_level_of(env) : -1;
	if (level < 0) /* far_init_rpc() refuses another word */
		level = FAR_LOG_INFO;
	int unread = -1; /* far_log_level_set() wins */
	return atomic_compare_exchange_strong_explicit(&limit, &unread, level, memory_order_relaxed,
						       memory_order_relaxed)
		       ? level
		       : unread;
}

void far_log_level_set(enum far_log_level level)
{
	atomic_store_explicit(&limit, (int)level, memory_order_relaxed);
}

void far_log_set(far_log_fn *fn, void *user)
{
	pthread_mutex_lock(&lock);
	hook = fn;
	hook_user = user;
	pthread_mutex_unlock(&lock);
}

void log_fields(enum far_log_level level, const struct far_log_field *fields, size_t n, const char *format, ...)
{
	char text[LINE_MAX_BYTES];
	va_list args;
	if ((int)level > limit_read())
		return;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	pthread_mutex_lock(&lock);
	far_log_fn *fn = hook;
	void *user = hook_user;
	pthread_mutex_unlock(&lock);
	if (fn)
		fn(level, text, fields, n, user);
	else
		fprintf(stderr, "farcall: %s\n", text);
}
