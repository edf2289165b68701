/* SPDX-License-Identifier: BSD-3-Clause */
/** CRC32C (Castagnoli; RFC 3720, appendix B.4), by the processor's instruction where there is one. Anyone. */
#ifndef FAR_BASE_CRC32C_H
#define FAR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/** Of `len` bytes after others whose CRC is `crc`; 0 to begin. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

/** The same without the instruction, for machines that lack it. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t len);

#endif
