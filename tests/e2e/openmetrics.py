# SPDX-License-Identifier: BSD-3-Clause
"""Parses a text in the format OpenMetrics 1.0.0 and raises ValueError with the line that breaks a rule of it.

No program: prometheus.py imports it.
"""
import math
import re

NAME = r'[a-zA-Z_:][a-zA-Z0-9_:]*'
HEAD = re.compile(rf'# (TYPE|UNIT|HELP) ({NAME}) (.+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
NUMBER = r'[+-]?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|Inf)|NaN'
SAMPLE = re.compile(rf'({NAME})(?:\{{(.*)\}})? ({NUMBER})')
ENDINGS = {'counter': ['_total'], 'gauge': [''], 'info': ['_info'], 'histogram': ['_bucket', '_sum', '_count']}


class Family:
    """A metric: what its heads say, and its samples as (name, labels, value)."""

    def __init__(self, name):
        self.name, self.head, self.samples = name, {}, []

    def sample_names(self):
        return [self.name + ending for ending in ENDINGS[self.head['TYPE']]]


def labels_of(text):
    """The labels as a tuple of pairs."""
    found, at = [], 0
    while text and at < len(text):
        match = LABEL.match(text, at)
        if not match:
            raise ValueError('malformed labels')
        found.append(match.groups())
        at = match.end()
        if at < len(text) and text[at] != ',' or text[at:] == ',':
            raise ValueError('malformed labels')
        at += 1
    if len(dict(found)) != len(found):
        raise ValueError('a label is there twice')
    return tuple(found)


def head(line, families, family):
    """The family to which this line of a head belongs."""
    match = HEAD.fullmatch(line)
    if not match:
        raise ValueError('neither a head nor a sample')
    kind, name, text = match.groups()
    if not family or family.name != name:
        if name in families:
            raise ValueError('the lines of the metric are not together')
        family = families[name] = Family(name)
    if kind in family.head or family.samples:
        raise ValueError(f'{kind} is there twice, or after a sample')
    if kind == 'TYPE' and text not in ENDINGS:
        raise ValueError('the type is unknown')
    if kind == 'UNIT' and not name.endswith('_' + text):
        raise ValueError('the name does not end in the unit')
    if kind == 'HELP' and re.search(r'(?<!\\)(?:\\\\)*(?:"|\\[^\\n"])', text):
        raise ValueError('the help is not escaped')
    family.head[kind] = text
    return family


def check_value(family, name, labels, value):
    kind = family.head['TYPE']
    if kind == 'counter' and not 0 <= value:
        raise ValueError('a counter is NaN or below 0')
    if kind == 'info' and value != 1:
        raise ValueError('an info is not 1')
    if kind == 'histogram' and ('le' in dict(labels)) != name.endswith('_bucket'):
        raise ValueError('le is a label of buckets alone')


def check_histogram(family):
    """Buckets rise to +Inf, whose value is the count."""
    metrics = {}
    for name, labels, value in family.samples:
        key = tuple(pair for pair in labels if pair[0] != 'le')
        metric = metrics.setdefault(key, {'buckets': []})
        if name.endswith('_bucket'):
            metric['buckets'].append((float(dict(labels)['le']), value))
        else:
            metric[name] = value
    for metric in metrics.values():
        buckets = metric['buckets']
        if buckets != sorted(buckets) or len({le for le, _ in buckets}) != len(buckets):
            raise ValueError(f'the buckets of {family.name} do not rise')
        if sorted(value for _, value in buckets) != [value for _, value in buckets]:
            raise ValueError(f'the buckets of {family.name} fall')
        if not buckets or not math.isinf(buckets[-1][0]) or metric.get(family.name + '_count') != buckets[-1][1]:
            raise ValueError(f'the last bucket of {family.name} is not all')


def check_names(families):
    """No sample of one metric has a name that another one may use."""
    used = {}
    for family in families.values():
        if 'TYPE' not in family.head:
            raise ValueError(f'{family.name} has no type')
        for name in {family.name, *family.sample_names()}:
            if used.setdefault(name, family) is not family:
                raise ValueError(f'{name} belongs to two metrics')
        if family.head['TYPE'] == 'histogram':
            check_histogram(family)
        # What has a unit in its name has it as a head, too.
        for unit in ('seconds', 'bytes'):
            if family.name.endswith('_' + unit) and family.head.get('UNIT') != unit:
                raise ValueError(f'{family.name} has no unit')


def parse(text):
    """The metrics by their names."""
    if not text.endswith('\n# EOF\n'):
        raise ValueError('the text does not end in "# EOF"')
    families, family, seen = {}, None, set()
    for line in text[:-len('# EOF\n')].splitlines():
        try:
            if line.startswith('#') or not line:
                family = head(line, families, family)
                continue
            match = SAMPLE.fullmatch(line)
            if not match:
                raise ValueError('malformed sample')
            name, labels, value = match[1], labels_of(match[2]), float(match[3])
            if not family or 'TYPE' not in family.head or name not in family.sample_names():
                raise ValueError('the sample is not of the metric above it')
            if (name, frozenset(labels)) in seen:
                raise ValueError('the sample is there twice')
            seen.add((name, frozenset(labels)))
            check_value(family, name, labels, value)
            family.samples.append((name, labels, value))
        except ValueError as wrong:
            raise ValueError(f'{wrong}: {line}') from None
    check_names(families)
    return families
