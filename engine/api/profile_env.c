/* SPDX-License-Identifier: BSD-3-Clause */
/** The profile of a worker that FAR_PROFILE names a file for. The thread that starts and stops an agent. */
#include "api/profile.h"

#include "agent/init.h"
#include "base/error.h"
#include "base/log.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct far_profile *profile; /* of the process; kept to its end. Under the lock, as is `agents` */
static unsigned agents;             /* that record */

static bool ends_with(const char *text, const char *end)
{
	size_t a = strlen(text), b = strlen(end);
	return a >= b && strcmp(text + a - b, end) == 0;
}

enum far_status profile_env_begin(struct init *in)
{
	struct far_agent *a = in->a;
	const char *path = getenv("FAR_PROFILE");
	if (!path || !*path)
		return FAR_OK;
	if (!(a->profile = strdup(path)))
		return err_set(in->err, FAR_RESOURCE, "out of memory");
	pthread_mutex_lock(&lock);
	if (!profile)
		profile = profile_new(FAR_PROFILE_SPANS);
	bool has = profile != NULL;
	if (has && agents++ == 0)
		recording_of_process_set(profile->recording);
	pthread_mutex_unlock(&lock);
	if (has)
		return FAR_OK;
	free(a->profile);
	return err_set(in->err, FAR_RESOURCE, "no memory for the profile that FAR_PROFILE wants");
}

static void write_file(struct far_agent *a)
{
	char path[PATH_MAX];
	struct far_err err;
	uint64_t dropped = far_profile_dropped(profile);
	enum far_profile_format format = ends_with(a->profile, ".otlp.json") ? FAR_PROFILE_OTLP : FAR_PROFILE_CHROME;
	snprintf(path, sizeof path, "%s.%d", a->profile, a->rank);
	if (far_profile_write(profile, a, format, path, &err))
		log_line(FAR_LOG_WARNING, "%s", err.text);
	if (dropped)
		log_line(FAR_LOG_WARNING,
			 "the profile %s lacks %" PRIu64 " spans: there was no room for them here or in an answer",
			 path, dropped);
}

void profile_env_end(struct far_agent *a)
{
	if (!a->profile)
		return;
	pthread_mutex_lock(&lock);
	if (--agents == 0) {
		recording_of_process_set(NULL);
		write_file(a);
	}
	pthread_mutex_unlock(&lock);
	free(a->profile);
}
