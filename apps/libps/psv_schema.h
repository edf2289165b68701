/* SPDX-License-Identifier: BSD-3-Clause */
/** Schemas: of the interface, of messages, of the tables of a shard. Any thread. */
#ifndef PSV_SCHEMA_H
#define PSV_SCHEMA_H

#include "pst_table.h"
#include "psv_wire.h"

/** Checks a schema of the caller. INVALID or UNSUPPORTED, with the field. */
enum far_status psv_schema_check(const struct far_ps_schema *schema, struct far_err *err);
void psv_schema_encode(const struct far_ps_schema *schema, struct psv_schema *to);
/** Checks what a peer sent. */
enum far_status psv_schema_decode(const struct psv_schema *from, struct far_ps_schema *schema, struct far_err *err);

/** INVALID: names the first field in which the schema of a table differs from the one that is wanted. Both are valid.
 */
enum far_status psv_schema_differs(const char *table, const struct psv_schema *has, const struct psv_schema *wants,
				   struct far_err *err);

/** The table of one of `slots` shards. */
struct pst_schema psv_schema_table(const struct far_ps_schema *schema, uint32_t slots);

/** Floats of optimizer state of a row. */
unsigned psv_schema_state(const struct far_ps_schema *schema);

/** Bytes of a row, its state and its age in blocks. */
struct psv_rows psv_schema_rows(const struct far_ps_schema *schema);

/** Type of numbers in messages. False: another dtype. FAR_DTYPE_NONE is f32. */
bool psv_type(enum far_dtype dtype, enum pst_type *type);

#endif
