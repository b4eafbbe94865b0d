"""Gates that are decided again after prompts were added: what the earlier results have used of alpha.

A gate that looks at 60 prompts, adds 60 and looks again has two chances to pass a candidate at the margin. Each
result that was shown has used the alpha of its test, and a later one is tested with the alpha that is left
(Bonferroni), so that all of them together err in at most alpha.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

CLAIMS = ("pass", "fail")
# A smaller alpha is rounding
_MIN_ALPHA = 1e-9

Evidence = Mapping[str, Set[str]]  # verdicts of the candidate by prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierGateResult:
    """A result of one dimension that was shown.

    verdicts  on which it rests, by prompt; none of a prompt without a verdict
    alpha     at which each claim was tested, "pass" and "fail"; 0 if it could not be made
    margin    that it was tested against
    claim     "pass" or "fail" if its bounds show it, else None
    """

    verdicts: Evidence
    alpha: Mapping[str, float]
    margin: float
    claim: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierGates:
    """What was shown of a candidate before prompts or verdicts were added.

    n_looks  results that were shown
    spent    the alpha of their tests, by claim
    claims   "pass" or "fail", if one of them has shown it: to show it again adds no error
    """

    n_looks: int = 0
    spent: Mapping[str, float] = field(default_factory=dict)
    claims: Set[str] = frozenset()

    def claim_alpha(self, claim: str, alpha: float) -> float:
        """Return at which level a claim is tested, of alpha for all looks together; 0 if nothing is left.

        Examples
        --------
        >>> EarlierGates(n_looks=1, spent={"pass": 0.02}).claim_alpha("pass", 0.05)
        0.03
        >>> EarlierGates(n_looks=1, spent={"pass": 0.05}, claims={"pass"}).claim_alpha("pass", 0.05)
        0.05
        """
        return alpha if claim in self.claims else self.alpha_left(claim, alpha)

    def alpha_left(self, claim: str, alpha: float) -> float:
        """Return what the tests of a claim have left of alpha."""
        left = round(alpha - self.spent.get(claim, 0.0), 9)
        return left if left > _MIN_ALPHA else 0.0


def sum_up_earlier_gates(
    earlier_results: Sequence[EarlierGateResult], verdicts: Evidence, *, margin: float
) -> EarlierGates:
    """Return what was shown of this candidate before prompts or verdicts were added to it.

    Parameters
    ----------
    earlier_results : sequence of EarlierGateResult
        Results of this dimension that were shown before, of any candidate.
    verdicts : mapping of str to set of str
        On which the present result rests, by prompt.
    margin : float
        Against which it is tested: a pass with a larger margin shows nothing for this one.

    Returns
    -------
    EarlierGates
        Of the results to which the present one adds. The same verdicts, tested twice, have used the larger alpha.
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
    """Return whether verdicts are those of an earlier result, and more.

    A candidate with other answers has other verdicts, and is another candidate: more than half of the prompts that
    both have must have the verdicts that they had.

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
