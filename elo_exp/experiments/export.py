"""Export of a run: tables, figures and the conclusion for a paper, and verdicts for evalica and inspect_ai."""

import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

from elo_exp.data.battles import Battles
from elo_exp.errors import FileError
from elo_exp.experiments import Context, Experiment, Report
from elo_exp.files import escape_name, write_csv, write_jsonl, write_whole
from elo_exp.formatting import join_names
from elo_exp.report import paper_table
from elo_exp.report.document import format_markdown_table
from elo_exp.runs.reading import FinishedRun, read_runs

logger = logging.getLogger(__name__)

# In evalica's file; ten million rows are about a gigabyte
MAX_EVALICA_ROWS = 10_000_000
_LEFT_SCORE_BY_WINNER = {"left": 1.0, "tie": 0.5, "right": 0.0}


@dataclass(kw_only=True)
class Export(Experiment):
    folder: str

    @property
    def opening(self) -> str:
        return f"results of {self.folder}"

    @cached_property
    def _finished_run(self) -> FinishedRun:
        (finished_run, *_), _ = read_runs([self.folder])
        return finished_run

    @cached_property
    def _battles_by_dimension(self) -> Mapping[str, Battles]:
        """The battles. Raises FileError for more than an evalica file takes."""
        battles_by_dimension = self._finished_run.battles()
        for name, battles in battles_by_dimension.items():
            n = sum(count for _, count in iterate_verdicts(battles))
            if n > MAX_EVALICA_ROWS:
                raise FileError(
                    f"{self.folder} has {n:,} verdicts on {name}; an evalica file takes at most {MAX_EVALICA_ROWS:,}. "
                    "Rate its battles directly:",
                    "  python -m elo_exp FILE",
                )
        return battles_by_dimension

    def dry_run(self, context: Context) -> None:
        _ = self._battles_by_dimension

    def run(self, context: Context) -> Report:
        """Write tables, figures and the conclusion, and the verdicts and win rates of each dimension."""
        finished_run = self._finished_run
        verdict_paths = self._write_verdicts(context)
        paper_paths = _write_paper_files(context, finished_run)
        figure_paths = _write_figures(context, finished_run)
        n_figures, n_files = len(figure_paths), len(verdict_paths)
        figures = "1 figure" if n_figures == 1 else f"{n_figures} figures"
        parts = [
            *(path.name for path in paper_paths),
            f"{figures} as PDF" if n_figures else "",
            f"{n_files} files for evalica and inspect_ai" if n_files else "",
        ]
        names = [*filter(None, parts)]
        return Report(
            headline=math.nan,
            text=f"wrote {join_names(names, len(names))}",
            artifacts=[*paper_paths, *figure_paths, *verdict_paths],
        )

    def _write_verdicts(self, context: Context) -> list[Path]:
        written_paths = []
        for name, battles in self._battles_by_dimension.items():
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
        return written_paths


def _write_paper_files(context: Context, finished_run: FinishedRun) -> list[Path]:
    """Write the leaderboards as LaTeX and as Markdown, and the conclusion as text."""
    table = paper_table.build_leaderboard_table(finished_run)
    caption = paper_table.format_caption(finished_run)
    markdown = f"{format_markdown_table(table)}\n\n{caption}\n"
    conclusion = "\n".join([*paper_table.list_conclusions(finished_run), ""])
    texts = {
        "table.tex": paper_table.format_latex(table, caption),
        "table.md": markdown,
        "conclusion.txt": conclusion,
    }
    return [write_whole(context.run_dir / name, [text]) for name, text in texts.items()]


def _write_figures(context: Context, finished_run: FinishedRun) -> list[Path]:
    """Write the figures of a run as PDF; without any, say how to draw them."""
    from elo_exp.figures.vector_pdf import convert_svg

    drawn_paths = sorted((finished_run.folder / "figures").glob("*.svg"))
    if not drawn_paths:
        logger.info(
            "The run has no figures. To export them, repeat its command with figures=true."
        )
    return [
        write_whole(context.run_dir / "figures" / f"{path.stem}.pdf", convert_svg(path))
        for path in drawn_paths
    ]


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
