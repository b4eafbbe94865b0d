"""What a pilot of two draws says about the next run: where its variance comes from, and what twice the spend would buy."""

from elo_exp import pipeline
from elo_exp.analysis import variance
from elo_exp.analysis.comparisons import differences, find_leader
from elo_exp.data.battles import Battles
from elo_exp.entrants import draws_of
from elo_exp.experiments.tournament_run import TournamentRun
from elo_exp.judges import ApiJudge, NoJudge
from elo_exp.ratings import RatingMethod
from elo_exp.report.sentences import variance_sentences
from elo_exp.store.answer_store import Store


def describe_pilot(run: TournamentRun, store: Store) -> list[str]:
    """Describe a pilot's variance components and what doubling the spend would buy."""
    design, judge_run = run.design, run.judge_run
    prompt_source, judge = design.prompt_source, judge_run.judge
    varies = any(draws_of(entrant, 2) > 1 for entrant in judge_run.entrants.values())
    if not varies or isinstance(judge, NoJudge):
        return []
    prompts = pipeline.repeat_prompts(
        prompt_source.select(), max(2, prompt_source.n_draws)
    )
    comparisons = design.pair(prompts, design.answers.find_known(prompts, store))
    judgments = pipeline.read_stored_judgments(
        comparisons, design.rubrics, judge, store, judge_run.settings
    )
    n_bank, lines = len(prompt_source.load_all()), list[str]()
    for name, battles in run.make_battles(judgments, comparisons).items():
        components = variance.estimate_variance(battles)
        half_width = _measure_half_width(run.primary_method, name, battles)
        if components is None or components.prompts is None or half_width is None:
            continue
        prompt_ids = {judgment.prompt_id for judgment in judgments[name]}
        pilot_comparisons = {
            name: [c for c in comparisons[name] if c.prompt_id in prompt_ids]
        }
        rubrics = [rubric for rubric in design.rubrics if rubric.dimension == name]
        dollars = pipeline.estimate_price(
            pilot_comparisons, rubrics, judge, judge_run.settings
        )[name]
        lines += [f"{name}:"] if len(design.rubrics) > 1 else []
        lines += variance_sentences.plan(
            components,
            half_width,
            dollars=dollars if isinstance(judge, ApiJudge) else None,
            n_more=max(n_bank - len(prompt_ids), 0),
        )
    return lines


def _measure_half_width(
    method: RatingMethod, dimension: str, battles: Battles
) -> float | None:
    """Return half the width of the lead's interval, in rating points; None if it has no interval."""
    board = method.rate({dimension: battles}).get(dimension)
    leader = board and find_leader(board, differences({dimension: board}))
    lead = leader.lead if leader else None
    if lead is None or lead.ci_low is None or lead.ci_high is None:
        return None
    return (lead.ci_high - lead.ci_low) / 2.0
