# SPDX-License-Identifier: BSD-3-Clause
"""Medians, noise and ratios of the rounds, and the table."""
import statistics
import textwrap

import catalog

WIDTH = 120
NAME, WAITS, CELL = 15, 8, 12


def noise(values):
    """Distance of the quartiles, of the median; of two or three values the whole range."""
    middle = statistics.median(values)
    if len(values) < 2 or middle == 0:
        return None
    if len(values) < 4:
        return (max(values) - min(values)) / middle
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def ratio(figure, ours, theirs):
    """Above 1 Farcall is ahead: a shorter time, or a higher rate."""
    return theirs / ours if figure.lower_is_better else ours / theirs


def summarize(row, figure, rounds):
    """`rounds`: one {(row name, figure name): value} for each. None without a value."""
    values = [r[row.name, figure.name] for r in rounds if (row.name, figure.name) in r]
    if not values:
        return None
    out = {"median": statistics.median(values), "noise": noise(values), "values": values}
    name = catalog.reference(row, figure)
    pairs = [(r[name, figure.name], r[row.name, figure.name]) for r in rounds
             if name and (name, figure.name) in r and (row.name, figure.name) in r]
    if pairs:
        out["against"] = name
        out["ratio"] = statistics.median(ratio(figure, ours, theirs) for ours, theirs in pairs)
    return out


def number(value):
    """Three digits, as a person writes them."""
    for limit, form in ((0.1, "%.4f"), (10, "%.3f"), (100, "%.2f"), (1000, "%.1f")):
        if value < limit:
            return form % value
    return "%.0f" % value


def head():
    top = " " * (NAME + WAITS) + "".join("%*s" % (CELL, f.head) for f in catalog.FIGURES)
    units = "%-*s%-*s" % (NAME, "", WAITS, "waiting") + "".join("%*s" % (CELL, f.unit) for f in catalog.FIGURES)
    return [top, units, "-" * (NAME + WAITS + CELL * len(catalog.FIGURES))]


def lines_of(row, result):
    """Two lines: the medians; noise and ratio. Or one with the reason why there are none."""
    if result["state"] != "measured":
        label = {"invalid": "INVALID", "failed": "FAILED", "absent": "absent"}[result["state"]]
        lines = textwrap.wrap("%s: %s" % (label, result["why"]), WIDTH - NAME)
        return ["%-*s%s" % (NAME, row.name if i == 0 else "", text) for i, text in enumerate(lines)]
    first, second = "%-*s%-*s" % (NAME, row.name, WAITS, row.waits), " " * (NAME + WAITS)
    for figure in catalog.FIGURES:
        f = result["figures"].get(figure.name)
        first += "%*s" % (CELL, number(f["median"] * figure.scale) if f else "-")
        words = []
        if f and f["noise"] is not None:
            words.append("%.0f%%" % (100 * f["noise"]))
        if f and "ratio" in f:
            words.append(number(f["ratio"])[:5].rstrip(".") + "x")
        second += "%*s" % (CELL, " ".join(words))
    return [first, second.rstrip()] if second.strip() else [first]


def wrapped(head_text, text):
    return textwrap.wrap(text, WIDTH, initial_indent="%-*s" % (NAME, head_text), subsequent_indent=" " * NAME,
                         break_long_words=False, break_on_hyphens=False)


def state_of(row, results):
    return results[row.name]["state"]


def closing(rows, results):
    """How many rows have figures, and which have not."""
    measured = [r for r in rows if state_of(r, results) == "measured"]
    text = "%d of %d rows measured" % (len(measured), len(rows))
    for state in ("invalid", "failed", "absent"):
        names = [r.name for r in rows if state_of(r, results) == state]
        if names:
            text += "; %s: %s" % ("INVALID" if state == "invalid" else state, ", ".join(names))
    return text


def render(rows, results, run):
    """`run`: what is true of all rows: lines, clock, cores, notes, versions."""
    out = head()
    for row in rows:
        out += lines_of(row, results[row.name])
    out += [out[2], ""]
    out += wrapped("Each row", "median of %d round%s; below it the noise (distance of the quartiles, of the median; of "
                   "two or three rounds the range) and the ratio to Farcall, the median of the rounds' ratios: above "
                   "1 Farcall is ahead. Compared with farcall-shm on one host, farcall-udp over the loopback; small "
                   "calls of pytorch with farcall-typed." % (run["rounds"], "" if run["rounds"] == 1 else "s"))
    out += wrapped("Columns", "bytes x requests in flight. 32 B: echo; round trip of one request, and calls per "
                   "second. Larger: the client rewrites the buffer before each request, the server reads every "
                   "byte and replies with their sum; both are part of the time.")
    out += wrapped("Machine", run["machine"])
    for note in run["notes"]:
        out += wrapped("Note", note)
    out.append("")
    for row in rows:
        text = row.settings
        check = results[row.name].get("check")
        if check:
            text += ". " + check
        elif not row.tool and row.packages:
            text += ". Debian packages no measurement of its own"
        out += wrapped(row.name, text)
    out.append("")
    for name, version in run["versions"].items():
        out += wrapped(name, version)
    return out + ["", closing(rows, results)]
