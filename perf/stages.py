# SPDX-License-Identifier: BSD-3-Clause
"""Assigns the instructions and cache lines of a call to the stages that perf/stages lists. For instructions.sh.

usage: stages.py counts BUILD PROFILE CALLS      per stage, of a callgrind profile of perf/step
       stages.py functions BUILD PROFILE CALLS   per function
       stages.py counters PROFILE OTHER CALLS    per side, those that OTHER, of perf/step-without-counters, lacks
       stages.py ticks BUILD (PROFILE CALLS SAMPLES)...   per stage, with ticks by samples of perf/step
       stages.py address BUILD FUNCTION          where the function of perf/step begins
       stages.py tables BUILD EXPECTED COMPILER MESSAGE RPC   the tables of engine/README.md, from two traces
       stages.py readme --write|--check README TABLES         puts the tables there, or compares them

BUILD is a build directory whose perf/step was linked with a map. A function is a symbol of perf/step: what the
compiler has inlined belongs to the function that contains it. Instructions of other libraries belong to the function
that called them.
"""
import bisect
import collections
import fnmatch
import glob
import os
import re
import statistics
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STAGES = os.path.join(TOP, 'perf', 'stages')
LINE_BYTES = 64
STACK_BYTES = 64 << 10  # around the first store of the calls, which is to the stack
CLONE = re.compile(r'\.(constprop|part|isra|cold|lto_priv)(\.\d+)*')
BEGIN, END = '<!-- begin: %s -->', '<!-- end: %s -->'
PERCENT, SLACK = 3, 8  # a table's count may differ by the larger one of the two before it is out of date


def fail(text):
    sys.exit('stages.py: ' + text)


def sources():
    """Path of each source file by the name that meson gives its object: core_call.c for engine/core/call.c."""
    names = {}
    for root in ('engine', 'nic', 'perf', 'apps'):
        for folder, _, files in os.walk(os.path.join(TOP, root)):
            for file in files:
                if file.endswith('.c'):
                    path = os.path.relpath(os.path.join(folder, file), TOP)
                    inside = os.path.relpath(path, root)
                    names[inside.replace('/', '_')] = path
                    names[path.replace('/', '_')] = path
                    if root == 'apps': # its objects are named without a folder
                        names[file] = path
    return names


class Program:
    """Functions of perf/step by address, each with its source file and its stage."""

    def __init__(self, build):
        exe = os.path.join(build, 'perf', 'step')
        self.objects = []  # (begin, end, path) of the sections of each object
        names = sources()
        with open(exe + '.map', encoding='utf-8') as f:
            text = f.read()
        for at, size, path in re.findall(r'^ \.text\S*\s+0x([0-9a-f]+)\s+0x([0-9a-f]+) (\S+\.o)\)?$', text, re.M):
            # An archive's member is in brackets behind it, a thin archive's is a path.
            name = re.sub(r'^(\.\._)+', '', re.split(r'[/(]', path)[-1][:-2])
            if int(size, 16):
                self.objects.append((int(at, 16), int(at, 16) + int(size, 16), names.get(name, path)))
        self.objects.sort()
        self.at, self.functions = [], []
        for line in subprocess.check_output(['nm', '-n', exe], text=True).splitlines():
            at, kind, name = line.split(None, 2) if line[0] != ' ' else (None, '', '')
            if kind in ('t', 'T', 'W', 'i') and at:
                self.at.append(int(at, 16))
                self.functions.append((CLONE.sub('', name), self.path(int(at, 16))))
        self.symbol = {f[0]: at for at, f in reversed(list(zip(self.at, self.functions)))}
        self.end = max(end for _, end, _ in self.objects)
        self.rules = self.read_rules()
        self.known = {}

    def path(self, at):
        i = bisect.bisect_right(self.objects, (at, 1 << 64, '')) - 1
        return self.objects[i][2] if i >= 0 and at < self.objects[i][1] else None

    def function(self, at):
        """(name, path) of an address, or None outside of the program's own code."""
        if not self.at[0] <= at < self.end:
            return None
        f = self.functions[bisect.bisect_right(self.at, at) - 1]
        return f if f[1] and not f[1].endswith('.o') else None  # not what the compiler adds

    @staticmethod
    def read_rules():
        rules = []
        with open(STAGES, encoding='utf-8') as f:
            for line in f:
                line = line.split('#')[0]
                if line.strip():
                    stage, patterns = line.split(':', 1)
                    rules += [(p, stage.strip()) for p in patterns.split()]
        for pattern, _ in rules:
            if '/' in pattern and not glob.glob(os.path.join(TOP, pattern)):
                fail('perf/stages: %s does not exist' % pattern)
        return rules

    def stage(self, function):
        """Stage of (name, path). By its name first, then by its file; None: perf/stages has no entry for it."""
        if function not in self.known:
            name, path = function
            self.known[function] = next(
                (s for by_file in (False, True) for p, s in self.rules
                 if (('/' in p) == by_file) and fnmatch.fnmatchcase(path if by_file else name, p)), None)
        return self.known[function]

    def names(self):
        """Stages in the order of perf/stages."""
        return list(dict.fromkeys(s for _, s in self.rules))


def profile(program, file):
    """Instructions by function of a callgrind profile with the addresses of instructions."""
    counts = collections.Counter()
    inside = inner = call = False
    with open(file, encoding='utf-8') as f:
        for line in f:
            if line.startswith('ob='):
                inside = line.rstrip().endswith('/perf/step')
            elif line.startswith('fn='):
                inner = False
            elif line.startswith('cob='):
                inner = not line.rstrip().endswith('/perf/step')
            elif line.startswith('calls='):
                call = True
            elif line.startswith('0x'):
                at, _, n = line.split()
                function = program.function(int(at, 16)) if inside else None
                # The cost of a call belongs to the callee, unless the callee is of another library.
                if function and (not call or inner):
                    counts[function] += int(n)
                if call:
                    call = inner = False
    if not counts:
        fail('%s has no instructions of perf/step' % file)
    return counts


def sides(file, calls):
    """Instructions of a call at the caller and at the callee, by a callgrind profile of perf/step."""
    total = callee = 0
    serve = inclusive = False
    with open(file, encoding='utf-8') as f:
        for line in f:
            if line.startswith('cfn='):
                serve = line.rstrip() == 'cfn=serve'
            elif line.startswith('calls='):
                inclusive = True
            elif line.startswith('totals:'):
                total = int(line.split()[1])
            elif line.startswith('0x'):
                callee += int(line.split()[2]) if inclusive and serve else 0
                inclusive = False
    if not 0 < callee < total:
        fail('%s has no serve()' % file)
    return {'caller': (total - callee) / calls, 'callee': callee / calls}


def print_counts(program, file, calls):
    functions, stages = profile(program, file), collections.Counter()
    if not all(program.stage(f) for f in functions):
        fail_unassigned([f for f in functions if not program.stage(f)])
    for function, n in functions.items():
        stages[program.stage(function)] += n
    for stage in program.names():
        if round(stages[stage] / calls):
            print(stage, round(stages[stage] / calls))


def fail_unassigned(functions):
    fail('no stage for %s: give each a stage in perf/stages' %
         ', '.join('%s() of %s' % f for f in sorted(set(functions))))


def ticks(program, file):
    """Ticks of a call by stage, of the output of `step ROUNDS API samples`, the sum, and their unit."""
    found, total, unit = collections.Counter(), 0, ''
    with open(file, encoding='utf-8') as f:
        for line in f:
            word = line.split()
            if word[:1] == ['pc']:
                function = program.function(int(word[1], 16))
                # Not the callers': who called a library's function is not in a sample.
                found[program.stage(function) or 'unassigned' if function else 'libraries'] += int(word[2])
            elif word[:1] == ['ticks']:
                total, unit = float(word[1]), word[2]
    if not found:
        fail('%s has no samples' % file)
    return {s: n * total / sum(found.values()) for s, n in found.items()}, total, unit


def print_ticks(build, *files):
    """A table of stages: the instructions of a callgrind profile, and ticks, of one API after the other."""
    program = Program(build)
    columns, unit = [], ''
    for profile_file, calls, samples in zip(files[::3], files[1::3], files[2::3]):
        counts = collections.Counter()
        for function, n in profile(program, profile_file).items():
            counts[program.stage(function) or 'unassigned'] += n / int(calls)
        spent, total, unit = ticks(program, samples)
        columns.append((counts, spent, total))
    print('%-30s' % 'stage', ' '.join('instructions %8s' % unit for _ in columns))
    for stage in program.names() + ['libraries', 'unassigned', 'sum']:
        row = [(sum(c.values()), total) if stage == 'sum' else (c[stage], t.get(stage, 0)) for c, t, total in columns]
        if any(round(n) or round(t) for n, t in row):
            print('%-30s' % stage, ' '.join('%12.0f %8.0f' % cell for cell in row))


class Use:
    """What one function, or one stage, does during a call."""

    def __init__(self):
        self.instructions = 0
        self.read, self.written, self.bounced = set(), set(), set()


def shared_line(maps, at):
    """The line of an address: that of the file, for memory which both sides have mapped."""
    for begin, end, inode, offset in maps:
        if begin <= at < end:
            return inode, (at - begin + offset) // LINE_BYTES
    return at // LINE_BYTES


def shared_maps(file):
    """(begin, end, inode, offset) of the shared mappings that perf/step has printed."""
    with open(file, encoding='ascii', errors='replace') as f:
        fields = [line.split() for line in f if line.startswith('map ')]
    return [(int(m[1].split('-')[0], 16), int(m[1].split('-')[1], 16), m[5], int(m[3], 16)) for m in fields]


def calls_of(program, file, marker):
    """The calls of a trace. Each is a list of [side, function, instructions, [(line, kind)]], one for each stretch of
    instructions of one function. Both sides run in one thread, so lines of its stack are left out."""
    maps = shared_maps(file)
    alone, serve = program.symbol[marker], program.symbol['serve']
    calls, stretch, side, function, stack = [], None, 'caller', None, None
    with open(file, encoding='ascii', errors='replace') as f:
        for line in f:
            kind = line[1:2]
            if line[:1] not in ' I' or kind not in ' SLM' or ',' not in line:
                continue
            at, size = line[2:].strip().split(',')
            at = int(at, 16)
            if line[0] == 'I':
                here = program.function(at)
                if at == alone:
                    calls.append([])
                elif at == serve:
                    side, stretch = 'callee', None
                elif here and here[0] == 'pass_round' and side == 'callee':
                    side, stretch = 'caller', None
                if here and here[0] == 'measured' and calls:
                    side, stretch = 'caller', None
                here = here or function
                if here and calls and (here != function or not stretch):
                    stretch = [side, here, 0, []]
                    calls[-1].append(stretch)
                function = here
                if stretch:
                    stretch[2] += 1
            elif stretch:
                if stack is None and kind == 'S':
                    stack = range(at - STACK_BYTES, at + STACK_BYTES)
                if stack and at in stack:
                    continue
                for byte in {at, at + int(size) - 1}:
                    stretch[3].append((shared_line(maps, byte), kind))
    if not calls:
        fail('%s: no calls in the trace' % file)
    return calls


def bounced(call):
    """Lines of shared memory that one side writes and the other one reads or writes."""
    used, written = {'caller': set(), 'callee': set()}, {'caller': set(), 'callee': set()}
    for side, _, _, lines in call:
        for n, kind in (x for x in lines if isinstance(x[0], tuple)):
            used[side].add(n)
            if kind != 'L':
                written[side].add(n)
    return (written['caller'] & used['callee']) | (written['callee'] & used['caller'])


def uses(call, key_of):
    """Use by key, in the order of first execution."""
    result = {}
    moved = bounced(call)
    for side, function, n, lines in call:
        key = key_of(side, function)
        if key is None:
            continue
        u = result.setdefault(key, Use())
        u.instructions += n
        for line, kind in lines:
            if kind != 'S':
                u.read.add(line)
            if kind != 'L':
                u.written.add(line)
            if line in moved:
                u.bounced.add(line)
    return result


def medians(calls, key_of):
    """[key, instructions, lines read, written, bounced, touched], medians of the calls. Keys of fewer than half of the
    calls are left out: what happens every few passes, and what other threads do, is no part of a call."""
    all_uses = [uses(c, key_of()) for c in calls]
    seen = collections.Counter(k for u in all_uses for k in u)
    order = []
    for u in all_uses:
        order += [k for k in u if k not in order and 2 * seen[k] > len(calls)]
    rows = []
    for key in order:
        of = [u[key] for u in all_uses if key in u]
        rows.append([key] + [int(statistics.median_low(v)) for v in (
            [u.instructions for u in of], [len(u.read) for u in of], [len(u.written) for u in of],
            [len(u.bounced) for u in of], [len(u.read | u.written) for u in of])])
    return rows


def budget(program, expected, compiler, message, rpc):
    """Stage by stage: instructions in bursts of 16, and of a call alone with its lines; then side by side."""
    burst = {}
    with open(expected, encoding='utf-8') as f:
        for line in f:
            if line.startswith(compiler + ' '):
                _, _, api, stage, n = line.split()
                burst[api, stage] = n

    def key_of():
        return lambda _, f: program.stage(f) or f

    tables = [{r[0]: r[1:5] for r in medians(calls, key_of)} for calls in (message, rpc)]
    unassigned = [k for t in tables for k in t if not isinstance(k, str)]
    if unassigned:
        fail_unassigned(unassigned)
    yield '| stage |%s' % ''.join(' %s: bursts | alone | read | written | bounced |' % w for w in ('message', 'typed'))
    yield '|---|' + '---|' * 10
    sums = [0] * 4
    for stage in program.names():
        cells = []
        for i, api in enumerate(('message', 'rpc')):
            row = tables[i].get(stage)
            n = burst.get((api, stage), '–')
            cells += [n] + [str(c) for c in (row or ['–'] * 4)]
            sums[2 * i] += int(n) if n != '–' else 0
            sums[2 * i + 1] += row[0] if row else 0
        if any(c != '–' for c in cells):
            yield '| %s | %s |' % (stage, ' | '.join(cells))
    yield '| sum | %d | %d | | | | %d | %d | | | |' % tuple(sums)
    sides = [{r[0]: r[1:5] for r in medians(calls, lambda: lambda side, _: side)} for calls in (message, rpc)]
    for side in ('caller', 'callee'):
        yield '| %s | %s |' % (side, ' | '.join('– | ' + ' | '.join(str(c) for c in t[side]) for t in sides))


def path(program, calls):
    """Function by function in the order of first execution, per side and phase."""
    def key_of():
        at = [0, 'caller']

        def key(side, function):
            if side != at[1]:
                at[:] = (at[0] + 1) % 3, side
            return None if function[1].startswith('perf/') else (at[0], function)
        return key

    titles = ('caller: request', 'callee', 'caller: completion and result')
    yield '| step | function | file | instructions | lines |'
    yield '|---|---|---|---|---|'
    for (n, (name, file)), instructions, _, _, _, touched in sorted(medians(calls, key_of), key=lambda r: r[0][0]):
        file = file.replace('engine/', '', 1)
        yield '| %s | `%s` | `%s` | %d | %d |' % (titles[n], name, file, instructions, touched)


def print_tables(program, expected, compiler, message, rpc):
    traced = [calls_of(program, message, 'message_alone'), calls_of(program, rpc, 'rpc_alone')]
    print(BEGIN % 'budget')
    print('Compiler %s.\n' % compiler)
    print('\n'.join(budget(program, expected, compiler, *traced)))
    print(END % 'budget')
    print(BEGIN % 'path')
    print('Compiler %s.\n' % compiler)
    print('\n'.join(path(program, traced[1])))
    print(END % 'path')


def section(text, name, where):
    m = re.search(re.escape(BEGIN % name) + r'\n(.*?)' + re.escape(END % name), text, re.S)
    if not m:
        fail('%s has no lines "%s" and "%s"' % (where, BEGIN % name, END % name))
    return m


def differs(old, new):
    """Why two rows are not the same, counts within the tolerance; None: they are."""
    a, b = old.split('|'), new.split('|')
    if len(a) != len(b):
        return True
    for x, y in zip(a, b):
        x, y = x.strip(), y.strip()
        if x.isdigit() and y.isdigit():
            if abs(int(x) - int(y)) > max(SLACK, int(x) * PERCENT / 100):
                return True
        elif x != y and not {x, y} & {'–'}:
            return True
        elif x != y and max(int(v) for v in (x, y) if v.isdigit()) > SLACK:
            return True
    return False


def readme(mode, file, tables):
    with open(file, encoding='utf-8') as f:
        text = f.read()
    with open(tables, encoding='utf-8') as f:
        new = f.read()
    wrong = []
    for name in ('budget', 'path'):
        old, fresh = section(text, name, file), section(new, name, tables)
        if mode == '--write':
            text = text[:old.start()] + fresh.group(0) + text[old.end():]
            continue
        a, b = ([r for r in m.group(1).splitlines() if r.startswith('|')] for m in (old, fresh))
        key = [tuple(c.strip() for c in r.split('|')[1:(2 if name == 'budget' else 4)]) for r in a]
        key_b = [tuple(c.strip() for c in r.split('|')[1:(2 if name == 'budget' else 4)]) for r in b]
        wrong += ['%s: not in the table: %s' % (name, r) for k, r in zip(key_b, b) if k not in key]
        wrong += ['%s: not on the path: %s' % (name, r) for k, r in zip(key, a) if k not in key_b]
        by = dict(zip(key_b, b))
        wrong += ['%s: in the table: %s\n%s  measured: %s' % (name, r, ' ' * len(name), by[k])
                  for k, r in zip(key, a) if k in by and differs(r, by[k])]
        if [k for k in key if k in by] != [k for k in key_b if k in key] and not wrong:
            wrong.append('%s: the order of the rows' % name)
    if mode == '--write':
        with open(file, 'w', encoding='utf-8') as f:
            f.write(text)
    elif wrong:
        fail('%s differs from what was measured; instructions.sh --update writes it anew:\n%s' %
             (file, '\n'.join(wrong)))


def main():
    a = sys.argv[1:]
    if a == ['--help']:
        print(__doc__)
    elif len(a) == 4 and a[0] == 'counts':
        print_counts(Program(a[1]), a[2], int(a[3]))
    elif len(a) == 4 and a[0] == 'functions':
        program = Program(a[1])
        for f, n in profile(program, a[2]).most_common():
            print('%-14s %7.1f %s %s' % (program.stage(f) or '?', n / int(a[3]), *f))
    elif len(a) == 4 and a[0] == 'counters':
        whole, without = sides(a[1], int(a[3])), sides(a[2], int(a[3]))
        for side, n in whole.items():
            print('%s %.1f' % (side, n - without[side]))
    elif len(a) >= 5 and len(a) % 3 == 2 and a[0] == 'ticks':
        print_ticks(*a[1:])
    elif len(a) == 3 and a[0] == 'address':
        print('%x' % Program(a[1]).symbol[a[2]])
    elif len(a) == 6 and a[0] == 'tables':
        print_tables(Program(a[1]), *a[2:])
    elif len(a) == 4 and a[0] == 'readme' and a[1] in ('--write', '--check'):
        readme(*a[1:])
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()
