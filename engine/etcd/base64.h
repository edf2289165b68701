/* SPDX-License-Identifier: BSD-3-Clause */
/** Base64 with padding (RFC 4648), as etcd's gateway writes bytes. Any thread; no state. */
#ifndef FAR_ETCD_BASE64_H
#define FAR_ETCD_BASE64_H

#include <stddef.h>
#include <stdint.h>

/** Characters of `len` bytes. */
#define BASE64_LEN(len) (((len) + 2) / 3 * 4)

/** Writes BASE64_LEN(len) characters. */
void base64_encode(const uint8_t *data, size_t len, char *out);
/** Writes at most len / 4 * 3 bytes; returns how many, or −1: not base64. */
long base64_decode(const char *text, size_t len, uint8_t *out);

#endif
