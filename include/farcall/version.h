/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Version of the headers and of the loaded library, and how the interface grows.
 * Any thread, unless a function names another one.
 *
 * A program that was built with these headers runs with every later library of the same major version. A library that
 * is older than the headers refuses the program in far_init_rpc(): UNSUPPORTED, with both versions. Before 1.0 the
 * minor version takes the part of the major one.
 *
 * Structs are of three kinds:
 * - Frozen, with a fixed size: struct far_val, far_dict_entry, far_tensor, far_to, far_part, far_recv_buf, far_err,
 *   far_scope, far_function, far_msg_handler, far_method, far_msg_placement, far_debug_pair.
 * - With `reserved` words, which later fields take: struct far_call_opts, far_fanout_opts, far_target,
 *   far_target_result, far_class, far_custom_type, far_fault, far_allocator, far_zero_copy_call, far_interceptor,
 *   far_plugin, far_profile_opts, far_span, far_store_opts. They are 0, as in a zeroed struct.
 * - Growing at the end: struct far_opts and the results that a function fills. The functions that take them are inline.
 *   They pass the size of the struct to a function of the library, whose name ends in `_sized`; bindings of other
 *   languages call that one with the size of their own struct. Fields that the library does not know are 0.
 *
 * A zeroed field always means its default, so programs zero a struct or name the fields that they set.
 */
#ifndef FARCALL_VERSION_H
#define FARCALL_VERSION_H

#define FAR_VERSION_MAJOR 0
#define FAR_VERSION_MINOR 1
#define FAR_VERSION_PATCH 0
#define FAR_VERSION       "0.1.0"
/** The version as a number that grows with it. */
#define FAR_VERSION_NUMBER (FAR_VERSION_MAJOR * 1000000 + FAR_VERSION_MINOR * 1000 + FAR_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
/** Version of the loaded library; FAR_VERSION is that of the headers. Any thread; static text. */
const char *far_version(void);
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
