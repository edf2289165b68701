/* SPDX-License-Identifier: BSD-3-Clause */
/** Plugins of an agent: api/plugin.c loads them, api/plugin_send.c sends and receives them. Each function names its
 * threads. */
#ifndef FAR_API_PLUGIN_H
#define FAR_API_PLUGIN_H

#include <farcall/plugin.h>

/** Stops all plugins and unmaps them. The last object was destroyed, and no handler runs. The thread that ends the
 * agent. */
void plugins_end(struct far_agent *a);

/** DENIED: the file or directory is not of its kind, or a user other than root and this one could change it. */
enum far_status plugin_check_owner(const char *path, bool directory, struct far_err *err);
/** Loads the plugin in an open file, or replaces the one of its name, and takes `fd` over. `from` is for messages. A
 * blocking handler. */
enum far_status plugin_load_image(struct far_agent *a, int fd, const char *from, struct far_err *err);

#endif
