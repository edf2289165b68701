/* SPDX-License-Identifier: BSD-3-Clause */
/** Learns and compares forms of the arguments of small calls, which need no general encoding then (line.h). The thread
 * that owns the form. */
#include "value/line.h"

/* Adds a tensor to the form: its descriptor, and where its elements lie. false: it is not of VALUES_LINE. */
static bool add(struct line_form *form, size_t i, uint32_t dtype, uint32_t kind, uint64_t count, size_t *pos)
{
	size_t element = wire_dtype_bytes[dtype & 15];
	if (kind != (dtype | 0x100) || dtype >= FAR_DTYPE_COUNT || element == 0 || count - 1 >= 127)
		return false;
	size_t at = wire_align(*pos, element), bytes = element * count;
	if (at + bytes > FAR_LINE_PAYLOAD)
		return false;
	uint32_t head = WIRE_TENSOR | (dtype << 4 | 1u) << 8 | (uint32_t)count << 24;
	memcpy((uint8_t *)form->desc + 1 + 4 * i, &head, sizeof head);
	form->arg[i] = (struct line_arg){kind, (uint8_t)at, (uint8_t)bytes, count};
	*pos = at + bytes;
	return true;
}

static void begin(struct line_form *form, size_t n)
{
	memset(form, 0, sizeof *form);
	line_forget(form);
	*(uint8_t *)form->desc = (uint8_t)n;
	memset(form->mask, 0xff, 1 + 4 * n);
}

void line_learn(struct line_form *form, const struct far_val *v, size_t n)
{
	line_forget(form);
	if (n - 1 >= LINE_ARGS_MAX)
		return;
	size_t pos = 1 + 4 * n;
	begin(form, n);
	for (size_t i = 0; i < n; i++) {
		const struct far_tensor *t = v[i].type == FAR_TYPE_TENSOR && !v[i].kw ? far_val_tensor(&v[i]) : NULL;
		if (!t || t->strides || !t->data || !add(form, i, t->dtype, line_kind(t), t->shape[0], &pos))
			return;
	}
	form->n = (uint8_t)n;
	form->len = (uint8_t)pos;
}

void line_learn_payload(struct line_form *form, const uint64_t desc[2], size_t len, struct far_val *v)
{
	const uint8_t *d = (const uint8_t *)desc;
	size_t n = d[0], pos = 1 + 4 * n;
	line_forget(form);
	if (n - 1 >= LINE_ARGS_MAX)
		return;
	begin(form, n);
	for (size_t i = 0; i < n; i++) {
		uint32_t head;
		memcpy(&head, d + 1 + 4 * i, sizeof head);
		uint32_t dtype = head >> 12 & 15, kind = dtype | (head >> 8 & 15) << 8 | (head & 0xff0000);
		if ((head & 0xff) != WIRE_TENSOR || !add(form, i, dtype, kind, head >> 24, &pos))
			return;
		v[i].type = FAR_TYPE_TENSOR;
		v[i].by_ref = false;
		v[i].kw = NULL;
		v[i].own = NULL;
		v[i].u.t.strides = NULL;
		v[i].u.t.dtype = (uint8_t)dtype;
		v[i].u.t.ndim = 1;
		v[i].u.t.domain = 0;
		v[i].u.t.shape[0] = head >> 24;
	}
	if (pos != len)
		return;
	form->n = (uint8_t)n;
	form->len = (uint8_t)pos;
}
