"""Paths through Tor networks, simulated: shared links of circuits (Pahl et al. 2023, SALSA). Besides,
whole networks in virtual time: `Scenario`.

Relays are numbered by their place in the document, from 0. Every result is a function of its
arguments: the number of threads and the machine change nothing. Nothing here speaks to any network,
and signatures of documents are not checked. A number that makes no sense, or that memory does not hold, is a
ValueError that names what is allowed.
"""

import os
import typing

import numpy as np
from numpy.typing import NDArray

__version__: str

Position = typing.Literal["guard", "middle", "exit"]
Kind = typing.Literal["external", "internal", "mixed"]
Direction = typing.Literal["directed", "undirected"]

def read(*paths: typing.Union[str, os.PathLike[str]]) -> list[Network]:
    """The networks of all consensus documents that the paths name, in order.

    A path is a document (plain, .xz, .gz or .zst, of either flavour), a folder of documents, or an
    archive of CollecTor's. OSError if a file cannot be read, ValueError with file and line if it is
    no consensus."""

class Network:
    """The relays of a consensus document, and the weights of its positions."""

    @staticmethod
    def parse(text: bytes, name: str = "document") -> Network:
        """Reads an unpacked document; `name` is what errors call it."""

    @staticmethod
    def synthetic(relays: int = 6500, seed: int = 1) -> Network:
        """A network with flags and bandwidths such as the real one has."""

    def to_document(self) -> bytes:
        """A consensus document that reads as this network; it has no signatures."""

    @property
    def valid_after(self) -> str:
        """As it stands in the document, UTC."""

    def __len__(self) -> int: ...
    def nicknames(self) -> list[str]: ...
    def fingerprints(self) -> NDArray[np.uint8]:
        """RSA identities, a row of 20 bytes for each relay."""

    def bandwidths(self) -> NDArray[np.uint64]:
        """`Bandwidth=` of each relay, kilobytes per second."""

    def has_flag(self, flag: str) -> NDArray[np.bool_]:
        """Which relays have a flag. ValueError for one that paths do not depend on."""

    def probabilities(self, position: Position) -> NDArray[np.float64]:
        """How likely each relay is drawn for this position; the sum is 1."""

    def circuits(
        self,
        count: int,
        *,
        kind: Kind = "external",
        circuits_per_client: int = 1,
        seed: int = 1,
        repetition: int = 0,
    ) -> NDArray[np.uint32]:
        """Draws circuits: a row of three relays for each. They are those that `links` counts with
        the same arguments."""

    def links(
        self,
        circuits: int,
        *,
        kind: Kind = "external",
        direction: Direction = "directed",
        circuits_per_client: int = 1,
        repeat: int = 1,
        seed: int = 1,
        threads: typing.Optional[int] = None,
    ) -> Links:
        """Draws so many circuits, `repeat` times, and counts links (Algorithm 1). By default it has a
        thread for each core. Other threads of Python run meanwhile."""

class Links:
    """The results of the repetitions: arrays have an element for each."""

    @property
    def links(self) -> NDArray[np.uint64]:
        """Different links."""

    @property
    def shared_links(self) -> NDArray[np.uint64]:
        """Those that carry two circuits or more."""

    @property
    def shared_percent(self) -> NDArray[np.float64]:
        """Shared links of all links, per cent."""

    @property
    def circuits_per_link(self) -> NDArray[np.uint64]:
        """Links by how many circuits they carry, from 0; a row for each repetition."""

class Spread:
    """What may be said of a number that was found several times. One number tells nothing of its error: then deviation and
    interval are None."""

    mean: float
    stddev: typing.Optional[float]  # of the sample
    ci95: typing.Optional[float]  # half of the 95 % interval of the mean, by Student's t
    n: int  # repetitions of one document, or documents
    range: tuple[float, float]  # the least and the most mean of a document

def spread(*documents: typing.Union[typing.Sequence[float], NDArray[typing.Any]]) -> Spread:
    """Each argument has the repetitions of one document, `Links.shared_percent` for example. Of one document the spread is
    over its repetitions. Of several it is over their means, so that n is how many documents there are: repetitions
    know nothing of how documents differ. ValueError where one has no numbers, or one that is not finite."""

class Scenario:
    """A Tor network with its users: the TOML of `weft lab run` (docs/scenarios.md)."""

    @staticmethod
    def read(path: typing.Union[str, os.PathLike[str]]) -> Scenario:
        """Reads a scenario and the files that it names. OSError if a file cannot be read, ValueError
        with file, line and the nearest word if it is no scenario."""

    @staticmethod
    def parse(
        text: str, name: str = "scenario", files: typing.Optional[dict[str, bytes]] = None
    ) -> Scenario:
        """A scenario that is no file. `name` is what errors call it; `files` has the contents of the
        files that it names, unpacked."""

    @property
    def name(self) -> str: ...
    @property
    def arms(self) -> list[str]: ...
    @property
    def repetitions(self) -> int: ...
    @property
    def duration(self) -> float:
        """Of a run, in seconds of virtual time."""

    def run(
        self, *, arm: typing.Optional[str] = None, repetition: int = 1, seed: int = 1
    ) -> Run:
        """Runs one repetition, counted from 1, of one arm on this thread. A scenario with several arms
        needs `arm`. Other threads of Python run meanwhile, and Ctrl-C ends it."""

class Run(typing.TypedDict):
    """What a run returns, in plain dictionaries. Times are seconds, those of a stream or circuit since it
    began; NaN is a time that there is not."""

    simulated: float
    interval: float  # of the series of relays
    relayed_bytes: int  # of cells that relays wrote to links
    events: int
    clients: list[str]
    streams: Streams
    relays: Relays
    circuits: Circuits

class Streams(typing.TypedDict):
    """An element for each stream, in the order in which they began."""

    models: list[str]  # these are numbered by `model`
    client: NDArray[np.int32]  # a place in `clients`
    model: NDArray[np.int32]
    number: NDArray[np.uint32]  # of the client's streams, from 0
    started: NDArray[np.float64]  # since the run began
    opened: NDArray[np.float64]
    rtt: NDArray[np.float64]  # from request to answer
    ttfb: NDArray[np.float64]  # time to first byte
    ttlb: NDArray[np.float64]  # time to last byte
    ended: NDArray[np.float64]
    down_bytes: NDArray[np.uint64]
    up_bytes: NDArray[np.uint64]
    complete: NDArray[np.bool_]
    failed: NDArray[np.bool_]  # neither: it was open at the end

class Relays(typing.TypedDict):
    """An element, or a row, for each relay."""

    name: list[str]
    written: NDArray[np.uint64]  # bytes, a column for each interval
    queued: NDArray[np.uint64]  # bytes at the end of each interval
    busy: NDArray[np.float64]  # of the busiest thread, from 0 to 1
    circuits: NDArray[np.uint64]

class Circuits(typing.TypedDict):
    """An element, or a row, for each circuit of a client."""

    client: NDArray[np.int32]  # a place in `clients`
    path: NDArray[np.int32]  # relays, -1 behind the last
    began: NDArray[np.float64]  # since the run began
    built: NDArray[np.float64]  # how long that took
    round_trip: NDArray[np.float64]  # an element for each stream, BEGIN to CONNECTED
    round_trip_of: NDArray[np.uint64]  # the circuit of that stream
