#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Functions of engine/, nic/, apps/ and perf/ have at most seven parameters; more become a struct.

usage: parameters.py SOURCE-DIRECTORY

Checks itself first: it reports planted functions, and nothing of what looks like one.
"""
import pathlib
import re
import sys

MOST = 7
FOLDERS = ("engine", "nic", "apps", "perf")

# Public functions: each call site names everything that it passes, and what may be left out is in the struct of options.
PUBLIC = """
far_init_rpc_sized
far_rpc_sync far_rpc_async far_rpc_sync_to far_rpc_async_to far_rpc_fanout far_remote far_remote_to
far_rpc_sync_unchecked far_rpc_async_unchecked far_remote_unchecked far_remote_module_new
far_msg_send far_msg_send_parts far_msg_call far_msg_call_parts far_msg_oneway_parts far_msg_fanout
far_store_compare_set
far_ps_pull far_ps_pull_bags far_ps_push far_ps_push_pull far_ps_assign far_ps_call far_ps_pull_values far_ps_assign_values
far_op_lstm_cell far_op_lstm_cell_backward far_op_gru_cell_backward far_op_conv2d_backward far_op_linear_backward
far_op_sparse_sum far_op_slice far_op_slice_backward far_module_conv2d
""".split()

# Others: file, function, why.
EXCEPTIONS = """
engine/features/metrics/http.c on_request: the type of the callback is libmicrohttpd's
apps/libps/pst_kernels.c apply_block: inlined into loops over rows: pointers stay in registers
apps/libps/pst_read.c pst_pull: as far_ps_pull(), which it serves: keys, options, and an array for each result
apps/libps/pst_read.c pst_pull_bags: likewise
apps/libps/pst_scan.c pst_scan: likewise
apps/libps/pst_write.c pst_assign: likewise
apps/libps/pst_write.c pst_restore: likewise
apps/libps/pst_write.c pst_value_put: likewise
apps/libps/pst_write.c pst_value_restore: likewise
apps/libps/pst_write.c pst_value_get: likewise
apps/libtrain/layers.c recurrent_make: the parameters of far_module_lstm(), and what differs for a GRU
apps/libops/cells.c output: operands of a public operator, with their names for error texts
apps/libops/cells.c forward_plan: likewise
apps/libops/cells.c check_gradients: likewise
apps/libops/cells.c project_back: likewise
apps/libops/conv.c backward_plan: likewise
apps/libops/elementwise.c two_backward: likewise
apps/libops/reduce.c sum: likewise
apps/libops/reduce.c sum_backward: likewise
apps/libops/reduce.c best: likewise
apps/libops/reduce.c best_backward: likewise
apps/libops/softmax.c pairs: likewise
apps/libops/softmax.c pairs_check: likewise
apps/libops/space.c summands: likewise
apps/libops/tensor.c check_output: likewise
"""

SKIPPED = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
# A name, parameters with at most two further levels of parentheses, attributes, and the body.
DEFINITION = re.compile(
    r"\b(\w+)\s*\(((?:[^(){};]|\((?:[^(){};]|\([^(){};]*\))*\))*)\)\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?\{")


def definitions(text):
    """Yields name, number of parameters and line of each function that C source defines."""
    text = SKIPPED.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    depth = position = 0
    for m in DEFINITION.finditer(text):
        before = text[position:m.start()]
        depth += before.count("{") - before.count("}")
        position = m.start()
        if depth == 0:
            parameters, level = 1, 0
            for c in m.group(2):
                level += (c == "(") - (c == ")")
                parameters += c == "," and level == 0
            yield m.group(1), parameters, text.count("\n", 0, m.start()) + 1


def reports(path, text):
    for name, parameters, line in definitions(text):
        if parameters > MOST:
            yield path, name, f"{path}:{line}: {name}() has {parameters} parameters; make a struct of them"


def check_itself():
    planted = """
/* int comment(int a, int b, int c, int d, int e, int f, int g, int h) { */
#define MACRO(a, b, c, d, e, f, g, h) { a }
static const char text[] = "f(a, b, c, d, e, f, g, h) {";
int declared(int a, int b, int c, int d, int e, int f, int g, int h);
int seven(int a, int b, int c, int d, int e, int f, int (*g)(int, int)) { if (call(1, 2, 3, 4, 5, 6, 7, 8)) { } }
static int eight(int a, int b, int c, int d,
                 int e, int f, int g, void (*h)(int (*)(int, int), int)) __attribute__((cold))
{
}
struct s *nine(int a, int b, int c, int d, int e, int f, int g, int h, char *i)
{
}
"""
    found = [(name, int(text.split(":")[1])) for _, name, text in reports("planted.c", planted)]
    if found != [("eight", 7), ("nine", 11)]:
        sys.exit(f"parameters.py: of planted functions it reports {found}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    check_itself()
    top = pathlib.Path(sys.argv[1])
    headers = "".join(p.read_text() for p in sorted((top / "include").rglob("*.h")))
    exceptions = {tuple(line.split(":")[0].split()) for line in EXCEPTIONS.strip().splitlines()}
    unused = exceptions | {("include", name) for name in PUBLIC}
    failed, functions = [], 0
    for name in PUBLIC:
        if not re.search(rf"\b{name}\(", headers):
            failed.append(f"{name}() is no public function")
    for folder in FOLDERS:
        for path in sorted((top / folder).rglob("*.[ch]")):
            text = path.read_text()
            functions += sum(1 for _ in definitions(text))
            for where, name, report in reports(str(path.relative_to(top)), text):
                key = ("include", name) if name in PUBLIC else (where, name)
                if key in unused or key in exceptions:
                    unused.discard(key)
                else:
                    failed.append(report)
    failed += [f"nothing needs the exception: {' '.join(key)}" for key in sorted(unused)]
    if functions < 1000:
        failed.append(f"found only {functions} functions")
    for line in failed:
        print(f"parameters.py: {line}", file=sys.stderr)
    if failed:
        sys.exit(1)
    print(f"parameters.py: {functions} functions, all with at most {MOST} parameters but {len(PUBLIC)} public ones "
          f"and {len(exceptions)} exceptions")


main()
