"""What is found out about a judge: its taste for a place or a length, and whom it agrees with."""

from __future__ import annotations

from dataclasses import dataclass

from elo_exp.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionEffect(Record):
    """How much it helps a response to be shown first; None where the verdicts do not say."""

    dimension: str
    n_prompts: int  # with a decisive verdict
    n_verdicts: int  # single ones, of battles that were asked in both orders
    n_decisive: int  # those that name a winner: all that is used
    effect: float | None = None  # log-odds; above zero the first shown wins more often
    std_error: float | None = None  # prompt-clustered
    p_first: float | None = None  # that of two equal responses the first shown wins, if either does
    ci_low: float | None = None  # of p_first
    ci_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthEffect(Record):
    """How much it helps a response to be longer: log-odds effect * tanh(difference / scale); None where the games do
    not say."""

    dimension: str
    n_prompts: int
    n_games: int
    n_without_length: int  # battles left out, because the length of a response is unknown
    scale: float | None = None  # characters: the root mean square difference of two responses
    effect: float | None = None
    std_error: float | None = None  # prompt-clustered
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRating(Record):
    """A model's Bradley-Terry rating as it is, and between responses of equal length; from the same games."""

    dimension: str
    model: str
    mean_length: float  # characters, over the games
    rating: float | None = None
    std_error: float | None = None
    rating_at_equal_length: float | None = None
    std_error_at_equal_length: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthTercile(Record):
    """How often the longer response wins, a tie being half a win, where lengths differ by so many characters."""

    dimension: str
    shortest: int  # the least difference, in characters
    longest: int
    n_prompts: int
    n_games: int
    win_rate: float
    std_error: float | None = None  # prompt-clustered


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControl:
    """The length effect and what it does to the ratings; best first."""

    effect: LengthEffect
    ratings: tuple[LengthRating, ...]
    terciles: tuple[LengthTercile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement(Record):
    """How often two agree on the same comparisons, and Cohen's kappa; None where there is nothing to compare, or where
    both always say the same thing, which chance would do as well."""

    first: str
    second: str
    dimension: str | None  # None: the two are dimensions
    n_comparisons: int
    n_prompts: int
    agreement: float | None = None
    kappa: float | None = None
    std_error: float | None = None  # of kappa, prompt-clustered
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCorrelation(Record):
    """Spearman's, over the models that both leaderboards rate; None for fewer than three, or if one has no order."""

    first: str
    second: str
    dimension: str
    n_models: int
    rho: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResidual(Record):
    """How often one model beats another, a tie being half a win, beside what Bradley-Terry expects."""

    dimension: str
    model_a: str
    model_b: str
    n_games: int
    observed: float
    expected: float
    z: float | None = (
        None  # the difference in its own prompt-clustered standard errors, as if Bradley-Terry were true
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles(Record):
    """How often three models beat one another in a circle, each having met both others on a prompt."""

    dimension: str
    models: tuple[str, ...]  # all, or the three of one triple
    n_prompts: int  # on which such a triple met
    n_cyclic_prompts: int  # on which one of them is a circle
    n_triples: int  # over all prompts
    n_cyclic: int

    @property
    def share(self) -> float | None:
        """Of prompts with a circle."""
        return self.n_cyclic_prompts / self.n_prompts if self.n_prompts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitivityTest(Record):
    """Whether one rating for each model is enough to say who beats whom; None where the games do not say."""

    dimension: str
    n_models: int  # with a rating
    n_pairs: int  # of them that met
    n_prompts: int  # there is no test unless there are more than `df`
    df: int  # pairs that are free once the ratings are known
    chi_square: float | None = None  # robust: prompt-clustered; n_prompts at most
    p_value: float | None = None
