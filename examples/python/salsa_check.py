#!/usr/bin/env python3
"""Shared links by Algorithm 1 of Pahl et al. 2023 (SALSA), written in NumPy from the paper alone.

It checks `weft sim links`: it shares no code with it, reads documents by itself, and draws by
another method (inverse distribution function instead of alias tables). Besides, it computes what to
expect without any drawing: in a circuit, a link from a to b (a other than b) is either the first,
with probability guard(a) middle(b), or the second, with middle(a) exit(b), never both. Over n
independent circuits its count is therefore binomial, and the expected numbers of links and of shared
links are sums over all pairs of relays.

    python3 salsa_check.py --circuits 96000 CONSENSUS...
    python3 salsa_check.py --weft target/release/weft --json table.json CONSENSUS...

Documents may be plain, .gz or .xz, of either flavour. With --weft, the program is asked for the same
numbers, and the last column is the difference in percentage points. The exit status is 1 if one of
them is above --bar.

Where the paper leaves a choice (docs/simulation.md has the reasons):
- Line 6 weighs relays with Guard or Exit for the first position; dir-spec 3.8.3 has no weight for an
  exit that is no guard there (C tor uses 0), and 3.1.4 has "only relays with guard flag". Both give
  the same weights.
- A relay with BadExit is no exit, as in C tor.
- A relay can be twice in a circuit (4.4), so a link can join a relay with itself. It counts.
"""

import argparse
import gzip
import json
import lzma
import math
import pathlib
import subprocess
import sys
import time

import numpy as np


def read_text(path):
    """A document's text, whatever it is compressed with."""
    openers = {".xz": lzma.open, ".gz": gzip.open}
    opener = openers.get(pathlib.Path(path).suffix, open)
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        return file.read()


class Consensus:
    """Lines 1 to 16: the weights of every relay at the three positions."""

    def __init__(self, path):
        flags, bandwidth, weights = [], [], {}
        for line in read_text(path).splitlines():
            keyword, _, rest = line.partition(" ")
            if keyword == "r":
                flags.append(frozenset())
                bandwidth.append(0)
            elif keyword == "s" and flags:
                flags[-1] = frozenset(rest.split())
            elif keyword == "w" and flags:
                for word in rest.split():
                    if word.startswith("Bandwidth="):
                        bandwidth[-1] = int(word.partition("=")[2])
            elif keyword == "bandwidth-weights":
                for word in rest.split():
                    name, _, value = word.partition("=")
                    weights[name] = int(value) / 10000
        if not weights:
            raise SystemExit(f"{path}: no bandwidth-weights")
        self.relays = len(flags)
        bandwidth = np.array(bandwidth, dtype=float)
        guard = np.array(["Guard" in f for f in flags])
        exit_ = np.array(["Exit" in f and "BadExit" not in f for f in flags])

        def get_weight(neither, guard_only, exit_only, both):
            return np.where(
                exit_, np.where(guard, both, exit_only), np.where(guard, guard_only, neither)
            )

        w = lambda name: weights.get(name, 0.0)
        first = bandwidth * get_weight(0.0, w("Wgg"), 0.0, w("Wgd"))
        second = bandwidth * get_weight(w("Wmm"), w("Wmg"), w("Wme"), w("Wmd"))
        third = bandwidth * np.where(exit_, get_weight(0.0, 0.0, w("Wee"), w("Wed")), 0.0)
        self.guards = first / first.sum()
        self.middles = second / second.sum()
        self.exits = third / third.sum()


def choose(rng, count, probabilities):
    """`count` relays, each with its probability, with replacement."""
    bounds = np.cumsum(probabilities)
    chosen = np.searchsorted(bounds, rng.random(count) * bounds[-1], side="right")
    # Rounding may name the place behind the last relay that has any weight.
    return np.minimum(chosen, np.flatnonzero(probabilities)[-1])


def count(left, right, directed, relays):
    """Lines 17 to 23: unique links, and those that appear more than once."""
    if not directed:
        left, right = np.minimum(left, right), np.maximum(left, right)
    _, circuits = np.unique(left.astype(np.int64) * relays + right, return_counts=True)
    return len(circuits), int((circuits > 1).sum())


def salsa(consensus, circuits, k, internal, directed, rng):
    """Lines 24 to 38: unique and shared links of one repetition."""
    n = consensus.relays
    entries = choose(rng, math.ceil(circuits / k), consensus.guards)
    entries = np.repeat(entries, k)[:circuits]
    middles = choose(rng, circuits, consensus.middles)
    exits = choose(rng, circuits, consensus.middles if internal else consensus.exits)
    left = np.concatenate([entries, middles])
    right = np.concatenate([middles, exits])
    return count(left, right, directed, n)


def expected(consensus, circuits, internal, directed):
    """Expected shared links over expected links in per cent, for one circuit per client.

    The mean of the ratio differs from this by terms of the order of one over the number of links.
    A relay's link with itself can be both links of a circuit; that probability is left out, which is
    far below what is compared."""
    guards, middles = consensus.guards, consensus.middles
    last = middles if internal else consensus.exits
    unique = shared = 0.0
    # By rows: the whole matrix would take hundreds of megabytes.
    for a in np.flatnonzero((guards > 0) | (middles > 0) | (last > 0)):
        p = guards[a] * middles + middles[a] * last
        if not directed:
            p = p + guards * middles[a] + middles * last[a]
            p[a] /= 2
            p = p[a:]
        p = p[p > 0]
        none = np.exp(circuits * np.log1p(-p))
        one = circuits * p / (1 - p) * none
        unique += len(p) - none.sum()
        shared += len(p) - none.sum() - one.sum()
    return 100 * shared / unique


def repeat(consensus, args, internal, directed):
    """Mean and standard deviation over the repetitions, per cent; one repetition has no deviation."""
    percent = []
    for repetition in range(args.repeat):
        rng = np.random.default_rng([args.seed, repetition, internal, directed])
        unique, shared = salsa(
            consensus, args.circuits, args.circuits_per_client, internal, directed, rng
        )
        percent.append(100 * shared / unique)
    return float(np.mean(percent)), float(np.std(percent, ddof=1)) if len(percent) > 1 else None


def deviation(stddev):
    return " " * 7 if stddev is None else f"{stddev:7.3f}"


def ask_weft(path, args, internal, directed):
    """The results of `weft sim links` for the same inputs."""
    words = [args.weft, "sim", "links", "--consensus", str(path)]
    words += ["--circuits", str(args.circuits), "--repeat", str(args.repeat)]
    words += ["--kind", "internal" if internal else "external"]
    words += ["--direction", "directed" if directed else "undirected"]
    words += ["--circuits-per-client", str(args.circuits_per_client)]
    words += ["--seed", str(args.seed), "--format", "json"]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("consensus", nargs="+", type=pathlib.Path)
    parser.add_argument("--circuits", type=int, default=96_000)
    parser.add_argument("--circuits-per-client", type=int, default=1, help="k of Algorithm 1")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weft", help="the program to compare with")
    parser.add_argument("--bar", type=float, default=0.15, help="percentage points")
    parser.add_argument("--json", type=pathlib.Path, help="write the table there, too")
    args = parser.parse_args()

    rows, worst = [], 0.0
    print(f"{'document':<48} {'circuits':<20} {'expected':>8} {'NumPy':>8} {'stddev':>7}", end="")
    print(f" {'Weft':>8} {'stddev':>7} {'differ':>8}" if args.weft else "")
    for path in args.consensus:
        consensus = Consensus(path)
        for internal in (False, True):
            for directed in (True, False):
                start = time.perf_counter()
                mean, stddev = repeat(consensus, args, internal, directed)
                row = {
                    "document": path.name,
                    "relays": consensus.relays,
                    "circuits": args.circuits,
                    "circuits_per_client": args.circuits_per_client,
                    "kind": "internal" if internal else "external",
                    "direction": "directed" if directed else "undirected",
                    "repetitions": args.repeat,
                    "numpy_percent_mean": mean,
                    "numpy_percent_stddev": stddev,
                    "numpy_s_per_repetition": (time.perf_counter() - start) / args.repeat,
                }
                if args.circuits_per_client == 1:
                    row["expected_percent"] = expected(
                        consensus, args.circuits, internal, directed
                    )
                shown = f"{row['expected_percent']:8.3f}" if "expected_percent" in row else " " * 8
                name = f"{row['kind']} {row['direction']}"
                print(f"{path.name:<48} {name:<20} {shown} {mean:8.3f} {deviation(stddev)}", end="")
                if args.weft:
                    theirs = ask_weft(path, args, internal, directed)
                    row["weft_percent_mean"] = theirs["shared_percent_mean"]
                    row["weft_percent_stddev"] = theirs["shared_percent_stddev"]
                    row["difference_points"] = row["weft_percent_mean"] - mean
                    worst = max(worst, abs(row["difference_points"]))
                    print(
                        f" {row['weft_percent_mean']:8.3f} {deviation(row['weft_percent_stddev'])}"
                        f" {row['difference_points']:+8.3f}",
                        end="",
                    )
                print(flush=True)
                rows.append(row)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    if args.weft:
        print(f"largest difference: {worst:.3f} percentage points; bar: {args.bar}")
        if worst > args.bar:
            sys.exit(1)


if __name__ == "__main__":
    main()
