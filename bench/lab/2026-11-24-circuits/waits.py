"""What Circuit-RTT is worth if handshakes wait: adds waits to the build times of circuits.csv, and compares again.

python3 waits.py WEFT [MS ...]: each of a circuit's three handshakes waits MS x a log-normal load (sigma 1) x an exponential time.
"""

import csv
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
KEYS = ["latency_p50", "latency_p90", "bandwidth_p50", "bandwidth_p90"]

weft, waits = sys.argv[1], [float(ms) for ms in sys.argv[2:]] or [0, 50, 100, 200, 400]
with open(HERE / "circuits.csv") as file:
    head, *rows = csv.reader(file)
for ms in waits:
    rng = random.Random(1)
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        out = csv.writer(file)
        out.writerow(head)
        for row in rows:
            wait = sum(ms * math.exp(rng.gauss(0, 1)) * rng.expovariate(1) for _ in range(3))
            out.writerow([f"{float(row[0]) + wait:.3f}", *row[1:]])
        file.flush()
        words = ["sim", "selection", "--tuples", file.name, "--quantile", "0.8", "--limit", "ranked", "--format", "json"]
        report = json.loads(subprocess.run([weft, *words], capture_output=True, check=True).stdout)
    changes = [report["rtt"]["change_percent"][key] for key in KEYS]
    print(ms, *("%+.1f (%+.1f to %+.1f)" % (one["percent"], *one["ci95"]) for one in changes))
