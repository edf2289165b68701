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

/** Where packets are printed, and what is kept between them. */
struct decode {
	FILE *out;
	struct decode_calls *calls;
	struct summary *summary; /* counts the packets; NULL: none */
};

/** A packet of a capture. The bytes may be anything. */
struct decode_frame {
	uint64_t time_ns;
	const char *from, *to; /* any names of the two ends, the same in each packet */
	const uint8_t *bytes;
	uint32_t len;
};

/** Prints the fields of a packet, then "ok" or "bad=" and what is wrong. */
void decode_packet(const struct decode *d, const struct decode_frame *f);
/** May it be one: length, version, kind and the tag of no key. Others' datagrams seldom are like that. */
bool decode_likely(const uint8_t *bytes, uint32_t len);

/** Bytes, as their number and the first of them in hexadecimal. */
void decode_data(FILE *out, const uint8_t *bytes, uint64_t len);
/** Text in quotes, all but printable ASCII escaped. */
void decode_text(FILE *out, const char *text, size_t len);
/** A payload of typed values, exactly one if `one`; false: it is malformed, and nothing was printed. */
bool decode_values(FILE *out, const uint8_t *bytes, size_t len, bool one);

#endif
