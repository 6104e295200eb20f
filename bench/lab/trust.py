#!/usr/bin/env python3
"""Compares runs of scenarios in virtual time with runs on real processes, as a Markdown table for docs/trust.md.

The argument is a folder with one folder for each run, named SCENARIO.TESTBED.SEED, as `weft lab run --out` makes them. With a
second argument, the distributions of the times to the last byte are drawn to that SVG file.
"""

import json
import math
import sys
from collections import defaultdict
from pathlib import Path

# Student's t for 95 %, by degrees of freedom.
T95 = [0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]

QUANTITIES = [
    ("median TTFB, ms", lambda streams: streams["ttfb_ms"]["p50"], 0),
    ("median TTLB, ms", lambda streams: streams["ttlb_ms"]["p50"], 0),
    ("mean goodput, Mbit/s", lambda streams: streams["goodput_mbit"]["mean"], 2),
]


def interval(values):
    """Mean, and half the width of its 95 % interval (0 for one value)."""
    mean = sum(values) / len(values)
    freedom = len(values) - 1
    if freedom < 1:
        return mean, 0.0
    variance = sum((value - mean) ** 2 for value in values) / freedom
    t = T95[freedom] if freedom < len(T95) else 1.96
    return mean, t * math.sqrt(variance / len(values))


def main(folder):
    runs = defaultdict(lambda: defaultdict(list))
    for path in sorted(Path(folder).glob("*.*.*/results.json")):
        scenario, testbed, _seed = path.parent.name.split(".")
        results = json.loads(path.read_text())
        if not results["finished"]:
            sys.exit(f"{path} is partial: remove it, or run it again")
        runs[scenario][testbed].append(results["streams"])
    if not runs:
        sys.exit(f"{folder} has no folders SCENARIO.TESTBED.SEED with a results.json")
    print("| scenario | quantity | virtual | real | difference | runs | downloads |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for scenario, testbeds in runs.items():
        virtual, real = testbeds.get("virtual", []), testbeds.get("netns", [])
        if not virtual or not real:
            sys.exit(f"{scenario}: runs on both testbeds are needed, virtual and netns")
        for name, of, digits in QUANTITIES:
            pairs = [interval([of(streams) for streams in runs]) for runs in (virtual, real)]
            texts = [f"{mean:.{digits}f} ± {half:.{digits}f}" for mean, half in pairs]
            difference = (pairs[0][0] / pairs[1][0] - 1) * 100
            counts = [sum(streams["complete"] for streams in runs) for runs in (virtual, real)]
            print(
                f"| {scenario} | {name} | {texts[0]} | {texts[1]} | {difference:+.1f} % "
                f"| {len(virtual)}, {len(real)} | {counts[0]}, {counts[1]} |"
            )


# Of the plot, in pixels.
PANEL, HEIGHT, LEFT, TOP = 270, 210, 46, 34
COLOURS = {"virtual": "#0072b2", "netns": "#d55e00"}
NAMES = {"virtual": "virtual", "netns": "real"}


def times(folder, scenario, testbed):
    """Times to the last byte of all runs' complete downloads, in seconds."""
    found = []
    for path in sorted(Path(folder).glob(f"{scenario}.{testbed}.*/streams.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["outcome"] == "complete":
                # As TTLB is: from the beginning of the connection.
                found.append(record["down"]["last_s"])
    return sorted(found)


def draw(folder, out):
    """Distributions of TTLB, a panel for each scenario."""
    scenarios = ["three-hops", "eight-at-once", "lossy-link"]
    width = LEFT + PANEL * len(scenarios)
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 52}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{TOP + HEIGHT + 52}" fill="white"/>',
    ]
    for number, scenario in enumerate(scenarios):
        x0, inner = LEFT + PANEL * number, PANEL - 40
        most = max(max(times(folder, scenario, testbed)) for testbed in COLOURS) * 1.05
        svg.append(f'<text x="{x0}" y="{TOP - 14}" font-weight="bold">{scenario}</text>')
        for share in (0, 0.25, 0.5, 0.75, 1):
            y = TOP + HEIGHT * (1 - share)
            svg.append(f'<path d="M{x0} {y:.1f}h{inner}" stroke="#ddd"/>')
            if number == 0:
                svg.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{share * 100:.0f} %</text>')
        step = next(step for step in (1, 2, 5, 10, 20, 50) if most / step <= 6)
        for second in range(0, int(most) + 1, step):
            x = x0 + inner * second / most
            svg.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{second}</text>')
        for testbed, colour in COLOURS.items():
            all_times = times(folder, scenario, testbed)
            points, share = f"M{x0} {TOP + HEIGHT}", 0.0
            for rank, time in enumerate(all_times, 1):
                x, share = x0 + inner * time / most, rank / len(all_times)
                points += f"H{x:.1f}V{TOP + HEIGHT * (1 - share):.1f}"
            svg.append(f'<path d="{points}H{x0 + inner}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for place, (testbed, colour) in enumerate(COLOURS.items()):
        x, y = LEFT + 8 + 80 * place, TOP + HEIGHT + 38
        svg.append(f'<path d="M{x} {y - 4}h20" stroke="{colour}" stroke-width="2"/>')
        svg.append(f'<text x="{x + 26}" y="{y}">{NAMES[testbed]}</text>')
    svg.append(f'<text x="{width - 40}" y="{TOP + HEIGHT + 38}" text-anchor="end">time to last byte, s</text></svg>')
    Path(out).write_text("\n".join(svg) + "\n")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1])
    if len(sys.argv) == 3:
        draw(sys.argv[1], sys.argv[2])
