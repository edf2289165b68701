/* SPDX-License-Identifier: BSD-3-Clause */
/** The structures that travel, field by field. Main thread. */
#ifndef FARCALL_DECODE_FIELDS_H
#define FARCALL_DECODE_FIELDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct field;
union packet_head;
struct layout {
	const char *name;
	uint32_t bytes;
	unsigned n;
	const struct field *fields;
};

extern const struct layout layout_head, layout_message, layout_ack, layout_control, layout_sub, layout_handshake,
	layout_reject, layout_grant, layout_exposed, layout_acked, layout_hash, layout_retry, layout_object,
	layout_named, layout_rref_remote, layout_rref_fetch, layout_rref_method, layout_rref_method_remote,
	layout_rref_op;

/* What is being printed. */
struct printer {
	FILE *out;
	const char *bad; /* what is wrong: of a layout, and, if not NULL, a field of it */
	const char *bad_field;
	struct decode_calls *calls;
	struct summary *summary; /* NULL: none */
	const char *from, *to;
	uint64_t time_ns;
};

/** Notes what is wrong; false. */
bool wrong(struct printer *p, const char *layout, const char *field);
/** All fields are printed, right or wrong; the first wrong one is named. `type` is the message's, 0 of none. */
bool print_layout(struct printer *p, const struct layout *l, const uint8_t *bytes, uint64_t len, unsigned type);
/** The same, and nothing may follow. */
bool print_exactly(struct printer *p, const struct layout *l, const uint8_t *bytes, uint64_t len, unsigned type);
/** Prints the head of a message by its type; nothing if that is unknown. */
bool print_head(struct printer *p, const union packet_head *h);
void print_status(FILE *out, uint64_t status);

#endif
