"""Writes *.state: build times as C tor keeps them in its state file, and prints the estimates that `tor` makes of them, which the test
in ../tests.rs has. Needs `tor`; the tests do not."""

import collections
import pathlib
import random
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).parent


def pareto(seed, count, xm, alpha, abandoned):
    drawn = random.Random(seed)
    bins = collections.Counter()
    for _ in range(count):
        millis = xm * drawn.uniform(0.6, 1.0) / (1 - drawn.random()) ** (1 / alpha)
        bins[int(min(millis, 100_000)) // 10 * 10 + 5] += 1
    return bins, abandoned


CASES = {
    "fast": pareto(1, 1000, 250, 2.5, 0),
    "slow": pareto(2, 940, 1500, 1.1, 60),
    "few": pareto(3, 110, 600, 1.8, 7),
    "alike": (collections.Counter({425: 200}), 0),
    "heavy": pareto(5, 700, 300, 0.6, 200),
}

for name, (bins, abandoned) in CASES.items():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "torrc").touch()
        lines = ["TorVersion Tor 0.4.9.11", "LastWritten 2026-11-23 20:00:00"]
        lines.append(f"TotalBuildTimes {sum(bins.values()) + abandoned}")
        if abandoned:
            lines.append(f"CircuitBuildAbandonedCount {abandoned}")
        lines += [f"CircuitBuildTimeBin {middle} {count}" for middle, count in sorted(bins.items())]
        (folder / "state").write_text("\n".join(lines) + "\n")
        torrc = str(folder / "torrc")
        options = ["--DataDirectory", str(folder), "--DisableNetwork", "1", "--SocksPort", "auto", "--Log", "info stdout"]
        tor = subprocess.Popen(["tor", "--defaults-torrc", torrc, "-f", torrc, *options], stdout=subprocess.PIPE, text=True)
        time.sleep(4)
        tor.terminate()
        log, _ = tor.communicate()
        print(name, *(line for line in log.splitlines() if "Circuit timeout data" in line))
        # As tor has written it again.
        keys = ("TorVersion", "LastWritten", "TotalBuildTimes", "CircuitBuild")
        kept = [line for line in (folder / "state").read_text().splitlines() if line.startswith(keys)]
        (HERE / f"{name}.state").write_text("\n".join(kept) + "\n")
