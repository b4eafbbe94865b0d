"""The socket of probes: questions to a judge whose right answer is known.

A probe knows nothing of judges or statistics.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from elo_exp.records import make_fingerprint

Kind = Literal["bias", "share", "floor", "reported"]

# Raise it when a text of a bundled probe changes
PROBE_TEXTS_VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A prompt with answers of several qualities.

    levels    three different answers, best first
    n_ranked  how many of them have a known order
    seed      of the wordings that are drawn
    """

    prompt_id: str
    levels: tuple[str, ...]
    n_ranked: int
    seed: int

    def pick(self, wordings: list[str]) -> str:
        """Draw a wording, so that no judge can be trained on one."""
        draw = make_fingerprint([self.seed, self.prompt_id, wordings])
        return wordings[int(draw[:8], 16) % len(wordings)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which is better, x or y?

    form         what is done in x
    x_tool       what a tool has said before x, whose call is then shown, too; y is words alone
    is_control   the same without it: the answer is subtracted, and each form is a probe, too
    both_orders  False: asked in one order, drawn by hash
    """

    form: str
    x: str
    y: str
    x_tool: str = ""
    is_control: bool = False
    both_orders: bool = True


@runtime_checkable
class Probe(Protocol):
    """One way in which a judge may be wrong.

    kind     bias: how often x is preferred, half the time if all is well. share: how often x wins in
             both orders, which should be rare. floor: how often x is preferred, which should be
             often. reported: how often they tie
    bound    the margin of a bias, the most of a share, the least of a floor; None: audit.delta
    not_for  the dimensions that it cannot be asked on, and why
    """

    kind: Kind
    bound: float | None
    not_for: Mapping[str, str]

    @abstractmethod
    def questions(self, case: Case) -> Iterable[Question]: ...
