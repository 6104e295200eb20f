"""Writes genextreme.json: samples, and what SciPy's genextreme finds in them. Needs SciPy; the tests do not."""

import json
import pathlib

import numpy as np
from scipy.stats import genextreme

CASES = [
    # shape (SciPy's sign), location, scale, samples
    (-0.25, 250.0, 80.0, 300),
    (0.15, 300.0, 60.0, 300),
    (0.0, 120.0, 30.0, 200),
    (-0.6, 180.0, 90.0, 300),
]

cases = []
for number, (shape, location, scale, count) in enumerate(CASES):
    drawn = genextreme.rvs(shape, location, scale, size=count, random_state=number)
    samples = np.round(drawn, 3)
    c, loc, s = genextreme.fit(samples, -0.1, loc=np.median(samples), scale=np.std(samples) / 2)
    cases.append(
        {
            "samples": samples.tolist(),
            "shape": c,
            "location": loc,
            "scale": s,
            "surprise": float(genextreme.nnlf((c, loc, s), samples)),
            "quantiles": {str(q): float(genextreme.ppf(q, c, loc, s)) for q in (0.01, 0.5, 0.8, 0.99)},
            "cdf": [[x, float(genextreme.cdf(x, c, loc, s))] for x in (0.0, 150.0, 300.0, 1000.0)],
        }
    )

text = json.dumps({"scipy": __import__("scipy").__version__, "cases": cases})
pathlib.Path(__file__).with_name("genextreme.json").write_text(text + "\n")
for case in cases:
    print(case["shape"], case["location"], case["scale"], case["surprise"])
