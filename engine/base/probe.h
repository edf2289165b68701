/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Static probes, which bpftrace, perf and SystemTap attach to while a program runs. Each is one no-op instruction and a
 * note in the file; without <sys/sdt.h> it is nothing. perf/bpftrace/README.md has their table. Any thread.
 */
#ifndef FAR_BASE_PROBE_H
#define FAR_BASE_PROBE_H

#ifdef HAVE_SDT
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#ifdef __clang__ /* whose -Wpedantic reports the macros of that header */
#define PROBE(...)                                                                                                     \
	_Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wgnu-zero-variadic-macro-arguments\"")   \
		STAP_PROBEV(farcall, __VA_ARGS__) _Pragma("clang diagnostic pop")
#else
#define PROBE(...) STAP_PROBEV(farcall, __VA_ARGS__)
#endif
#define PROBES 1
#else
#define PROBE(...) ((void)0)
#define PROBES     0
#endif

#endif
