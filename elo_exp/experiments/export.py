"""A run's verdicts as files that other programs read: evalica's csv, scores for inspect_ai."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from statistics import fmean

from elo_exp.data.battles import Battles
from elo_exp.experiments import Context, Report
from elo_exp.files import safe_name, write_csv, write_jsonl
from elo_exp.runs.reading import read_runs

_SCORES = {"left": 1.0, "tie": 0.5, "right": 0.0}


@dataclass(kw_only=True)
class Export:
    folder: str

    @property
    def opening(self) -> str:
        return f"verdicts of {self.folder}"

    def dry_run(self, context: Context) -> None:
        read_runs([self.folder])

    def run(self, context: Context) -> Report:
        """Write by dimension every verdict, and each entrant's share of those on a prompt."""
        written = []
        for name, battles in read_runs([self.folder])[0][0].battles().items():
            to, rows = context.run_dir / safe_name(name), list(verdicts(battles))
            written.append(write_csv(to / "evalica.csv", rows))
            for model in battles.models:
                won = defaultdict(list)
                for row in rows:
                    if model in (row["left"], row["right"]):
                        left = _SCORES[row["winner"]]
                        share = left if model == row["left"] else 1.0 - left
                        won[row["prompt"]].append(share)
                shares = [{"id": p, "value": fmean(own)} for p, own in won.items()]
                path = to / f"inspect_{safe_name(model)}.jsonl"
                written.append(write_jsonl(path, shares))
        text = f"{len(written)} files for evalica and inspect_ai"
        return Report(headline=math.nan, text=text, artifacts=written)


def verdicts(battles: Battles) -> Iterator[dict[str, str]]:
    """Yield each valid verdict, the answer shown first on the left: evalica's rows.

    A battle without verdicts has its winner.
    """
    for battle in battles.rows():
        a, b, ba = battle.model_a, battle.model_b, battle.verdict_ba
        ab = battle.verdict_ab or (None if ba else battle.winner)
        for left, right, word, won in ((a, b, ab, "model_a"), (b, a, ba, "model_b")):
            if word:
                side = "left" if word == won else "right"
                verdict = {
                    "left": left,
                    "right": right,
                    "winner": "tie" if word.startswith("tie") else side,
                    "prompt": battle.question_id or "",
                    "judge_model": battle.judge_model or "",
                }
                yield from repeat(verdict, battle.count or 1)
