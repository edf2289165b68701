/* SPDX-License-Identifier: BSD-3-Clause */
/** Decodes the engine's own requests and replies. A reply does not name its request, so requests are remembered. Main
 * thread. */
#ifndef FARCALL_DECODE_ENGINE_H
#define FARCALL_DECODE_ENGINE_H

#include "core/packet.h"
#include "decode_fields.h"

/** Remembers an engine request by its header, so that its reply can be decoded. */
void engine_note(const struct printer *p, const union packet_head *h);
/** Does the function of this head of a REQUEST belong to the engine. */
bool engine_is_request(const union packet_head *h);
/** Its name. */
const char *engine_name(uint16_t fn);
/** The body of such a REQUEST, without what its flags put at the end. */
bool engine_request(struct printer *p, const union packet_head *h, const uint8_t *bytes, uint64_t len);
/** The function that a reply answers, 0: none of the engine's that was seen. */
uint16_t engine_answered(const struct printer *p, const union packet_head *h);
bool engine_reply(struct printer *p, uint16_t fn, const uint8_t *bytes, uint64_t len);

#endif
