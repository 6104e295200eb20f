"""Runs nyx 2.1.0 on a Python that took names away which it still uses. Its arguments are nyx's."""

import inspect
import sys

# Gone since Python 3.11.
if not hasattr(inspect, "getargspec"):
    inspect.getargspec = inspect.getfullargspec

import nyx  # noqa: E402 (it is imported after what it lacks is there)

sys.exit(nyx.main())
