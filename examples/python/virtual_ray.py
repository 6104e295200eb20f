#!/usr/bin/env python3
"""A scenario with many seeds, on a Ray cluster where Ray is installed, or else on this machine's cores.

    python3 virtual_ray.py                                  # examples/scenarios/three-hops.toml
    python3 virtual_ray.py SCENARIO.toml --seeds 20 --csv table.csv
    python3 virtual_ray.py SCENARIO.toml --address ray://head:10001

`cargo xtask wheel` builds the package weft_sim, which must be on every node; the scenario travels with
the tasks. Each repetition of each arm with each seed is a task of its own. What it returns depends on its
arguments alone, which is checked: one process runs all of them again (but with --unchecked), and the exit
status is 1 if a number differs.
"""

import argparse
import csv
import itertools
import multiprocessing
import os
import pathlib
import sys
import typing

import numpy as np

import weft_sim

SCENARIOS = pathlib.Path(__file__).resolve().parent.parent / "scenarios"


class Task(typing.NamedTuple):
    """One run of a scenario."""

    scenario: weft_sim.Scenario
    arm: str
    repetition: int
    seed: int


def run(task):
    """What a run returns: arrays in dictionaries."""
    return task.scenario.run(arm=task.arm, repetition=task.repetition, seed=task.seed)


def tasks(scenario, seeds):
    cells = itertools.product(scenario.arms, range(1, scenario.repetitions + 1), seeds)
    return [Task(scenario, *cell) for cell in cells]


def equal(one, other):
    """Whether two results have the same numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        is_float = one.dtype.kind == "f"
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=is_float)
    return one == other


def on_processes(work, workers=None):
    with multiprocessing.Pool(workers) as pool:
        return pool.map(run, work, chunksize=1)


def on_ray(ray, work, workers=None, address=None):
    if address:
        ray.init(address=address)
    else:
        # Nothing but the sweep: no dashboard.
        ray.init(num_cpus=workers, include_dashboard=False, configure_logging=False)
    task = ray.remote(num_cpus=1)(run)
    results = ray.get([task.remote(one) for one in work])
    ray.shutdown()
    return results


def spread(args, work):
    # Ray reports its use to its authors unless this is set before it is loaded.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        if args.address:
            raise SystemExit("--address is for Ray, which is not installed: pip install ray")
        print("Ray is not installed: the cores of this machine do it.", file=sys.stderr)
        return on_processes(work, args.workers)
    return on_ray(ray, work, args.workers, args.address)


def row(task, result):
    """A few numbers of a run."""
    streams = result["streams"]

    def median(name):
        known = streams[name][~np.isnan(streams[name])]
        return float(np.median(known)) if len(known) else float("nan")

    return {
        "arm": task.arm,
        "repetition": task.repetition,
        "seed": task.seed,
        "streams": len(streams["started"]),
        "complete": int(streams["complete"].sum()),
        "ttfb_s": median("ttfb"),
        "ttlb_s": median("ttlb"),
        "relayed_mb": result["relayed_bytes"] / 1e6,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "scenario", nargs="?", default=SCENARIOS / "three-hops.toml", type=pathlib.Path
    )
    parser.add_argument("--seeds", type=int, default=4, help="so many, from 1")
    parser.add_argument("--address", help="of a Ray cluster [default: one on this machine]")
    parser.add_argument("--workers", type=int, help="processes [default: cores]")
    parser.add_argument("--csv", help="write the table there, too")
    parser.add_argument("--unchecked", action="store_true", help="do not run all of it again")
    args = parser.parse_args()

    work = tasks(weft_sim.Scenario.read(args.scenario), range(1, args.seeds + 1))
    results = spread(args, work)
    rows = [row(task, result) for task, result in zip(work, results)]
    for one in rows:
        print(
            f"{one['arm']:<20} repetition {one['repetition']:<3} seed {one['seed']:<3}"
            f" {one['complete']:>6} of {one['streams']:>6} streams,"
            f" first byte {one['ttfb_s']:7.3f} s, last byte {one['ttlb_s']:7.3f} s,"
            f" relayed {one['relayed_mb']:9.1f} MB"
        )
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    if args.unchecked:
        return 0
    different = [task for task, result in zip(work, results) if not equal(result, run(task))]
    for task in different:
        print(f"{task.arm}, repetition {task.repetition}, seed {task.seed}: numbers differ")
    print(f"{len(work) - len(different)} of {len(work)} runs have the numbers of one process.")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
