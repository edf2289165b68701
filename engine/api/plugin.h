/* SPDX-License-Identifier: BSD-3-Clause */
/** Plugins of an agent: api/plugin.c. The thread that ends the agent. */
#ifndef FAR_API_PLUGIN_H
#define FAR_API_PLUGIN_H

struct far_agent;

/** Stops all plugins and unmaps them. The last object was destroyed, and no handler runs. */
void plugins_end(struct far_agent *a);

#endif
