"""Paths through Tor networks, simulated: shared links of circuits (Pahl et al. 2023, SALSA).

Relays are numbered by their place in the document, from 0. Every result is a function of its
arguments: the number of threads and the machine change nothing. Nothing here speaks to any network,
and signatures of documents are not checked.
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
