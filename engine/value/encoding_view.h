/* SPDX-License-Identifier: BSD-3-Clause */
/** Gathers strided views of tensors into messages. Any thread. */
#ifndef FAR_VALUE_ENCODING_VIEW_H
#define FAR_VALUE_ENCODING_VIEW_H

#include <farcall/value.h>

/** Writes the elements of a valid view with at least one element densely to `dst`. `element`: bytes of one. */
void view_gather(const struct far_tensor *t, size_t element, void *dst);

#endif
