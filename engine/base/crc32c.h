/* SPDX-License-Identifier: BSD-3-Clause */
/** CRC32C (Castagnoli; RFC 3720, appendix B.4), by the processor's instruction where there is one. Any thread. */
#ifndef FAR_BASE_CRC32C_H
#define FAR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/** Continues the CRC `crc` (0: begin) over `len` bytes. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

/** The same without the instruction. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t len);

#endif
