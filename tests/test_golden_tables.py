"""Golden files of what is printed without a page: plans, looks, bills and what a store holds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from elo_exp.experiments.store import ManageStore
from elo_exp.pipeline.plan_table import looks_table, plan_table, spend
from elo_exp.pipeline.planning import Plan, PlanRow
from elo_exp.store.answer_store import Store
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import Ledger
from elo_exp.store.usage import Usage
from tests import golden
from tests.experiments import opened
from tests.test_store_actions import EVERYTHING

ROW = PlanRow(
    dimension="factuality",
    n_prompts=143,
    n_entrants=4,
    pairs=858,
    queries=1716,
    stored=16,
    under_way=0,
    new=1600,
    input_tokens=5_834_400,
    output_tokens=943_800,
    dollars=12.5,
    dollars_plain=37.5,
)


def row(**changes: Any) -> PlanRow:
    return dataclasses.replace(ROW, **changes)


def plan_of(*rows: PlanRow, **changes: Any) -> Plan:
    shown = {"judge_model": "claude-opus-5-5", "rows": rows, "budget_usd": 100.0}
    return Plan(**{**shown, "budget_setting": "judging.budget_usd", **changes})


PLANS = (
    plan_of(
        row(counted=3, under_way=50, new=1550),
        row(dimension="[bold]", counted=6, new=1500, left_out=100, dollars=0.211),
    ),
    plan_of(row(n_prompts=1, n_entrants=2)),
    plan_of(row(), row(dimension="calibration"), budget_usd=20.0, spent_usd=7.75),
    plan_of(row(new=0, dollars=0.0, dollars_plain=0.0), budget_usd=None),
    plan_of(row(pairs=1716), what="scores"),
    plan_of(row(), what="audit verdicts"),
    plan_of(budget_usd=0.0),
)


def test_plans():
    golden.same("plan.txt", "\n\n".join(map(plan_table, PLANS)))


def test_looks():
    rows = [row(both_orders=0.0), row(dimension="tone", n_prompts=40, n_entrants=2)]
    plan = plan_of(*rows, budget_usd=None)
    tables = [looks_table(plan, 5, drop=False), looks_table(plan, 3, drop=True)]
    golden.same("looks.txt", "\n\n".join(tables))


def test_bills():
    paid = Usage(
        dollars=1.0,
        dollars_at_most=1.0,
        dollars_by_dimension={"factuality": 0.375, "calibration": 0.625},
        input_tokens=900,
        cache_write_5m_tokens=2000,
        cache_write_1h_tokens=2500,
        cache_read_tokens=2500,
        output_tokens=700,
    )
    one_lost, two_lost = dataclasses.replace(paid), Usage()
    one_lost.add_lost_calls(0.5)
    for _ in range(2):
        two_lost.add_lost_calls(0.25)
    bills = [Usage(), paid, one_lost, two_lost]
    golden.same("bills.txt", "\n".join(map(spend, bills)))


def listed(folder: Path, *words: str) -> str:
    """What experiment=store prints, with names in place of random nonces and sizes."""
    with opened(folder, "experiment=store", *words) as (job, context):
        assert isinstance(job.experiment, ManageStore)
        job.experiment.dry_run(context)
        said = job.experiment.act(context)
    said = said.replace(str(folder), "FOLDER")
    said = re.sub(r"open batch: \w+", "open batch: NONCE", said)
    said = re.sub(r"spent in \d{4}-\d\d", "spent in MONTH", said)
    return re.sub(r"[\d.]+ MB", "N MB", said)


def test_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    empty = listed(tmp_path)
    with Store(tmp_path / "cache/store.sqlite") as store:
        store.commit(EVERYTHING)
        with Claims(store) as claims:
            keys = [f"key {n}" for n in range(1203)]
            claims.take(keys)
            claims.record_call("key 0", 0.25)
            claims.end_call("key 0", lost="reset")
            ledger = Ledger(store, claims.owner)
            submit = {"judge_model": "claude-opus-5-5", "ttl": None, "high_water": None}
            for first, last in ((1, 1201), (1201, 1203)):
                batch = ledger.record_intent(
                    {key: {} for key in keys[first:last]},
                    [0.01] * (last - first),
                    endpoint="https://api.example.com",
                    now=1.8e9,
                    **submit,
                )
                assert batch is not None
                if first == 1:
                    ledger.mark_submitted(batch, "msgbatch_1")
                    ledger.add_note(batch, "cancelled by the user")
    golden.same("store.txt", f"{empty}\n\n{listed(tmp_path)}")
