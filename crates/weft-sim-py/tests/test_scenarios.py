"""Scenarios in virtual time: what a run returns, and that it is the same wherever it runs."""

import pathlib
import pickle
import sys
import threading
import unittest

import numpy as np

import weft_sim

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples" / "python"))

import virtual_ray  # noqa: E402

SCENARIO = ROOT / "examples" / "scenarios" / "three-hops.toml"


class Scenarios(unittest.TestCase):
    def setUp(self):
        self.scenario = weft_sim.Scenario.read(SCENARIO)

    def test_a_run_returns_arrays(self):
        scenario = self.scenario
        self.assertGreater(scenario.duration, 0)
        self.assertGreaterEqual(scenario.repetitions, 1)
        arm = scenario.arms[0]
        result = scenario.run(arm=arm, seed=1)
        self.assertEqual(result["simulated"], scenario.duration)
        streams, relays, circuits = result["streams"], result["relays"], result["circuits"]
        count = len(streams["started"])
        self.assertGreater(count, 0)
        for name, values in streams.items():
            if name != "models":
                self.assertEqual(values.shape, (count,), name)
        self.assertTrue(streams["complete"].any())
        complete = streams["complete"]
        self.assertFalse(np.isnan(streams["ttlb"][complete]).any())
        self.assertTrue((streams["ttfb"] <= streams["ttlb"])[complete].all())
        self.assertLess(streams["client"].max(), len(result["clients"]))
        self.assertLess(streams["model"].max(), len(streams["models"]))
        self.assertEqual(relays["written"].shape, relays["queued"].shape)
        self.assertEqual(relays["written"].shape[0], len(relays["name"]))
        self.assertGreater(relays["written"].sum(), streams["down_bytes"].sum())
        self.assertEqual(len(circuits["path"]), len(circuits["began"]))
        self.assertLess(circuits["path"].max(), len(relays["name"]))
        self.assertEqual(circuits["round_trip"].shape, circuits["round_trip_of"].shape)

    def test_processes_and_threads_give_the_numbers_of_one(self):
        work = virtual_ray.tasks(self.scenario, (1, 2))
        alone = [virtual_ray.run(task) for task in work]
        for ours, theirs in zip(alone, virtual_ray.on_processes(work, 2)):
            self.assertTrue(virtual_ray.equal(ours, theirs))
        beside = [None] * len(work)

        def one(place):
            beside[place] = virtual_ray.run(work[place])

        threads = [threading.Thread(target=one, args=(place,)) for place in range(len(work))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for ours, theirs in zip(alone, beside):
            self.assertTrue(virtual_ray.equal(ours, theirs))

    def test_a_text_and_a_pickle_are_the_same_scenario(self):
        text = SCENARIO.read_text(encoding="utf-8")
        parsed = weft_sim.Scenario.parse(text, "a.toml")
        again = pickle.loads(pickle.dumps(parsed))
        self.assertEqual((again.name, again.arms), ("a.toml", self.scenario.arms))
        arm = parsed.arms[0]
        self.assertTrue(virtual_ray.equal(parsed.run(arm=arm), again.run(arm=arm)))

    def test_what_is_wrong_is_named(self):
        with self.assertRaisesRegex(ValueError, r"bad.toml:1: .*duration"):
            weft_sim.Scenario.parse('duratoin = "1 s"\n', "bad.toml")
        with self.assertRaisesRegex(OSError, "nowhere"):
            weft_sim.Scenario.read("/nowhere/at-all.toml")
        with self.assertRaisesRegex(ValueError, "nobody"):
            self.scenario.run(arm="nobody")
        with self.assertRaisesRegex(ValueError, "from 1"):
            self.scenario.run(repetition=0)


if __name__ == "__main__":
    unittest.main()
