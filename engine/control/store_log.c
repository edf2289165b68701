/* SPDX-License-Identifier: BSD-3-Clause */
/* Encodes records of a store's file, and replays them. Control thread of each member. */
#include "control/store_log.h"

#include "base/byteorder.h"
#include "base/crc32c.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES ((size_t)64 << 10)

size_t record_encode(const struct record *r, uint8_t out[RECORD_BYTES_MAX])
{
	uint8_t *p = out + RECORD_HEAD_BYTES;
	le_put(out + 4, (uint64_t)r->kind, 2);
	le_put(out + 6, r->key.len, 2);
	le_put(out + 8, r->value.len, 4);
	le_put(out + 12, r->holder, 8);
	memcpy(p, r->key.data, r->key.len);
	p += r->key.len;
	if (r->value.len)
		memcpy(p, r->value.data, r->value.len);
	p += r->value.len;
	le_put(out, crc32c(0, out + 4, (size_t)(p - out) - 4), 4);
	return (size_t)(p - out);
}

/* Its bytes; 0: incomplete, or not a record. */
static size_t record_decode(const uint8_t *data, size_t len, struct record *out)
{
	if (len < RECORD_HEAD_BYTES)
		return 0;
	uint64_t kind = le_get(data + 4, 2), key = le_get(data + 6, 2), value = le_get(data + 8, 4);
	if (kind < RECORD_VALUE || kind > RECORD_DELETED || key == 0 || key > FAR_STORE_KEY_MAX ||
	    value > FAR_STORE_VALUE_MAX)
		return 0;
	size_t bytes = RECORD_HEAD_BYTES + (size_t)key + (size_t)value;
	if (len < bytes || crc32c(0, data + 4, bytes - 4) != le_get(data, 4))
		return 0;
	out->kind = (int)kind;
	out->holder = kind == RECORD_VALUE ? 0 : le_get(data + 12, 8);
	out->key = (struct kv_bytes){data + RECORD_HEAD_BYTES, (size_t)key};
	out->value = (struct kv_bytes){out->key.data + key, (size_t)value};
	return bytes;
}

int records_replay(int fd, struct store_table *t)
{
	uint8_t buf[READ_BYTES], *at = buf;
	struct record r;
	for (;;) {
		ssize_t n = pread(fd, buf, sizeof buf, (off_t)t->at);
		size_t used = 0, bytes;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n < 0)
			continue;
		if (t->at == 0 && (size_t)n >= FILE_HEAD_BYTES) {
			if (memcmp(buf, FILE_MAGIC, sizeof FILE_MAGIC - 1) != 0)
				return -EPROTO;
			used = FILE_HEAD_BYTES;
		}
		if (t->at || used)
			while ((bytes = record_decode(at + used, (size_t)n - used, &r))) {
				int rc = store_table_apply(t, &r);
				if (rc)
					return rc;
				used += bytes;
			}
		t->at += used;
		if (!used)
			return 0;
	}
}
