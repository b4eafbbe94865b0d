"""The judges whose replies may be in a store."""

import json

from elo_exp.records import JudgeIdentity
from elo_exp.store.answer_store import Store


def list_judges(store: Store) -> list[JudgeIdentity]:
    """Return whose replies may be in a store, the first to be asked first."""
    rows = store.query("SELECT key, judge_model, reads FROM judges ORDER BY rowid")
    return [
        JudgeIdentity(key=key, judge_model=model, key_fields=tuple(json.loads(names)))
        for key, model, names in rows
    ]


def add_judge(store: Store, judge: JudgeIdentity) -> None:
    """Note that replies of a judge may be in a store."""
    if not store.query("SELECT 1 FROM judges WHERE key = ?", [judge.key]):
        row = (judge.key, judge.judge_model, json.dumps(judge.key_fields))
        add = "INSERT INTO judges VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        store.write(lambda db: db.execute(add, row))
