#!/usr/bin/env python3
"""Compares runs of scenarios in virtual time with runs on real processes, as a Markdown table for docs/trust.md.

The argument is a folder with one folder for each run, named SCENARIO.TESTBED.SEED, as `weft lab run --out` makes them.
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


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
