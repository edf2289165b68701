/* SPDX-License-Identifier: BSD-3-Clause */
/** SHA-256 (FIPS 180-4), for traces that are to be compared: not written against timing. Any thread. */
#ifndef FAR_NIC_SIM_SHA256_H
#define FAR_NIC_SIM_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES      32u
#define SHA256_TEXT_BYTES 65u /* in hexadecimal, with its end */

struct sha256 {
	uint32_t state[8];
	uint64_t len;      /* bytes added so far */
	uint8_t block[64]; /* the last len % 64 of them */
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *bytes, size_t len);
/** Of all that was added so far; `s` may be added to afterwards. */
void sha256_sum(const struct sha256 *s, uint8_t out[SHA256_BYTES]);
void sha256_text(const struct sha256 *s, char out[SHA256_TEXT_BYTES]);

#endif
