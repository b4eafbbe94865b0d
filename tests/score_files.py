"""Result files of programs that score items, as they write them."""

from typing import Any


def inspect_log(model: str, values: Any, *, n_epochs: int = 1) -> dict[str, Any]:
    samples = [
        {
            "id": i,
            "epoch": epoch,
            "metadata": {"topic": f"t{i % 3}"},
            "scores": {"match": {"value": value}},
        }
        for epoch in range(1, n_epochs + 1)
        for i, value in enumerate(values)
    ]
    header = {"eval": {"task": "quiz", "model": model}, "status": "success"}
    return {**header, "samples": samples}


def lm_eval_rows(values: Any, **others: Any) -> list[dict[str, Any]]:
    return [
        {
            "doc_id": i,
            "doc_hash": f"h{i}",
            "doc": {"subject": i % 2},
            "target": "A",
            "filtered_resps": ["A"],
            "metrics": ["acc"],
            "acc": value,
            **others,
        }
        for i, value in enumerate(values)
    ]


def promptfoo_results(**by_provider: list[float]) -> dict[str, Any]:
    rows = [
        {
            "testIdx": i,
            "promptIdx": n,
            "provider": {"id": name, "label": ""},
            "prompt": {"label": "Q: {{q}}"},
            "vars": {"q": f"question {i}", "sessionId": f"{name} {i}"},
            "score": value,
            "namedScores": {"tone": 1 - value},
            "failureReason": 0,
        }
        for n, (name, values) in enumerate(by_provider.items())
        for i, value in enumerate(values)
    ]
    return {"evalId": "e", "results": {"version": 3, "results": rows}}
