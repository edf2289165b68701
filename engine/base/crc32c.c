/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * CRC32C by the processor's instruction, else by tables. Any thread. The instruction has a latency of three cycles and
 * a throughput of one, so three runs of LONG or SHORT bytes are computed in parallel. Their CRCs are combined by the
 * linear map "n zero bytes follow", from tables made at first use.
 */
#include "base/crc32c.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */
#define LONG       1024u
#define SHORT      128u /* three in parallel take half the time of one run; with 64 bytes the combination costs the gain */

static uint32_t bytes_table[8][256]; /* [k][x]: CRC of byte x followed by k zeros */
static uint32_t long_table[4][256];  /* [k][x]: byte k of a CRC, of value x, followed by LONG zeros */
static uint32_t short_table[4][256]; /* the same with SHORT zeros */
static _Atomic int tables_state;     /* 0: none → 1: a thread makes them → 2: made (release) */

static uint32_t step_zeros(uint32_t crc, size_t n)
{
	for (; n; n--)
		crc = bytes_table[0][crc & 0xff] ^ crc >> 8;
	return crc;
}

static void shift_fill(uint32_t table[4][256], size_t zeros)
{
	for (unsigned k = 0; k < 4; k++) {
		for (uint32_t bit = 1; bit < 256; bit *= 2)
			table[k][bit] = step_zeros(bit << 8 * k, zeros);
		for (uint32_t x = 1; x < 256; x++) /* linear: the lowest bit and the rest */
			table[k][x] = table[k][x & -x] ^ table[k][x & (x - 1)];
	}
}

static void tables_fill(void)
{
	for (uint32_t x = 0; x < 256; x++) {
		uint32_t crc = x;
		for (unsigned i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
		bytes_table[0][x] = crc;
	}
	for (uint32_t x = 0; x < 256; x++)
		for (unsigned k = 1; k < 8; k++)
			bytes_table[k][x] = step_zeros(bytes_table[k - 1][x], 1);
	shift_fill(long_table, LONG);
	shift_fill(short_table, SHORT);
}

__attribute__((noinline, cold)) static void tables_make(void)
{
	int none = 0;
	if (atomic_compare_exchange_strong_explicit(&tables_state, &none, 1, memory_order_acquire,
						    memory_order_acquire)) {
		tables_fill();
		atomic_store_explicit(&tables_state, 2, memory_order_release);
	}
	while (atomic_load_explicit(&tables_state, memory_order_acquire) != 2)
		; /* another thread makes them: some 20 us, once in the process */
}

static inline void tables_need(void)
{
	if (__builtin_expect(atomic_load_explicit(&tables_state, memory_order_acquire) != 2, 0))
		tables_make();
}

static inline uint64_t load64(const uint8_t *p)
{
	uint64_t x;
	memcpy(&x, p, sizeof x);
	return x;
}

uint32_t crc32c_table(uint32_t crc, const void *data, size_t len)
{
	const uint8_t *p = data;
	tables_need();
	crc = ~crc;
	for (; len >= 8; len -= 8, p += 8) {
		uint32_t low = crc ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
		crc = bytes_table[7][low & 0xff] ^ bytes_table[6][low >> 8 & 0xff] ^ bytes_table[5][low >> 16 & 0xff] ^
		      bytes_table[4][low >> 24] ^ bytes_table[3][p[4]] ^ bytes_table[2][p[5]] ^ bytes_table[1][p[6]] ^
		      bytes_table[0][p[7]];
	}
	for (; len; len--, p++)
		crc = bytes_table[0][(crc ^ *p) & 0xff] ^ crc >> 8;
	return ~crc;
}

static inline uint32_t shift(uint32_t table[4][256], uint32_t crc)
{
	return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24];
}

#if defined(__x86_64__)
#define HAVE_INSTRUCTION  1
#define WITH_INSTRUCTION  __attribute__((target("sse4.2")))
#define STEP_8(crc, word) __builtin_ia32_crc32di(crc, word)
#define STEP_1(crc, byte) __builtin_ia32_crc32qi((uint32_t)(crc), byte)
static inline bool instruction_there(void)
{
	return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_acle.h>
#include <sys/auxv.h>
#define HAVE_INSTRUCTION  1
#define WITH_INSTRUCTION  __attribute__((target("+crc")))
#define STEP_8(crc, word) __crc32cd((uint32_t)(crc), word)
#define STEP_1(crc, byte) __crc32cb((uint32_t)(crc), byte)
static bool instruction_there(void)
{
	return getauxval(AT_HWCAP) >> 7 & 1; /* HWCAP_CRC32 */
}
#endif

#ifdef HAVE_INSTRUCTION
WITH_INSTRUCTION static inline __attribute__((always_inline)) uint32_t three_runs(uint32_t start, const uint8_t *p,
										  size_t run, uint32_t table[4][256])
{
	uint64_t a = start, b = 0, c = 0;
	for (size_t i = 0; i < run; i += 8) {
		a = STEP_8(a, load64(p + i));
		b = STEP_8(b, load64(p + run + i));
		c = STEP_8(c, load64(p + 2 * run + i));
	}
	return shift(table, shift(table, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

WITH_INSTRUCTION static uint32_t crc32c_instruction(uint32_t start, const uint8_t *p, size_t len)
{
	uint64_t a = (uint32_t)~start;
	if (len >= 3 * SHORT)
		tables_need();
	for (; len >= 3 * LONG; len -= 3 * LONG, p += 3 * LONG)
		a = three_runs((uint32_t)a, p, LONG, long_table);
	for (; len >= 3 * SHORT; len -= 3 * SHORT, p += 3 * SHORT)
		a = three_runs((uint32_t)a, p, SHORT, short_table);
	for (; len >= 32; len -= 32, p += 32) {
		a = STEP_8(a, load64(p));
		a = STEP_8(a, load64(p + 8));
		a = STEP_8(a, load64(p + 16));
		a = STEP_8(a, load64(p + 24));
	}
	for (; len >= 8; len -= 8, p += 8)
		a = STEP_8(a, load64(p));
	for (; len; len--, p++)
		a = STEP_1(a, *p);
	return ~(uint32_t)a;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	if (__builtin_expect(instruction_there(), 1))
		return crc32c_instruction(crc, data, len);
	return crc32c_table(crc, data, len);
}
#else
uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	return crc32c_table(crc, data, len);
}
#endif
