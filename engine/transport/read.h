/* SPDX-License-Identifier: BSD-3-Clause */
/** Received messages that are read from the sender's memory. Poller. */
#ifndef FAR_TRANSPORT_READ_H
#define FAR_TRANSPORT_READ_H

#include "transport/message.h"

struct transport_queue;

/* The last bytes of a message that is read come in a packet: its arrival completes the message. */
#define TRANSPORT_TAIL_BYTES 64u

/** Starts to read a message whose first packet had this key, if no other packet of it arrived. */
void transport_read_begin(struct transport_queue *q, struct transport_message *m, const uint8_t *key);
/** Returns the offset up to which the message is read; the rest comes in a packet. */
static inline uint32_t transport_read_end(const struct transport_message *m)
{
	return m->len > m->done + TRANSPORT_TAIL_BYTES ? m->len - TRANSPORT_TAIL_BYTES : m->done;
}

/** Reads `bytes` from `from` on, in place of a grant. false: not now. */
bool transport_read_more(struct transport_queue *q, struct transport_message *m, uint32_t from, uint32_t bytes);
/** Called when all is granted: ends reading if no read is in flight. */
void transport_read_check(struct transport_queue *q, struct transport_message *m);
/** Processes READ or READ_FAILED. */
void transport_read_event(struct transport_queue *q, struct transport_message *m,
			  const struct transport_onesided_result *news);
/** Releases the reads of a message that ends. */
void transport_read_drop(struct transport_queue *q, struct transport_message *m);

#endif
