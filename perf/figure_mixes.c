/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Lengths of messages in data centres, as the percentiles of the workloads W1 to W5 in: Montazeri, Li, Alizadeh,
 * Ousterhout, "Homa: A Receiver-Driven Low-Latency Transport Protocol Using Network Priorities", SIGCOMM 2018, figure
 * 1. Lengths below 8 bytes are taken as 8. Any thread.
 */
#include "figure.h"

#include <math.h>

const struct figure_mix figure_mixes[FIGURE_MIXES] = {
	{"W1",
	 "memcached servers at Facebook",
	 {{0, 8},
	  {0.3, 8},
	  {0.4, 11},
	  {0.5, 27},
	  {0.6, 78},
	  {0.7, 150},
	  {0.8, 263},
	  {0.9, 500},
	  {0.95, 803},
	  {0.99, 1850},
	  {0.999, 4850},
	  {0.9999, 11600},
	  {0.99999, 28000},
	  {1, 100000}}},
	{"W2",
	 "a search application at Google",
	 {{0, 8},
	  {0.17, 8},
	  {0.2, 34},
	  {0.3, 53},
	  {0.4, 165},
	  {0.5, 264},
	  {0.6, 302},
	  {0.7, 348},
	  {0.8, 411},
	  {0.9, 500},
	  {0.95, 875},
	  {0.99, 2980},
	  {0.999, 20600},
	  {0.9999, 152000},
	  {1, 3529904}}},
	{"W3",
	 "all applications of a data centre of Google",
	 {{0, 8},
	  {0.1, 33},
	  {0.2, 72},
	  {0.3, 101},
	  {0.4, 154},
	  {0.5, 257},
	  {0.6, 311},
	  {0.7, 396},
	  {0.8, 566},
	  {0.9, 1716},
	  {0.95, 5510},
	  {0.99, 30600},
	  {0.999, 355000},
	  {0.9999, 2310000},
	  {1, 15158197}}},
	{"W4",
	 "a Hadoop cluster at Facebook",
	 {{0, 53},
	  {0.1, 315},
	  {0.2, 375},
	  {0.3, 500},
	  {0.4, 561},
	  {0.5, 655},
	  {0.6, 957},
	  {0.7, 6280},
	  {0.8, 49300},
	  {0.9, 119400},
	  {0.95, 269500},
	  {0.97, 819000},
	  {0.99, 3090000},
	  {1, 10000000}}},
	{"W5",
	 "web search, as for DCTCP",
	 {{0, 1430},
	  {0.1, 5720},
	  {0.2, 19110},
	  {0.3, 27930},
	  {0.4, 48510},
	  {0.5, 71100},
	  {0.6, 195510},
	  {0.7, 980490},
	  {0.8, 1959510},
	  {0.9, 4899510},
	  {0.9025, 10291470},
	  {1, 29400000}}},
};

const char *figure_mix_names[FIGURE_MIXES + 1] = {"W1", "W2", "W3", "W4", "W5", NULL};

uint64_t figure_mix_bytes(const struct figure_mix *m, double u)
{
	unsigned i = 1;
	while (m->point[i].share < u && m->point[i].share < 1)
		i++;
	double low = m->point[i - 1].bytes, high = m->point[i].bytes;
	double within = (u - m->point[i - 1].share) / (m->point[i].share - m->point[i - 1].share);
	return (uint64_t)(low * pow(high / low, within) + 0.5);
}
