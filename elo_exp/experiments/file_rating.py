"""Ratings of battles from files, with the results of the same files that were shown before."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from elo_exp.analysis import families, repeated_files, standings
from elo_exp.analysis.comparisons import find_leader
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.analysis.judge_bias import length_control
from elo_exp.analysis.missing_answers import plans_both_orders
from elo_exp.analysis.odd_answers import check_responses
from elo_exp.analysis.repeated_files import EarlierFileResult, Hashes
from elo_exp.analysis.standings import Standings
from elo_exp.data.battles import Battles
from elo_exp.experiments.battle_source import BattleSource
from elo_exp.ratings import EloMethod, RatingMethod
from elo_exp.records import make_fingerprint
from elo_exp.store.answer_store import Store
from elo_exp.store.looks import StoredResult, list_earlier_results, record_result


@dataclass(frozen=True, kw_only=True)
class FileRating:
    """The methods by which battles of files are rated.

    families  of models, by a part of their names
    """

    source: BattleSource
    elo: EloMethod
    rating: Mapping[str, RatingMethod]
    families: Mapping[str, str]

    @cached_property
    def standings_by_party(self) -> dict[str, Standings]:
        """The ratings by each judge's name. If all verdicts are rated together, their name is empty."""
        parties = self.source.separate_parties
        if not parties:
            all_battles, _ = self.source.all_battles
            return {"": self.rate(all_battles)}
        return {name: self.rate(party.battles) for name, party in parties.items()}

    def add_looks_of_battles(
        self, rated_standings: Standings, battles: Battles, store: Store
    ) -> Standings:
        """Count the results of battles that were shown before battles were added, and store that these are shown."""
        hashes = {
            name: repeated_files.hashes_of_battles(dimension_battles)
            for name, dimension_battles in rated_standings.battles.items()
            if rated_standings.n_prompts(name) is not None
        }
        return self.add_looks(
            rated_standings, self.source.find_scope(battles), hashes, store
        )

    def add_looks(
        self,
        rated_standings: Standings,
        scope: Scope,
        hashes: Mapping[str, Mapping[str, Hashes]],
        store: Store,
    ) -> Standings:
        """Store that results are shown, by dimension, and add the results that were shown before rows were added."""
        if scope.kind == "words":  # which never claims more than shared words
            return rated_standings
        earlier = dict[str, Diagnosis]()
        for dimension, hashes_by_model in hashes.items():
            subject = f"rated {make_fingerprint([scope.kind, scope.judge, dimension, self.source.filters])}"
            evidence = repeated_files.to_evidence(hashes_by_model)
            name = make_fingerprint([evidence])
            shown_files = [
                EarlierFileResult(rows=shown_result.evidence, leader=shown_result.claim)
                for shown_result in list_earlier_results(store, subject, name)
            ]
            if rows := repeated_files.find_earlier_results(
                shown_files, hashes_by_model
            ):
                earlier[dimension] = {"earlier_looks": rows}
            board, leader = rated_standings.board(dimension), None
            lead = (
                find_leader(board, rated_standings.pairs(dimension)) if board else None
            )
            if lead and not (lead.rivals or lead.level or lead.not_met):
                leader = lead.model
            result = StoredResult(name=name, evidence=evidence, claim=leader)
            record_result(store, subject, result)
        diagnoses = dict(rated_standings.diagnoses)
        for dimension, looks in earlier.items():  # of which scores have none
            diagnoses[dimension] = {**diagnoses.get(dimension, {}), **looks}
        return replace(rated_standings, diagnoses=diagnoses)

    def rate(self, battles: Battles) -> Standings:
        """Rate battles in all dimensions of the files."""
        all_battles, _ = self.source.all_battles
        rated_standings = standings.rate(
            battles.split_by_dimension(all_battles.split_by_dimension()),
            elo=self.elo,
            ratings=self.rating,
            models=all_battles.models,
        )
        missing = self.source.find_missing_battles(battles)
        if (name := standings.primary_method(self.rating)) is not None:
            method: Any = self.rating[name]
            if self.source.is_one_order_design and plans_both_orders(method):
                method = replace(method, orders="one")
            rated_standings = standings.add_missing(rated_standings, missing, method)
        kin = self._diagnose_kin(self.source.find_scope(battles), battles)
        length: dict[str, Diagnosis] = {
            name: {
                "length": length_control(
                    dimension_battles,
                    dimension=name,
                    initial_rating=self.elo.initial_rating,
                )
            }
            for name, dimension_battles in rated_standings.battles.items()
            if dimension_battles.styles
        }
        response_checks = [
            check_responses(model, responses)
            for model, responses in sorted(self.source.answers.items())
            if model in all_battles.models
        ]
        return standings.add_diagnoses(
            rated_standings, kin, length, responses=response_checks
        )

    def _diagnose_kin(self, scope: Scope, battles: Battles) -> dict[str, Diagnosis]:
        """Return the diagnosis `kin` of each dimension, if one judge is of a family with some models."""
        if scope.judge is None:
            return {}
        models = {model: [model] for model in battles.models}
        kin = families.find_judge_family(self.families, scope.judge, models)
        if not kin.models:
            return {}
        diagnosis: Diagnosis = {"kin": kin.to_diagnosis(is_allowed=False)}
        return dict.fromkeys(battles.split_by_dimension(), diagnosis)
