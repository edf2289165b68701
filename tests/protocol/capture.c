/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes packets to a pcap file. One thread. */
#include "capture.h"

#include "base/must.h"
#include "nic/dpdk/frame.h"

#include <stdio.h>
#include <stdlib.h>

enum { UDP_PORT = 7000 };

static FILE *file;

static void put32(uint32_t x)
{
	must(fwrite(&x, sizeof x, 1, file) == 1);
}

void capture_begin(const char *path)
{
	file = fopen(path, "wbe");
	if (!file) {
		perror(path);
		exit(1);
	}
	put32(0xa1b2c3d4);
	put32(4u << 16 | 2);
	put32(0);
	put32(0);
	put32(262144);
	put32(1);
}

void capture_packet(unsigned from, unsigned to, uint64_t now_ns, const uint8_t *bytes, uint32_t len)
{
	uint8_t head[FRAME_V6_BYTES];
	struct frame_addr a[2] = {
		{.mac = {2, 0, 0, 0, 0, (uint8_t)(1 + from)}, .ip = {10, 0, 0, (uint8_t)(1 + from)}, .port = UDP_PORT},
		{.mac = {2, 0, 0, 0, 0, (uint8_t)(1 + to)}, .ip = {10, 0, 0, (uint8_t)(1 + to)}, .port = UDP_PORT}};
	struct frame_path path;
	frame_path_init(&path, &a[0], &a[1]);
	unsigned n = frame_write(head, &path, len, bytes, FRAME_SUM_FULL);
	put32((uint32_t)(now_ns / 1000000000));
	put32((uint32_t)(now_ns % 1000000000 / 1000));
	put32(n + len);
	put32(n + len);
	must(fwrite(head, 1, n, file) == n && fwrite(bytes, 1, len, file) == len);
}

void capture_end(void)
{
	must(fclose(file) == 0);
}
