/* SPDX-License-Identifier: BSD-3-Clause */
/** The parts of protocol_trace. Main thread. */
#ifndef PROTOCOL_TRACE_H
#define PROTOCOL_TRACE_H

#include "core/packet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Sends from one end to the other by hand; the packet is captured. */
void trace_send(union packet_head h, const void *body, size_t len);

/** The same in the other direction. */
void trace_answer(union packet_head h, const void *body, size_t len);
/** Time passes. */
void trace_turn(void);

/** Writes a packet to the capture. A microsecond passes with each, so that no two have one time. */
void trace_capture(unsigned from, unsigned to, const uint8_t *bytes, uint32_t len);

/** Keeps the packet if it is the first of a kind whose bytes are worth changing. */
void trace_sample(const uint8_t *bytes, uint32_t len);
/** Captures each of those with changed bytes, and cut short. */
void trace_damage(void);

/** The next message is one whose bytes are worth changing. */
extern bool trace_sample_values;
void trace_every_value(void);
void trace_every_message(void);
void trace_every_engine_call(void);
/** Messages beyond a packet that one end exposes to the other. */
void trace_exposed(void);

#endif
