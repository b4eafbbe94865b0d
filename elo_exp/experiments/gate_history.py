"""Results of a gate that were shown before and have used alpha; the cache keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass

from elo_exp.analysis.noninferiority import PointShare, decide_gate
from elo_exp.analysis.repeated_gates import (
    EarlierGateResult,
    EarlierGates,
    sum_up_earlier_gates,
)
from elo_exp.experiments.gate_baseline import GateSettings
from elo_exp.records import Judgment, make_fingerprint
from elo_exp.report.viewer import Judgments
from elo_exp.store.answer_store import Store
from elo_exp.store.looks import StoredResult, list_earlier_results, record_result

_PROMPT_KEY_CHARS, _VERDICT_KEY_CHARS = 8, 16
# Stands for the verdicts on a prompt with the baseline's answer
_EQUAL_ANSWERS_KEY = "equal"


@dataclass(frozen=True, kw_only=True)
class GateHistory:
    """The shown results of gates by a judge."""

    settings: GateSettings
    judge_model: str
    store: Store

    def load(self, judgments_by_dimension: Judgments) -> dict[str, EarlierGates]:
        """Read the results that were shown of this candidate before prompts were added, by dimension."""
        gates_by_dimension = {}
        for name, judgments in judgments_by_dimension.items():
            verdicts, result = (
                _group_verdicts_by_prompt(judgments),
                self._name_result(judgments),
            )
            shown_gates = [
                EarlierGateResult(
                    verdicts={
                        prompt: {*keys}
                        for prompt, keys in shown_result.evidence["verdicts"].items()
                    },
                    alpha=shown_result.evidence["alpha"],
                    margin=shown_result.evidence["margin"],
                    claim=shown_result.claim,
                )
                for shown_result in list_earlier_results(
                    self.store, self._name_subject(name), result
                )
            ]
            gates_by_dimension[name] = sum_up_earlier_gates(
                shown_gates, verdicts, margin=self.settings.margin
            )
        return gates_by_dimension

    def add(
        self,
        dimension: str,
        share: PointShare,
        earlier: EarlierGates,
        judgments: Sequence[Judgment],
    ) -> None:
        """Store the result of a dimension that is shown, with its claim at the remaining alpha."""
        alpha, margin = self.settings.alpha, self.settings.margin
        bounds = decide_gate([share], margin)
        is_claimed = (
            bounds != "cannot tell" and earlier.claim_alpha(bounds, alpha) > 0.0
        )
        verdicts = _group_verdicts_by_prompt(judgments)
        result = StoredResult(
            name=self._name_result(judgments),
            evidence={
                "verdicts": {name: sorted(keys) for name, keys in verdicts.items()},
                "alpha": {
                    "pass": 0.0
                    if share.low is None
                    else earlier.alpha_left("pass", alpha),
                    "fail": earlier.alpha_left("fail", alpha),
                },
                "margin": margin,
            },
            claim=bounds if is_claimed else None,
        )
        record_result(self.store, self._name_subject(dimension), result)

    def _name_subject(self, dimension: str) -> str:
        return f"gate {self.judge_model} {dimension}"

    def _name_result(self, judgments: Sequence[Judgment]) -> str:
        """Return the name of a result: the same verdicts, alpha and margin show nothing new."""
        verdicts = _group_verdicts_by_prompt(judgments)
        rows = sorted((name, sorted(keys)) for name, keys in verdicts.items())
        return make_fingerprint([rows, self.settings.alpha, self.settings.margin])


def _group_verdicts_by_prompt(judgments: Sequence[Judgment]) -> dict[str, set[str]]:
    """Group the keys of the verdicts by prompt, cut to the characters that tell them apart."""
    keys_by_prompt: dict[str, set[str]] = {}
    for judgment in judgments:
        verdicts = keys_by_prompt.setdefault(
            make_fingerprint([judgment.prompt_id])[:_PROMPT_KEY_CHARS], set()
        )
        if judgment.equal_answers:
            verdicts.add(_EQUAL_ANSWERS_KEY)
        verdicts.update(
            verdict.cache_key[:_VERDICT_KEY_CHARS] for verdict in judgment.raw
        )
    return keys_by_prompt
