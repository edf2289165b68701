/* SPDX-License-Identifier: BSD-3-Clause */
/* Encodes, checks and decodes frames of the store. Any thread; no state. */
#include "control/store_wire.h"

#include "base/byteorder.h"

#include <errno.h>
#include <string.h>

static bool number_fits(const struct store_msg *msg)
{
	if (msg->op == STORE_WATCH)
		return (msg->number & ~(int64_t)(STORE_WATCH_FROM_NOW | STORE_WATCH_EXACT)) == 0;
	if (msg->op == STORE_HOLD)
		return msg->number == 0 || msg->number == STORE_HOLD_AT_ONCE;
	if (msg->op == STORE_PING && msg->number)
		return msg->number >= (int64_t)FAR_LEASE_NS_MIN && msg->number <= (int64_t)FAR_LEASE_NS_MAX;
	if (msg->op == STORE_COPY || msg->op == STORE_REPORT)
		return msg->number >= 0;
	return msg->number == 0 || msg->op == STORE_ADD;
}

int store_msg_check(const struct store_msg *msg)
{
	if (msg->op < STORE_LOGIN || msg->op >= STORE_OP_COUNT || msg->status >= STORE_STATUS_COUNT)
		return -EINVAL;
	if (msg->key_len > FAR_STORE_KEY_MAX || msg->value_len > FAR_STORE_VALUE_MAX ||
	    msg->expected_len > FAR_STORE_VALUE_MAX)
		return -EMSGSIZE;
	bool greets = msg->op == STORE_LOGIN || msg->op == STORE_PROVE,
	     keyless = greets || msg->op == STORE_PING || msg->op == STORE_REPORT;
	bool copies = msg->op == STORE_COPY;
	if (msg->reply ? msg->key_len != 0 && msg->op != STORE_WATCH && !copies
		       : !copies && (msg->key_len == 0) != keyless)
		return -EINVAL;
	if (msg->expected_len && (msg->reply || msg->op != STORE_CAS))
		return -EINVAL;
	if (!msg->reply && (msg->status != STORE_OK || !number_fits(msg)))
		return -EINVAL;
	if (!msg->reply && msg->value_len && !greets && msg->op != STORE_SET && msg->op != STORE_CAS &&
	    msg->op != STORE_HOLD && !copies && msg->op != STORE_REPORT)
		return -EINVAL;
	return 0;
}

size_t store_msg_encode(const struct store_msg *msg, uint8_t out[STORE_FRAME_MAX])
{
	uint8_t *p = out + STORE_HEAD_BYTES;
	le_put(out, STORE_MAGIC, 4);
	out[4] = STORE_VERSION;
	out[5] = (uint8_t)(msg->op | (msg->reply ? 0x80 : 0));
	out[6] = (uint8_t)msg->status;
	out[7] = 0;
	le_put(out + 8, msg->id, 8);
	le_put(out + 16, msg->reply ? 0 : msg->timeout_ns, 8);
	le_put(out + 24, (uint64_t)msg->number, 8);
	le_put(out + 32, msg->key_len, 2);
	le_put(out + 34, msg->value_len, 2);
	le_put(out + 36, msg->expected_len, 2);
	le_put(out + 38, 0, 2);
	if (msg->key_len)
		memcpy(p, msg->key, msg->key_len);
	p += msg->key_len;
	if (msg->value_len)
		memcpy(p, msg->value, msg->value_len);
	p += msg->value_len;
	if (msg->expected_len)
		memcpy(p, msg->expected, msg->expected_len);
	return (size_t)(p - out) + msg->expected_len;
}

long store_msg_decode(const uint8_t *data, size_t len, struct store_msg *out)
{
	struct store_msg m = {0};
	/* Magic and version are checked as soon as they arrive: another program must not hold a connection with an
	 * incomplete head. */
	if (len >= 4 && le_get(data, 4) != STORE_MAGIC)
		return -EPROTO;
	if (len >= 5 && data[4] != STORE_VERSION)
		return -EPROTONOSUPPORT;
	if (len < STORE_HEAD_BYTES)
		return 0;
	m.op = (enum store_op)(data[5] & 0x7f);
	m.reply = data[5] & 0x80;
	m.status = (enum store_status)data[6];
	m.id = le_get(data + 8, 8);
	m.timeout_ns = le_get(data + 16, 8);
	m.number = (int64_t)le_get(data + 24, 8);
	m.key_len = (size_t)le_get(data + 32, 2);
	m.value_len = (size_t)le_get(data + 34, 2);
	m.expected_len = (size_t)le_get(data + 36, 2);
	if (data[7] || data[38] || data[39] || (m.reply && m.timeout_ns))
		return -EPROTO;
	int rc = store_msg_check(&m);
	if (rc)
		return rc == -EINVAL ? -EPROTO : rc;
	size_t total = STORE_HEAD_BYTES + m.key_len + m.value_len + m.expected_len;
	if (len < total)
		return 0;
	m.key = data + STORE_HEAD_BYTES;
	m.value = m.key + m.key_len;
	m.expected = m.value + m.value_len;
	*out = m;
	return (long)total;
}
