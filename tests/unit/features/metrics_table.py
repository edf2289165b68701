#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The names of metrics in engine/METRICS.md are those of the source, with kind, labels and text.

usage: metrics_table.py SOURCE-ROOT [--print]

--print writes the table of the source instead, for the page.
"""
import re
import sys

root = sys.argv[1]
PAGE = root + '/engine/METRICS.md'
SOURCES = '/engine/features/metrics/table.h', '/apps/libps/psv_metrics.h'
LABELS = {'METRICS_SCALARS': '', 'METRICS_PEERS': 'peer', 'METRICS_NICS': 'nic, address', 'METRICS_PS': 'service, table'}


def entries(text):
    """Rows (name, kind, labels, text) of the lists in table.h."""
    text = text.replace('\\\n', ' ')
    for macro, body in re.findall(r'#define (METRICS_\w+)\(X\)(.*)', text):
        if macro == 'METRICS_OTHER':
            for name, kind, labels, about in re.findall(r'X\("(\w+)", (\w+), "([^"]*)",\s*"([^"]*)"\)', body):
                yield name, kind.lower(), labels, about
        elif macro in LABELS:
            for name, kind, about in re.findall(r'X\(\w+, "(\w+)", (\w+), \w+,\s*"([^"]*)"\)', body):
                yield name, kind.lower(), LABELS[macro], about


source = ''
for name in SOURCES:
    with open(root + name, encoding='utf-8') as f:
        source += f.read()
wanted = list(entries(source))
# Every X() of these lists was read.
lists = source.replace('\\\n', ' ')
count = sum(body.count('X(') for macro, body in re.findall(r'#define (METRICS_\w+)\(X\)(.*)', lists)
            if macro in LABELS or macro == 'METRICS_OTHER')
if len(wanted) != count:
    sys.exit(f'metrics_table.py: read {len(wanted)} of {count} entries of the tables')
rows = ['| `%s` | %s | %s | %s |' % row for row in wanted]
if '--print' in sys.argv:
    print('\n'.join(rows))
    sys.exit(0)
for name, kind, _, _ in wanted:
    if not re.fullmatch(r'farcall_[a-z0-9_]+', name) or (kind == 'counter') != name.endswith('_total'):
        sys.exit(f'metrics_table.py: {name} is no name for a {kind}')
if len({row[0] for row in wanted}) != len(wanted):
    sys.exit('metrics_table.py: a name is there twice')
with open(PAGE, encoding='utf-8') as f:
    found = [line.rstrip('\n') for line in f if line.startswith('| `farcall_')]
for row in rows:
    if row not in found:
        sys.exit(f'metrics_table.py: engine/METRICS.md lacks the row\n{row}')
for row in found:
    if row not in rows:
        sys.exit(f'metrics_table.py: engine/METRICS.md has a row of no metric\n{row}')
