/* SPDX-License-Identifier: BSD-3-Clause */
/** Loads librdmacm. Control thread, or any thread that may load libraries. */
#include "nic/verbs/cm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Tests set another name. */
#ifndef VERBS_CM_LIBRARY
#define VERBS_CM_LIBRARY "librdmacm.so.1"
#endif

static struct verbs_cm calls;
static bool loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ISO C has no cast from an object pointer to a function pointer. */
static bool find(void *handle, const char *name, void *out)
{
	void *at = dlsym(handle, name);
	memcpy(out, &at, sizeof at);
	return at != NULL;
}

static bool load(struct nic_err *err)
{
	void *handle = dlopen(VERBS_CM_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle) {
		const char *why = dlerror();
		snprintf(err->text, sizeof err->text,
			 "verbs: connections (rc=1, iWARP) need " VERBS_CM_LIBRARY ", which cannot be loaded: %.120s; "
			 "apt install librdmacm1, or use udp",
			 why ? why : "unknown reason");
		return false;
	}
#define FIND(type, name, args)                                                                                         \
	if (!find(handle, #name, &calls.name)) {                                                                       \
		snprintf(err->text, sizeof err->text,                                                                  \
			 "verbs: " VERBS_CM_LIBRARY " has no " #name ": apt install a newer librdmacm1");              \
		dlclose(handle);                                                                                       \
		return false;                                                                                          \
	}
	VERBS_CM_CALLS(FIND)
	return true;
}

const struct verbs_cm *verbs_cm_load(struct nic_err *err)
{
	pthread_mutex_lock(&lock);
	loaded = loaded || load(err);
	pthread_mutex_unlock(&lock);
	return loaded ? &calls : NULL;
}
