/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets of engine/transport in words, by the engine's own structures and checks. Main thread. */
#ifndef FARCALL_DECODE_H
#define FARCALL_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** Requests in the packets so far, which decide how replies are decoded. NULL: no memory. */
struct decode_calls *decode_calls_new(void);
void decode_calls_free(struct decode_calls *calls);

struct summary;

/** Prints the fields of a packet, then "ok" or "bad=" and what is wrong. The bytes may be anything. `from` and `to`:
 * whose it is, in any words that are the same for the same end. It is counted in `summary`, too, unless that is NULL.
 */
void decode_packet(FILE *out, struct decode_calls *calls, struct summary *summary, uint64_t time_ns, const char *from,
		   const char *to, const uint8_t *bytes, uint32_t len);
/** May it be one: length, version, kind and the tag of no key. Others' datagrams seldom are like that. */
bool decode_likely(const uint8_t *bytes, uint32_t len);

/** Bytes, as their number and the first of them in hexadecimal. */
void decode_data(FILE *out, const uint8_t *bytes, uint64_t len);
/** Text in quotes, all but printable ASCII escaped. */
void decode_text(FILE *out, const char *text, size_t len);
/** A payload of typed values, exactly one if `one`; false: it is malformed, and nothing was printed. */
bool decode_values(FILE *out, const uint8_t *bytes, size_t len, bool one);

#endif
