#!/usr/bin/env python3
"""Shared links of many documents, for growing demand (Pahl et al. 2023, Figure 8), on all cores.

    python3 sweep.py CONSENSUS...                 # documents, folders or CollecTor's archives
    python3 sweep.py --csv table.csv              # a synthetic network, where there is no document

`pip install ./crates/weft-sim-py` installs the package weft_sim. What `shared_percent` returns depends on its
arguments alone, so the table is the same wherever the tasks run; ray_sweep.py gives the same ones to a
Ray cluster.
"""

import argparse
import csv
import functools
import itertools
import multiprocessing
import sys
import typing

import weft_sim


class Task(typing.NamedTuple):
    """One cell of the sweep. The document is named, not sent: workers read it by themselves."""

    document: typing.Optional[str]
    kind: str
    direction: str
    circuits: int
    repeat: int
    seed: int


# Each worker keeps the few networks that it works at.
@functools.lru_cache(maxsize=4)
def network(document):
    if document is None:
        return weft_sim.Network.synthetic(relays=6500, seed=1)
    (only,) = weft_sim.read(document)
    return only


def shared_percent(task):
    """The shares of one task, an array of a number for each repetition."""
    return network(task.document).links(
        task.circuits,
        kind=task.kind,
        direction=task.direction,
        repeat=task.repeat,
        seed=task.seed,
        # Tasks run side by side already.
        threads=1,
    ).shared_percent


def tasks(args):
    cells = itertools.product(
        args.documents or [None],
        ("external", "internal"),
        ("directed", "undirected"),
        args.circuits,
    )
    return [Task(*cell, repeat=args.repeat, seed=args.seed) for cell in cells]


def parser(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("documents", nargs="*", help="one consensus each")
    parser.add_argument(
        "--circuits", type=int, nargs="+", default=[96_000, 190_000, 290_000], metavar="N"
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--csv", help="write the table there, too")
    parser.add_argument("--workers", type=int, help="processes [default: cores]")
    return parser


def report(args, results):
    """Prints a table of tasks and their shares."""
    rows = []
    for task, percent in results:
        spread = weft_sim.spread(percent)
        # One repetition has neither deviation nor interval: their columns are empty.
        rows.append(
            task._asdict() | {"mean": spread.mean, "stddev": spread.stddev, "ci95": spread.ci95}
        )
        name = task.document or "synthetic"
        interval = "" if spread.ci95 is None else f" ± {spread.ci95:.3f}"
        print(
            f"{name.rpartition('/')[2]:<48} {task.kind:<9} {task.direction:<11}"
            f" {task.circuits:>8} {spread.mean:7.3f}{interval} %"
        )
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


def main():
    args = parser(__doc__.partition("\n")[0]).parse_args()
    work = tasks(args)
    with multiprocessing.Pool(args.workers) as pool:
        report(args, zip(work, pool.imap(shared_percent, work)))


if __name__ == "__main__":
    sys.exit(main())
