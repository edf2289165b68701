/* SPDX-License-Identifier: BSD-3-Clause */
/** Error texts. Any thread. */
#ifndef FAR_LIBTRAIN_FAIL_H
#define FAR_LIBTRAIN_FAIL_H

#include <farcall/value.h>

/* Returns from the function if a call fails. */
#define TRY(call)                                                                                                      \
	do {                                                                                                           \
		enum far_status try_status = (call);                                                                   \
		if (try_status != FAR_OK)                                                                              \
			return try_status;                                                                             \
	} while (0)

/** Fills `err` and returns `status`. */
__attribute__((format(printf, 3, 4))) enum far_status fail(struct far_err *err, enum far_status status,
							   const char *format, ...);
/** RESOURCE: `what` needs `bytes`. */
enum far_status fail_memory(struct far_err *err, const char *what, size_t bytes);

/** Empties `err` for a function of the application, and completes it afterwards: `name` if the function gave no text.
 */
void fail_clear(struct far_err *err);
enum far_status fail_named(struct far_err *err, enum far_status status, const char *name);

/* Bytes of the text of a tensor, "f32[2,3]", with its NUL: dimensions of up to 20 digits. */
#define TENSOR_TEXT (FAR_DIMS_MAX * 21 + 8)
/** Writes dtype and shape of a valid tensor. Returns `text`. */
const char *tensor_text(const struct far_tensor *t, char text[TENSOR_TEXT]);

#endif
