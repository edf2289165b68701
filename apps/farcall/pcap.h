/* SPDX-License-Identifier: BSD-3-Clause */
/** Captures: classic pcap files, and the UDP datagrams in them. Nothing in a capture is trusted. Main thread. */
#ifndef FARCALL_PCAP_H
#define FARCALL_PCAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Longest frame that is read: what capture programs call unlimited. */
#define PCAP_FRAME_MAX 262144u
#define PCAP_TEXT_MAX  160

struct pcap {
	FILE *file;
	bool swapped; /* written on a machine of the other byte order */
	bool nanoseconds;
	uint32_t link_type;
	uint64_t frames;          /* that were read */
	char text[PCAP_TEXT_MAX]; /* why reading failed */
	uint8_t frame[PCAP_FRAME_MAX];
};

struct pcap_frame {
	uint64_t number; /* from 1 on, as tshark counts */
	uint64_t time_ns;
	const uint8_t *bytes; /* until the next is read */
	uint32_t len;
};

struct pcap_datagram {
	char from[64], to[64]; /* "10.0.0.1:7000", "[fd00::1]:7000", "10.0.0.1/qp17" */
	uint16_t from_port, to_port;
	const uint8_t *bytes;
	uint32_t len; /* that were captured */
	bool cut;     /* it was longer */
};

/** Reads the head of a capture: 0, or -errno with `text`. The file stays the caller's. */
int pcap_open(struct pcap *p, FILE *file);
/** The next frame: 1, 0 at the end, or -errno with `text`. */
int pcap_next(struct pcap *p, struct pcap_frame *out);
/**
 * The UDP datagram in a frame of this link type; false: it has none, or a later fragment of one. Of RoCE v2 it is the
 * payload of an unreliable datagram, from and to queue pairs, "10.0.0.1/qp17"; other packets of RoCE have none.
 */
bool pcap_udp(uint32_t link_type, const uint8_t *frame, uint32_t len, struct pcap_datagram *out);

#endif
