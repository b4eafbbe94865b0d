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


def promptfoo_lines(**by_provider: list[float]) -> list[dict[str, Any]]:
    """The same results as rows of a file with a line for each."""
    results: list[dict[str, Any]] = promptfoo_results(**by_provider)["results"][
        "results"
    ]
    return results


def promptfoo_csv(**by_provider: list[float]) -> str:
    head = ["q", *(f"[{name}] Q: {{{{q}}}}" for name in by_provider)]
    lines = [",".join(head)]
    for i, values in enumerate(zip(*by_provider.values(), strict=True)):
        marks = ("[PASS] yes" if value else "[FAIL] no" for value in values)
        lines.append(",".join([f"question {i}", *marks]))
    return "\n".join(lines) + "\n"


def openai_evals_lines(model: str, values: list[float]) -> list[dict[str, Any]]:
    spec = {
        "completion_fns": [model],
        "eval_name": "rivers.dev.v0",
        "base_eval": "rivers",
    }
    events = [
        {"sample_id": f"rivers.dev.{i}", "type": kind, "data": data}
        for i, value in enumerate(values)
        for kind, data in (
            ("sampling", {"prompt": "Q", "sampled": ["A"]}),
            ("match", {"correct": bool(value), "expected": "A", "picked": "A"}),
        )
    ]
    return [{"spec": spec}, *events, {"final_report": {"accuracy": 0.5}}]


def swe_bench_report(values: list[float]) -> dict[str, Any]:
    ids = [f"django__django-{i}" for i in range(len(values))]
    resolved = [name for name, value in zip(ids, values, strict=True) if value]
    return {
        "total_instances": len(ids),
        "submitted_ids": ids,
        "resolved_ids": resolved,
        "unresolved_ids": [name for name in ids if name not in resolved],
        "schema_version": 2,
    }


def deepeval_run(values: list[float]) -> dict[str, Any]:
    cases = [
        {
            "name": f"test_case_{i}",
            "input": f"question {i}",
            "actualOutput": "yes",
            "metricsData": [
                {"name": "Correctness", "score": value, "success": value > 0.5},
                {"name": "Tone", "score": 1 - value, "success": True},
            ],
        }
        for i, value in enumerate(values)
    ]
    return {"testCases": cases, "metricsScores": [], "testPassed": 1, "testFailed": 1}
