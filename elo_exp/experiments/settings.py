"""Settings that experiments with entrants share: conf/judged.yaml, conf/mode/ and conf/study/."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elo_exp.data.conversations import ViewSettings
from elo_exp.errors import SettingError
from elo_exp.types import Count, Dollars, Families, Natural, Orders, Share


@dataclass(kw_only=True)
class BankSettings:
    """The bank of an audit."""

    bank_path: str


@dataclass(kw_only=True)
class Study:
    """Which bank, header, rubrics and strata belong together: conf/study/. Header and rubrics stand in the group rubric.

    stratum    column of the bank by whose values ratings are compared; None: none
    bank_path  the bank that header and rubrics are written for; None: any
    """

    name: str
    stratum: str | None
    bank_path: str | None


@dataclass(kw_only=True)
class EntrantServerSettings:
    """The server of entrants that a word of the command has named, api:NAME; they take its settings themselves."""

    base_url: str | None
    key_variable: str | None


@dataclass(kw_only=True)
class PromptSettings:
    """Which prompts entrants answer.

    bank_path  None: the prompts that the answers are to
    n          so many, drawn; None: all
    cluster    column of the bank that names prompts that are one observation; None: none does
    history    of conversations of an arena: keep model_a's words, ask the last turn
    """

    bank_path: str | None
    n: Count | None
    cluster: str | None
    history: bool

    @property
    def path(self) -> Path:
        """The bank. Raises SettingError for none."""
        if self.bank_path is None:
            raise build_no_prompts_error("There are no prompts.")
        return Path(self.bank_path)


@dataclass(kw_only=True)
class JudgingOptions:
    """How judges are asked, and what stops them.

    limit_pairs   the first so many pairs of each dimension; None: all
    stored_only   use cached answers and verdicts only
    repeats       times that each query is judged; the first counts
    budget_usd    never spend more
    canary        first new replies or answers that are read before others are paid for
    max_invalid   share of a judge's replies beyond which it is asked no more
    flip_share    with orders=one, comparisons judged in both orders all the same
    families      of models, by a part of their names
    allow_equal   have a paid judge compare entrants whose answers are all equal
    """

    limit_pairs: Count | None
    stored_only: bool
    repeats: Count
    budget_usd: Dollars
    canary: Natural
    max_invalid: Share
    orders: Orders
    flip_share: Share
    families: Families
    self_judging: Literal["warn", "exclude", "allow"]
    allow_equal: bool
    shown: ViewSettings

    def __post_init__(self) -> None:
        if self.flip_share and self.orders != "one":
            raise SettingError(
                f"judging.flip_share must be 0 unless judging.orders=one, as other comparisons always use both orders; "
                f"got {self.flip_share}."
            )

    @property
    def both_orders(self) -> float:
        """The share of comparisons judged in both orders."""
        return self.flip_share if self.orders == "one" else 1.0


@dataclass(kw_only=True)
class ModeSettings:
    """How large a run is.

    strata        prompts by source; empty: the whole bank
    prompt_cache  what a judge with a prompt cache does about it: measured, 1h, 5m, none
    """

    name: str
    strata: dict[str, Count]
    pilot_seed: Natural
    prompt_cache: str


def build_no_prompts_error(problem: str) -> SettingError:
    """Build the error for a run without prompts, from a sentence that says why there are none."""
    return SettingError(
        f"{problem} Give answer files that hold their prompts, or choose prompts:",
        "  prompts=FILE    a file of prompts (docs/formats.md)",
        "  preset=medical  the bundled prompts",
    )
