"""The alpha that earlier results of a gate have used, if prompts are added and the gate runs again.

A gate that runs on 60 prompts and again on 120 has two chances to pass a candidate at the margin. Each result that was
shown has used the alpha of its test. A later result is tested with the remaining alpha (Bonferroni), so all results
together err in at most alpha.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

CLAIMS = ("pass", "fail")
# A smaller alpha is rounding
_MIN_ALPHA = 1e-9

Evidence = Mapping[str, Set[str]]  # verdicts of the candidate by prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierGateResult:
    """A result on one dimension that was shown.

    verdicts  verdicts that it rests on, by prompt; empty for a prompt without a verdict
    alpha     level of the tests of "pass" and "fail"; 0 if a claim could not be made
    margin    margin of the test
    claim     "pass" or "fail" if the bounds show it, otherwise None
    """

    verdicts: Evidence
    alpha: Mapping[str, float]
    margin: float
    claim: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierGates:
    """The results of a candidate that were shown before prompts or verdicts were added.

    n_looks  number of results that were shown
    spent    alpha of their tests, by claim
    claims   claims that a result has shown ("pass", "fail"): to show a claim again adds no error
    """

    n_looks: int = 0
    spent: Mapping[str, float] = field(default_factory=dict)
    claims: Set[str] = frozenset()

    def claim_alpha(self, claim: str, alpha: float) -> float:
        """Return the level at which a claim is tested, out of alpha for all results; 0 if nothing is left.

        Examples
        --------
        >>> EarlierGates(n_looks=1, spent={"pass": 0.02}).claim_alpha("pass", 0.05)
        0.03
        >>> EarlierGates(n_looks=1, spent={"pass": 0.05}, claims={"pass"}).claim_alpha("pass", 0.05)
        0.05
        """
        return alpha if claim in self.claims else self.alpha_left(claim, alpha)

    def alpha_left(self, claim: str, alpha: float) -> float:
        """Return the alpha that the tests of a claim have left."""
        left = round(alpha - self.spent.get(claim, 0.0), 9)
        return left if left > _MIN_ALPHA else 0.0


def sum_up_earlier_gates(
    earlier_results: Sequence[EarlierGateResult], verdicts: Evidence, *, margin: float
) -> EarlierGates:
    """Return the results of this candidate that were shown before prompts or verdicts were added.

    Parameters
    ----------
    earlier_results : sequence of EarlierGateResult
        Earlier results on this dimension, of any candidate.
    verdicts : mapping of str to set of str
        Verdicts that the present result rests on, by prompt.
    margin : float
        Margin of the present test. A pass with a larger margin shows nothing for it.

    Returns
    -------
    EarlierGates
        Sum of the results to which the present one adds. Verdicts that were tested twice have used the larger alpha.
    """
    extended_results = [
        result for result in earlier_results if adds_to(verdicts, result.verdicts)
    ]
    alpha_by_evidence: dict[
        frozenset[tuple[str, frozenset[str]]], dict[str, float]
    ] = {}
    for result in extended_results:
        evidence = frozenset(
            (name, frozenset(verdict_keys))
            for name, verdict_keys in result.verdicts.items()
        )
        alphas = alpha_by_evidence.setdefault(evidence, {})
        for claim, alpha in result.alpha.items():
            alphas[claim] = max(alphas.get(claim, 0.0), alpha)
    spent = {
        claim: sum(alphas.get(claim, 0.0) for alphas in alpha_by_evidence.values())
        for claim in CLAIMS
    }
    claims = {
        result.claim
        for result in extended_results
        if result.claim and (result.claim == "fail" or result.margin <= margin)
    }
    return EarlierGates(n_looks=len(alpha_by_evidence), spent=spent, claims=claims)


def adds_to(now: Evidence, before: Evidence) -> bool:
    """Return whether verdicts contain those of an earlier result, and more.

    A candidate with other answers has other verdicts and is another candidate. So more than half of the shared prompts
    must keep their verdicts.

    Parameters
    ----------
    now, before : mapping of str to set of str
        Verdicts by prompt.

    Returns
    -------
    bool
        False if nothing was added.

    Examples
    --------
    >>> adds_to({"p": {"1"}, "q": {"2"}}, {"p": {"1"}})
    True
    >>> adds_to({"p": {"1"}, "q": {"2"}}, {"p": {"9"}})
    False
    """
    common_prompts = [
        name for name, verdicts in before.items() if verdicts and name in now
    ]
    unchanged_prompts = [name for name in common_prompts if before[name] <= now[name]]
    if 2 * len(unchanged_prompts) <= len(common_prompts):
        return False
    return any(
        verdicts and (name not in before or before[name] < verdicts)
        for name, verdicts in now.items()
    )
