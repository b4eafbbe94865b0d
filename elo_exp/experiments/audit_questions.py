"""The questions of an audit: pairs of answers with a known better one, built by tests or labelled by people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from elo_exp import pipeline
from elo_exp.analysis.audit_decisions import AskedQuestion
from elo_exp.analysis.families import find_family
from elo_exp.data import bank, conversations, labelled_pairs
from elo_exp.data.column_roles import Columns
from elo_exp.data.labelled_pairs import GoldPair
from elo_exp.data.pairing import choose_orders
from elo_exp.data.rubrics import Rubric
from elo_exp.entrants.probe import ProbeEntrant
from elo_exp.judges import Judge
from elo_exp.probes import Case, Probe, Question
from elo_exp.records import (
    JudgeIdentity,
    JudgeRequest,
    Message,
    Prompt,
    ToolCall,
    make_fingerprint,
)
from elo_exp.types import Count, Families, Integer, Positive, Share

_N_RANKED_LEVELS_BY_BEHAVIOR = {
    "answer": 3,
    "hedge": 2,
    "abstain": 3,
}


@dataclass(kw_only=True)
class AuditSettings:
    """Settings of an audit: its questions, and the margins of its tests."""

    n_prompts: Count | None
    delta: Positive
    retest_share: Share
    seed: Integer
    paraphrases: dict[str, list[str]] | None
    gold: str | None
    families: Families


@dataclass(frozen=True, kw_only=True)
class AuditPrompts:
    """The material of the questions: prompts with answers of known quality, and labelled pairs.

    levels   entrants whose answers are of known quality, best first
    columns  the column of each role, in the file of labelled pairs
    """

    settings: AuditSettings
    bank_path: str
    levels: Mapping[str, ProbeEntrant]
    columns: Columns

    @cached_property
    def bank(self) -> list[Prompt]:
        """All prompts."""
        return bank.load_bank(Path(self.bank_path))

    @property
    def turn_counts(self) -> tuple[int, int]:
        """The number of prompts with several turns, which an audit leaves out, and of all prompts."""
        n = sum(conversations.n_turns(prompt) != 1 for prompt in self.bank)
        return n, len(self.bank)

    @cached_property
    def gold(self) -> list[GoldPair]:
        """The labelled pairs."""
        path = self.settings.gold
        return labelled_pairs.read_pairs(Path(path), self.columns) if path else []

    def make_cases(self, rubric: Rubric) -> list[tuple[Prompt, Case]]:
        """Return prompts with answers of three qualities, made of references or of behaviours.

        The order of behaviours is known where the rubric shows which one is expected; to a prompt
        that expects a hedge, an answer is as wrong as an abstention.
        """
        seed, cases = self.settings.seed, []
        one_turn = [p for p in self.bank if conversations.n_turns(p) == 1]
        prompts = filter(rubric.applies_to, one_turn)
        for prompt in sorted(
            prompts, key=lambda p: make_fingerprint([seed, p.prompt_id])
        ):
            levels = tuple(level.answer(prompt) for level in self.levels.values())
            by_reference = bool(prompt.gold_answer)
            n_ranked = (
                3
                if by_reference
                else _N_RANKED_LEVELS_BY_BEHAVIOR.get(prompt.expected_behavior or "", 0)
            )
            if by_reference == rubric.shows_expected_behavior:
                n_ranked = 0
            name = prompt.prompt_id
            case = Case(prompt_id=name, levels=levels, n_ranked=n_ranked, seed=seed)
            if len(set(levels)) == len(levels):
                cases.append((prompt, case))
        return cases[: self.settings.n_prompts]


@dataclass(frozen=True, kw_only=True)
class AuditQuestions:
    """The questions of one judge."""

    prompts: AuditPrompts
    rubric: Mapping[str, Rubric]
    probe: Mapping[str, Probe]
    judge: Judge

    @property
    def settings(self) -> AuditSettings:
        """The settings of the audit."""
        return self.prompts.settings

    @cached_property
    def identity(self) -> JudgeIdentity:
        """The names by which the store knows the judge's replies. Raises UserError for a model that is absent."""
        return pipeline.identify(self.judge)

    @cached_property
    def question_groups(self) -> dict[str, list[AskedQuestion]]:
        """All questions by dimension."""
        return {
            rubric.dimension: [*self._ask_probes(rubric), *self._ask_gold(rubric)]
            for rubric in self.rubric.values()
        }

    @property
    def queries(self) -> list[JudgeRequest]:
        """The requests to the judge."""
        return [
            query
            for questions in self.question_groups.values()
            for question in questions
            for query in question.queries
        ]

    def _ask_probes(self, rubric: Rubric) -> Iterator[AskedQuestion]:
        """Yield the questions of the probes: twice on a share of the prompts, and for a ladder
        also under paraphrases."""
        cases = self.prompts.make_cases(rubric)
        n_retests = self.settings.retest_share * len(cases)
        files = (self.settings.paraphrases or {}).get(rubric.dimension, [])
        for (i, (prompt, case)), name in product(enumerate(cases), self.probe):
            probe = self.probe[name]
            if rubric.dimension in probe.not_for:
                continue
            paths = files if probe.kind == "floor" else []
            retest = [rubric] if i < n_retests or paths else []
            paraphrased_rubrics = [
                replace(rubric, path=path, text=None) for path in paths
            ]
            for n, question in enumerate(probe.questions(case)):
                yield self._make_question(
                    prompt,
                    f"{name}: {question.form} {n}",
                    [rubric, *retest, *paraphrased_rubrics],
                    probe=name,
                    kind=probe.kind,
                    bound=self.settings.delta if probe.bound is None else probe.bound,
                    question=question,
                    paraphrases=paths,
                )

    def _ask_gold(self, rubric: Rubric) -> Iterator[AskedQuestion]:
        """Yield questions on labelled pairs; equal pairs with one author of the judge's family
        measure whether it prefers its own, which is x."""
        families = self.settings.families
        own_family = find_family(families, self.judge.model)
        for pair in self.prompts.gold:
            subset, probe, name = pair.subset or "all", "", "gold"
            prompt = Prompt(
                prompt_id=pair.pair_id,
                text=pair.prompt,
                source=subset,
                subject="gold",
                gold_answer=pair.reference,
            )
            if not rubric.applies_to(prompt):
                continue
            x, y = pair.response_a, pair.response_b
            authors = pair.author_a or "", pair.author_b or ""
            is_own = [own_family == (find_family(families, a) or "") for a in authors]
            if pair.label == "tie" and sum(is_own) == 1:
                probe = name = f"self: {subset}"
                x, y = (y, x) if is_own[1] else (x, y)
            yield self._make_question(
                prompt,
                name,
                [rubric],
                probe=probe,
                kind="bias",
                bound=2 * self.settings.delta,
                question=Question(form=name, x=x, y=y),
            )

    def _make_question(
        self, prompt: Prompt, name: str, wordings: Sequence[Rubric], **about: Any
    ) -> AskedQuestion:
        """Make a question with a query for each wording of the rubric; each wording is one repeat."""
        question: Question = about["question"]
        x, y, in_turns = question.x, question.y, bool(question.x_tool)
        if in_turns:
            x = conversations.transcript(_add_tool_call(question.x_tool, x))
            y = conversations.transcript([Message(role="assistant", content=y)])
        comparison = wordings[0].compare(
            prompt,
            entrant_a=name,
            entrant_b="other",
            response_a=x,
            response_b=y,
            in_turns=in_turns,
        )
        queries = [
            rubric.request(
                comparison,
                judge=self.identity.key,
                position_swap=swap,
                repeat=repeat,
                key_fields=self.identity.key_fields,
            )
            for repeat, rubric in enumerate(wordings)
            for swap in choose_orders(comparison, float(question.both_orders))
        ]
        return AskedQuestion(comparison=comparison, queries=queries, **about)


def _add_tool_call(tool_output: str, answer: str) -> list[Message]:
    """Put a call of a tool, and the tool's output, in front of an answer."""
    call = ToolCall(call_id="1", name="search", arguments='{"query": "the question"}')
    return [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=tool_output, tool_call_id="1", name="search"),
        Message(role="assistant", content=answer),
    ]
