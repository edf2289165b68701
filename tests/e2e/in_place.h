/* SPDX-License-Identifier: BSD-3-Clause */
/** What in_place.c needs of its other files: where packets are, and what was copied. Main thread of each process. */
#ifndef IN_PLACE_H
#define IN_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/** Every byte of what is sent, so that a copy of some of it is known by what it copies. */
#define IN_PLACE_BYTE 0xa7

/** Is it memory that packets arrive in: of the device, or shared with who sent them. */
bool in_place_is_packet(const void *at);

/** Copies of the process, by whichever function of the C library, that had some of those bytes; from 0 again. */
unsigned in_place_copies(void);
/** The same as the bytes that they were of; from 0 again by itself. */
unsigned long in_place_copied_bytes(void);

#endif
