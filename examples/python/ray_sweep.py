#!/usr/bin/env python3
"""The sweep of sweep.py on a Ray cluster: here by default, elsewhere by --address.

    pip install ray
    python3 ray_sweep.py CONSENSUS...
    python3 ray_sweep.py --address ray://head:10001 /shared/CONSENSUS...

The package weft_sim and the documents must be on every node, the documents by the same path. The
table is that of sweep.py, number for number.
"""

import os
import sys

# Ray reports its use to its authors unless this is set before it is loaded.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray  # noqa: E402

import sweep  # noqa: E402


def main():
    parser = sweep.parser(__doc__.partition("\n")[0])
    parser.add_argument("--address", help="of a cluster [default: one on this machine]")
    args = parser.parse_args()
    if args.address:
        ray.init(address=args.address)
    else:
        # Nothing but the sweep: no dashboard.
        ray.init(num_cpus=args.workers, include_dashboard=False, configure_logging=False)
    work = sweep.tasks(args)
    task = ray.remote(num_cpus=1)(sweep.shared_percent)
    results = ray.get([task.remote(one) for one in work])
    sweep.report(args, zip(work, results))
    ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
