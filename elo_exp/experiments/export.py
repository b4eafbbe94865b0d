"""Export of a run's verdicts for other programs: a CSV for evalica, scores for inspect_ai."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from elo_exp.data.battles import Battles
from elo_exp.errors import FileError
from elo_exp.experiments import Context, Experiment, Report
from elo_exp.files import escape_name, write_csv, write_jsonl
from elo_exp.runs.reading import read_runs

# In evalica's file; ten million rows are about a gigabyte
MAX_EVALICA_ROWS = 10_000_000
_LEFT_SCORE_BY_WINNER = {"left": 1.0, "tie": 0.5, "right": 0.0}


@dataclass(kw_only=True)
class Export(Experiment):
    folder: str

    @property
    def opening(self) -> str:
        return f"verdicts of {self.folder}"

    def dry_run(self, context: Context) -> None:
        read_runs([self.folder])

    def run(self, context: Context) -> Report:
        """Write the verdicts of each dimension, and the win rate of each entrant by prompt."""
        written_paths = []
        for name, battles in read_runs([self.folder])[0][0].battles().items():
            n = sum(count for _, count in iterate_verdicts(battles))
            if n > MAX_EVALICA_ROWS:
                raise FileError(
                    f"{self.folder} has {n:,} verdicts on {name}; an evalica file takes at most {MAX_EVALICA_ROWS:,}. "
                    "Rate its battles directly:",
                    "  python -m elo_exp FILE",
                )
            folder = context.run_dir / escape_name(name)
            rows = (
                row for row, count in iterate_verdicts(battles) for _ in range(count)
            )
            written_paths.append(
                write_csv(folder / "evalica.csv", rows, guards_formulas=False)
            )
            for model in battles.models:
                scores_by_prompt = defaultdict[str, list[tuple[float, int]]](list)
                for row, count in iterate_verdicts(battles):
                    if model in (row["left"], row["right"]):
                        left = _LEFT_SCORE_BY_WINNER[row["winner"]]
                        share = left if model == row["left"] else 1.0 - left
                        scores_by_prompt[row["prompt"]].append((share, count))
                shares = [
                    {"id": prompt, "value": fmean(*zip(*scores, strict=True))}
                    for prompt, scores in scores_by_prompt.items()
                ]
                path = folder / f"inspect_{escape_name(model)}.jsonl"
                written_paths.append(write_jsonl(path, shares))
        text = f"wrote {len(written_paths)} files for evalica and inspect_ai"
        return Report(headline=math.nan, text=text, artifacts=written_paths)


def iterate_verdicts(battles: Battles) -> Iterator[tuple[dict[str, str], int]]:
    """Yield each valid verdict as a row for evalica, with the first answer on the left, and its count.

    A battle without verdicts has its winner.
    """
    for battle in battles.rows():
        a, b, ba = battle.model_a, battle.model_b, battle.verdict_ba
        ab = battle.verdict_ab or (None if ba else battle.winner)
        for left, right, word, winning_word in (
            (a, b, ab, "model_a"),
            (b, a, ba, "model_b"),
        ):
            if word:
                side = "left" if word == winning_word else "right"
                verdict = {
                    "left": left,
                    "right": right,
                    "winner": "tie" if word.startswith("tie") else side,
                    "prompt": battle.question_id or "",
                    "judge_model": battle.judge_model or "",
                }
                yield verdict, battle.count or 1
