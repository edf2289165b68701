/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the udp driver reads from others: the first byte of the input chooses a published address, or what a user may
 * write after nic=udp:, listen= and advertise=. An address that reads well is written again and read again, and must
 * be the same. Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: as fuzz_values.c.
 */
#include "base/must.h"
#include "nic/udp/udp_config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void address(const uint8_t *bytes, size_t len)
{
	struct udp_addr a, again;
	uint8_t blob[UDP_BLOB_MAX], blob_again[UDP_BLOB_MAX];
	char text[512] = "";
	if (!udp_addr_decode(bytes, len, &a))
		return;
	must(a.queues >= 1 && a.queues <= UDP_QUEUES_MAX && a.ips_n >= 1 && a.ips_n <= UDP_ADDRS_MAX);
	uint16_t written = udp_addr_encode(&a, blob);
	must(udp_addr_decode(blob, written, &again));
	must(udp_addr_encode(&again, blob_again) == written && memcmp(blob, blob_again, written) == 0);
	udp_addr_text(&a, text, sizeof text);
	must(strlen(text) > 0);
}

static void listen_at(const char *text)
{
	static struct udp_ifaces ifaces;
	struct udp_listen l;
	struct nic_err err = {""};
	ifaces.n = 1;
	ifaces.at[0] = (struct udp_iface){.name = "lo", .up = true, .loopback = true, .prefix = 8};
	must(udp_ip_parse("127.0.0.1", &ifaces.at[0].ip));
	int error = udp_listen_choose(&ifaces, text, true, &l, &err);
	must(error ? err.text[0] != 0 : l.n >= 1 && l.n <= UDP_ADDRS_MAX);
}

static void words(unsigned which, const char *text)
{
	struct nic_err err = {""};
	struct udp_args args;
	struct udp_addr addr = {.queues = 4, .ips_n = 1, .ports = {1, 2, 3, 4}};
	if (which == 1)
		must(udp_args_parse(text, 16, &args, &err) == 0 || err.text[0]);
	else if (which == 2)
		listen_at(text);
	else
		must(udp_advertise(text, &addr, &err) == 0 || err.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	/* To the byte, so that a sanitizer sees a read past the end. */
	char *copy = malloc(size);
	must(copy);
	memcpy(copy, data + 1, size - 1);
	copy[size - 1] = 0;
	if (data[0] % 4 == 0)
		address((const uint8_t *)copy, size - 1);
	else
		words(data[0] % 4, copy);
	free(copy);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
