# SPDX-License-Identifier: BSD-3-Clause
"""Writes a C file with the texts of all scenario files: embed.py OUT FOLDER FILE…, paths relative to FOLDER."""
import os
import sys


def literal(text):
    lines = text.splitlines(keepends=True) or [""]
    quoted = []
    for line in lines:
        line = line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        quoted.append('"%s"' % line)
    return "\n\t ".join(quoted)


def main(out, folder, files):
    with open(out, "w", encoding="utf-8") as f:
        f.write('#include "sim/scenario.h"\n\nconst struct scenario_text scenario_texts[] = {\n')
        for path in sorted(files):
            with open(os.path.join(folder, path), encoding="utf-8") as text:
                f.write('\t{"%s",\n\t %s},\n' % (path, literal(text.read())))
        f.write("\t{0, 0}};\n")


if sys.argv[1:] == ["--help"]:
    print(__doc__)
elif len(sys.argv) < 3:
    sys.exit(__doc__)
else:
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
