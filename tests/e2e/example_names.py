#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Names in documents against the headers: each far_… and FAR_… must be declared, each field must be of its struct.
With --index also: every public call of the packages that the table is for has a place in it.
usage: example_names.py [--index] HEADERS DOCUMENT..."""
import pathlib
import re
import sys

INDEX = """is_available init_rpc shutdown rpc_sync rpc_async remote get_worker_info WorkerInfo BackendType backend_registered
register_backend construct_rpc_backend_options init_backend RpcBackendOptions TensorPipeRpcBackendOptions set_device_map
set_devices device_maps num_worker_threads async_execution RRef is_owner owner owner_name confirmed_by_owner to_here
local_value backward _get_type get_rpc_timeout enable_gil_profiling _set_rpc_timeout _wait_all _all_gather _barrier
_wait_all_workers _get_debug_info _rref_context_get_debug_info get_debug_info get_metrics get_worker_infos
_ignore_rref_leak _use_rpc_pickler _server_process_global_profile _delete_all_user_and_unforked_owner_rrefs _serialize
_deserialize _get_future Future done wait value then add_done_callback set_result set_exception collect_all wait_all
context get_gradients DistributedOptimizer RemoteModule get_all_worker_infos get_current_worker_info""".split()


def declared(headers):
    code = re.sub(r"/\*.*?\*/", " ", headers, flags=re.S)
    names = set(re.findall(r"\b(?:far|FAR)_\w+", code))
    # Lists of names: #define FAR_STATUS_LIST(X) X(OK, "ok") …, and enum … { FAR_##name }.
    for prefix, body in re.findall(r"#define FAR_(\w+)_LIST\(X\)((?:.*\\\n)*.*)", code):
        start = "FAR_" if prefix in ("STATUS", "DTYPE") else f"FAR_{prefix}_"
        names |= {start + name for name in re.findall(r"\bX\((\w+)", body)}
    fields = {}
    for name, body in re.findall(r"\bstruct (far_\w+) \{(.*?)\n\};", code, flags=re.S):
        fields[name] = set(re.findall(r"\w+", body))
    return names, fields


def main(arguments):
    index = arguments[:1] == ["--index"]
    arguments = arguments[index:]
    headers = "".join(path.read_text() for path in sorted(pathlib.Path(arguments[0]).glob("*.h")))
    names, fields = declared(headers)
    wrong = []
    for document in arguments[1:]:
        text = pathlib.Path(document).read_text(encoding="utf-8")
        used = set(re.findall(r"\b(?:far|FAR)_[A-Za-z0-9_]+", text))
        if not used:
            wrong.append(f"{document}: names nothing of the library")
        wrong += [f"{document}: {name} is in no header" for name in sorted(used - names)]
        for struct, field in sorted(set(re.findall(r"\b(far_\w+)\.(\w+)", text))):
            if field not in fields.get(struct, {"h"}):
                wrong.append(f"{document}: struct {struct} has no {field}")
        if index:
            wrong += [f"{document}: has no row for {name}" for name in INDEX if not re.search(rf"\b{name}\b", text)]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
