"""What the Python package promises, and that it agrees with an implementation of its own."""

import pathlib
import pickle
import sys
import tempfile
import threading
import unittest

import numpy as np

import weft_sim

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples" / "python"))

import salsa_check  # noqa: E402


class Networks(unittest.TestCase):
    def setUp(self):
        self.network = weft_sim.Network.synthetic(relays=300, seed=1)

    def test_arrays_have_a_row_for_each_relay(self):
        network = self.network
        self.assertEqual(len(network), 300)
        self.assertEqual(network.bandwidths().dtype, np.uint64)
        self.assertEqual(network.bandwidths().shape, (300,))
        self.assertEqual(network.fingerprints().shape, (300, 20))
        self.assertEqual(len(network.nicknames()), 300)
        guards = network.has_flag("Guard")
        self.assertEqual(guards.dtype, bool)
        self.assertTrue(0 < guards.sum() < 300)
        with self.assertRaisesRegex(ValueError, "Garden"):
            network.has_flag("Garden")

    def test_probabilities_are_of_relays_allowed_in_the_position(self):
        for position, flag in (("guard", "Guard"), ("exit", "Exit")):
            probabilities = self.network.probabilities(position)
            self.assertAlmostEqual(probabilities.sum(), 1)
            self.assertTrue(self.network.has_flag(flag)[probabilities > 0].all())
        self.assertAlmostEqual(self.network.probabilities("middle").sum(), 1)
        with self.assertRaises(ValueError):
            self.network.probabilities("fourth")

    def test_a_written_document_is_read_again(self):
        text = self.network.to_document()
        again = weft_sim.Network.parse(text)
        np.testing.assert_array_equal(again.fingerprints(), self.network.fingerprints())
        np.testing.assert_array_equal(again.bandwidths(), self.network.bandwidths())
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "2026-01-01-00-00-00-consensus"
            path.write_bytes(text)
            (from_file,) = weft_sim.read(path)
            self.assertEqual(from_file.valid_after, again.valid_after)
            (from_folder,) = weft_sim.read(folder)
            self.assertEqual(len(from_folder), 300)

    def test_errors_name_file_and_line(self):
        with self.assertRaisesRegex(ValueError, "broken, line 1"):
            weft_sim.Network.parse(b"network-status-version 99\n", "broken")
        with self.assertRaisesRegex(OSError, "nowhere"):
            weft_sim.read("/nowhere/at-all")


class Links(unittest.TestCase):
    def setUp(self):
        self.network = weft_sim.Network.synthetic(relays=300, seed=1)

    def test_the_number_of_threads_changes_nothing(self):
        one = self.network.links(100_000, repeat=3, seed=7, threads=1)
        many = self.network.links(100_000, repeat=3, seed=7, threads=3)
        np.testing.assert_array_equal(one.links, many.links)
        np.testing.assert_array_equal(one.shared_links, many.shared_links)
        other = self.network.links(100_000, repeat=3, seed=8)
        self.assertFalse(np.array_equal(one.links, other.links))

    def test_shares_are_of_the_links(self):
        found = self.network.links(5_000, repeat=4)
        self.assertEqual(found.links.shape, (4,))
        np.testing.assert_allclose(found.shared_percent, 100 * found.shared_links / found.links)
        per_link = found.circuits_per_link
        self.assertEqual(len(per_link), 4)
        for one, links, shared in zip(per_link, found.links, found.shared_links):
            # Links by how many circuits they carry, from 0.
            self.assertEqual(one.sum(), links)
            self.assertEqual(one[2:].sum(), shared)
            self.assertEqual((one * np.arange(len(one))).sum(), 2 * 5_000)

    def test_drawn_circuits_have_the_links_that_are_counted(self):
        circuits = self.network.circuits(5_000, seed=3)
        self.assertEqual(circuits.shape, (5_000, 3))
        left = circuits[:, :2].reshape(-1)
        right = circuits[:, 1:].reshape(-1)
        links, shared = salsa_check.count(left, right, True, len(self.network))
        found = self.network.links(5_000, seed=3)
        self.assertEqual((found.links[0], found.shared_links[0]), (links, shared))

    def test_silly_numbers_are_refused_with_what_is_allowed(self):
        network = self.network
        calls = {
            "relays": lambda silly: weft_sim.Network.synthetic(relays=silly),
            "seed": lambda silly: weft_sim.Network.synthetic(seed=silly),
            "count": network.circuits,
            "repetition": lambda silly: network.circuits(10, repetition=silly),
            "circuits": network.links,
            "circuits_per_client": lambda silly: network.links(10, circuits_per_client=silly),
            "repeat": lambda silly: network.links(10, repeat=silly),
            "threads": lambda silly: network.links(10, threads=silly),
        }
        silly = [-1, 10**12, 10**30, 1.5, 1e300, float("nan"), float("inf")]
        for name, call in calls.items():
            for number in silly:
                if name == "seed" and number == 10**12:
                    continue
                with self.assertRaises(ValueError, msg=f"{name} {number}") as caught:
                    call(number)
                text = str(caught.exception)
                self.assertTrue(text.startswith(f"{name} {number!r}: it must be "), text)
                self.assertRegex(text, r" from \d+ to \d+$")
            with self.assertRaisesRegex(TypeError, f"{name} 'many': it must be"):
                call("many")

    def test_an_interval_over_documents_knows_how_many_they_are(self):
        one = weft_sim.spread([3.2])
        self.assertEqual((one.mean, one.stddev, one.ci95, one.n), (3.2, None, None, 1))
        self.assertNotIn("±", repr(one))
        once = weft_sim.spread(self.network.links(1000).shared_percent)
        self.assertIsNone(once.ci95)
        found = self.network.links(1000, repeat=10).shared_percent
        spread = weft_sim.spread(found)
        self.assertAlmostEqual(spread.stddev, found.std(ddof=1))
        self.assertEqual(spread.n, 10)
        # Two documents with a hundred repetitions each are two numbers.
        both = weft_sim.spread(np.full(100, 3.2), np.linspace(43.9, 44.1, 100))
        self.assertEqual(both.n, 2)
        self.assertAlmostEqual(both.ci95, 12.706 * 40.8 / 2, places=3)
        np.testing.assert_allclose(both.range, (3.2, 44.0))
        for wrong in ([], [float("nan")]):
            with self.assertRaises(ValueError):
                weft_sim.spread([1.0], wrong)
        with self.assertRaises(ValueError):
            weft_sim.spread()

    def test_bad_words_are_named(self):
        for words in ({"kind": "sideways"}, {"direction": "up"}, {"circuits_per_client": 0}):
            with self.assertRaises(ValueError):
                self.network.links(1000, **words)
        with self.assertRaises(ValueError):
            self.network.links(0)

    def test_python_goes_on_meanwhile(self):
        results = []
        threads = [
            threading.Thread(
                target=lambda: results.append(self.network.links(50_000, seed=1).shared_links[0])
            )
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 3)
        self.assertEqual(len(set(results)), 1)


class AgainstTheCheck(unittest.TestCase):
    """salsa_check.py reads the document by itself and has another way to draw and to count."""

    def test_shares_agree(self):
        network = weft_sim.Network.synthetic(relays=1000, seed=2)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "consensus"
            path.write_bytes(network.to_document())
            consensus = salsa_check.Consensus(path)
        for position, theirs in (
            ("guard", consensus.guards),
            ("middle", consensus.middles),
            ("exit", consensus.exits),
        ):
            np.testing.assert_allclose(network.probabilities(position), theirs, rtol=1e-12)
        for kind in ("external", "internal"):
            for direction in ("directed", "undirected"):
                ours = network.links(20_000, kind=kind, direction=direction, repeat=20, seed=5)
                theirs = salsa_check.expected(
                    consensus, 20_000, kind == "internal", direction == "directed"
                )
                # The seed is fixed, so this is no matter of luck; five standard errors are far.
                error = ours.shared_percent.std(ddof=1) / np.sqrt(20)
                self.assertLess(abs(ours.shared_percent.mean() - theirs), 5 * error + 0.01)


class Pickling(unittest.TestCase):
    def test_a_network_travels(self):
        network = weft_sim.Network.synthetic(relays=100, seed=1)
        again = pickle.loads(pickle.dumps(network))
        np.testing.assert_array_equal(again.fingerprints(), network.fingerprints())
        self.assertEqual(
            again.links(1000, seed=2).links[0], network.links(1000, seed=2).links[0]
        )


if __name__ == "__main__":
    unittest.main()
