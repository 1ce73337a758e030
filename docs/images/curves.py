#!/usr/bin/env python3
"""Draws curves of runs as one SVG, a panel for each: docs/images/curves.py PANEL... > FILE.svg

PANEL is TITLE|FILE|KEY[,KEY...]: figures of a metrics.jsonl. Figures of evaluations are drawn with dots.
Made docs/images/alignment.svg from the runs of examples/pipeline; see docs/alignment.md."""
import json
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP = 360, 200, 46, 34, 60
COLORS = ("#1f77b4", "#d62728", "#2ca02c")


def ticks(low, high):
    step = 10.0 ** len(str(int(high - low))) if high - low >= 1 else 1.0
    while (high - low) / step < 3:
        step /= 2 if str(step)[0] in "12" else 2.5
    first = int(low / step) * step
    return [first + i * step for i in range(20) if low <= first + i * step <= high]


def panel(x0, title, path, keys):
    rows = [json.loads(line) for line in open(path)]
    series = {key: [(r["step"], r[key]) for r in rows if r.get(key) is not None] for key in keys}
    points = [p for s in series.values() for p in s]
    last, low, high = max(p[0] for p in points), min(p[1] for p in points), max(p[1] for p in points)
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    place = lambda p: (x0 + LEFT + WIDTH * p[0] / last, TOP + HEIGHT * (high - p[1]) / (high - low))
    out = [f'<text x="{x0 + LEFT}" y="18" font-weight="bold">{title}</text>',
           f'<rect x="{x0 + LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>']
    for value in ticks(low, high):
        y = place((0, value))[1]
        out.append(f'<line x1="{x0 + LEFT}" x2="{x0 + LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>'
                   f'<text x="{x0 + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in (0, last // 2, last):
        out.append(f'<text x="{place((step, 0))[0]:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{step}</text>')
    for i, (key, values) in enumerate(series.items()):
        at = [place(p) for p in values]
        color = COLORS[i % len(COLORS)]
        thin = "1" if len(at) > 40 else "2"
        out.append(f'<polyline fill="none" stroke="{color}" stroke-width="{thin}" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in at) + '"/>')
        if key.startswith("eval_"):
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in at]
        out.append(f'<text x="{x0 + LEFT + WIDTH - 8}" y="{TOP + 18 + 16 * i}" text-anchor="end" fill="{color}">{key}</text>')
    return out


def main():
    panels = [p.split("|") for p in sys.argv[1:]]
    if not panels or any(len(p) != 3 for p in panels):
        sys.exit(__doc__)
    width = len(panels) * (LEFT + WIDTH + GAP)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 30}" font-family="sans-serif" font-size="12">')
    print(f'<rect width="{width}" height="{TOP + HEIGHT + 30}" fill="white"/>')
    for i, (title, path, keys) in enumerate(panels):
        print("\n".join(panel(i * (LEFT + WIDTH + GAP), title, path, keys.split(","))))
    print("</svg>")


main()
