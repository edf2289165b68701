/* SPDX-License-Identifier: BSD-3-Clause */
/** All types of the public interface in one signature, for abidiff. Not run. */
#ifdef CHANGED /* a frozen struct with a wider field */
#include <stdint.h>
#define far_to far_to_of_the_header
#include <farcall/agent.h>
#undef far_to
struct far_to {
	int64_t worker;
	int32_t shard;
};
#endif
#include <farcall/farcall.h>

__attribute__((visibility("default"))) int
far_abi_types(struct far_val *val, struct far_tensor *tensor, struct far_dict_entry *entry, struct far_to *to,
	      struct far_part *part, struct far_recv_buf *recv_buf, struct far_err *err, struct far_scope *scope,
	      struct far_function *function, struct far_msg_handler *handler, struct far_method *method,
	      struct far_msg_placement *placement, struct far_debug_pair *pair, struct far_call_opts *call_opts,
	      struct far_fanout_opts *fanout_opts, struct far_target *target, struct far_target_result *result,
	      struct far_class *cls, struct far_custom_type *type, struct far_fault *fault,
	      struct far_allocator *allocator, struct far_opts *opts, struct far_worker_info *info,
	      struct far_counters *counters, struct far_nic_stats *stats, struct far_limits *limits,
	      struct far_memory *memory, struct far_rref_counts *rrefs, struct far_fault_counts *faults,
	      far_msg_done_fn *done, far_msg_release_fn *release, far_then_fn *then, far_done_fn *on_done,
	      far_log_fn *log);

int far_abi_types(struct far_val *val, struct far_tensor *tensor, struct far_dict_entry *entry, struct far_to *to,
		  struct far_part *part, struct far_recv_buf *recv_buf, struct far_err *err, struct far_scope *scope,
		  struct far_function *function, struct far_msg_handler *handler, struct far_method *method,
		  struct far_msg_placement *placement, struct far_debug_pair *pair, struct far_call_opts *call_opts,
		  struct far_fanout_opts *fanout_opts, struct far_target *target, struct far_target_result *result,
		  struct far_class *cls, struct far_custom_type *type, struct far_fault *fault,
		  struct far_allocator *allocator, struct far_opts *opts, struct far_worker_info *info,
		  struct far_counters *counters, struct far_nic_stats *stats, struct far_limits *limits,
		  struct far_memory *memory, struct far_rref_counts *rrefs, struct far_fault_counts *faults,
		  far_msg_done_fn *done, far_msg_release_fn *release, far_then_fn *then, far_done_fn *on_done,
		  far_log_fn *log)
{
	return val && tensor && entry && to && part && recv_buf && err && scope && function && handler && method &&
	       placement && pair && call_opts && fanout_opts && target && result && cls && type && fault && allocator &&
	       opts && info && counters && stats && limits && memory && rrefs && faults && done && release && then &&
	       on_done && log;
}
