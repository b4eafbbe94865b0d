"""Answers as they are put to a judge one by one, and the scores of a tournament's items that follow."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from elo_exp.data import conversations
from elo_exp.data.conversations import ViewSettings
from elo_exp.data.pairing import Responses, is_empty, n_drawn
from elo_exp.data.scores import Score as ItemScore
from elo_exp.data.scoring import PointwiseRubric
from elo_exp.records import Item, Prompt, Response, Score


def list_items(
    prompts: Sequence[Prompt],
    responses: Responses,
    rubric: PointwiseRubric,
    settings: ViewSettings,
) -> list[Item]:
    """Put every answer to the judge by itself, prompts first. An empty answer is put to nobody.

    On a prompt where one answer shows more than the words of one turn, all answers are shown in turns.

    prompts    all with draw 0, then with draw 1, and so on
    settings   how much of conversations the judge sees, unless the rubric says otherwise
    """
    return [
        item
        for prompt, answers in _group_by_slot(prompts, responses, rubric)
        for item in _pose_answers(
            prompt,
            [
                answer
                for answer in answers.values()
                if answer is not None and not is_empty(answer)
            ],
            rubric,
            settings,
        )
    ]


def _group_by_slot(
    prompts: Sequence[Prompt], responses: Responses, rubric: PointwiseRubric
) -> Iterator[tuple[Prompt, dict[str, Response | None]]]:
    """Yield each prompt and draw with the answers that were planned, by entrant; None: it is missing."""
    n_draws = {name: n_drawn(by_slot) for name, by_slot in responses.items()}
    for prompt in prompts:
        if rubric.applies_to(prompt):
            yield (
                prompt,
                {
                    name: by_slot.get(prompt.slot)
                    for name, by_slot in responses.items()
                    if prompt.draw_idx < n_draws[name]
                },
            )


def _pose_answers(
    prompt: Prompt,
    answers: Sequence[Response],
    rubric: PointwiseRubric,
    settings: ViewSettings,
) -> Iterator[Item]:
    shown_prompt, texts = prompt, [answer.response_text for answer in answers]
    if prompt.messages or any(answer.messages for answer in answers):
        view_settings = rubric.merge_settings(settings)
        views = [conversations.view_answer(answer, view_settings) for answer in answers]
        in_turns = not conversations.is_question(prompt) or any(
            view.single_turn_text is None for view in views
        )
        shown_prompt = conversations.view_prompt(
            prompt, view_settings, in_turns=in_turns
        )
        if not rubric.applies_to(shown_prompt):
            return
        texts = [
            view.transcript if in_turns else str(view.single_turn_text)
            for view in views
        ]
    for answer, text in zip(answers, texts, strict=True):
        shown_answer = replace(answer, response_text=text, messages=())
        yield rubric.item(shown_prompt, shown_answer, answer.draw_idx)


def list_item_scores(
    prompts: Sequence[Prompt],
    responses: Responses,
    rubric: PointwiseRubric,
    scores: Sequence[Score],
    clusters: Mapping[str, str],
) -> list[ItemScore]:
    """Return a row for every planned answer, with the score of the judge; without a value if it is missing.

    An answer whose criteria are not those of all answers has no score, as its mean would be of other numbers.

    scores    of the answers that were put to the judge
    clusters  of dependent prompts, by prompt
    """
    names = {*list_criteria(scores)}
    values = {
        (score.policy, score.prompt_id, score.draw_idx): score.judge_score
        for score in scores
        if {*(score.criteria or ())} == names
    }
    return [
        ItemScore(
            dimension=rubric.dimension,
            entrant=name,
            item=prompt.prompt_id,
            value=values.get((name, *prompt.slot)),
            draw=str(prompt.draw_idx),
            cluster=clusters.get(prompt.prompt_id, ""),
        )
        for prompt, answers in _group_by_slot(prompts, responses, rubric)
        for name in answers
    ]


def list_criteria(scores: Sequence[Score]) -> list[str]:
    """Return the names of all criteria of some scores; none if these have no criteria."""
    return list(
        dict.fromkeys(name for score in scores for name in score.criteria or ())
    )


def split_criteria(
    rows: Sequence[ItemScore], scores: Sequence[Score]
) -> dict[str, list[ItemScore]]:
    """Return the rows of each criterion by its name, in place of the rows of all criteria together."""
    criteria = {
        (score.policy, score.prompt_id, str(score.draw_idx)): score.criteria or {}
        for score in scores
    }
    return {
        name: [
            replace(
                row,
                dimension=name,
                value=criteria.get((row.entrant, row.item, row.draw), {}).get(name),
            )
            for row in rows
        ]
        for name in list_criteria(scores)
    }
