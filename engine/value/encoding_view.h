/* SPDX-License-Identifier: BSD-3-Clause */
/** Strided views of tensors, as far as the message that they are gathered into needs them. Anyone. */
#ifndef FAR_VALUE_ENCODING_VIEW_H
#define FAR_VALUE_ENCODING_VIEW_H

#include <farcall/value.h>

/** Writes the elements of a view, which is valid and has at least one, densely to dst. */
void view_gather(const struct far_tensor *t, size_t element, void *dst);

#endif
