"""The settings, inputs and cost of a run, as the lists at the end of a page."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from elo_exp.formatting import (
    format_count,
    format_percent,
    format_time,
    shorten_override,
)
from elo_exp.judges import role_suffix
from elo_exp.report.document import (
    COMPARISON_TERMS,
    Block,
    Facts,
    Fold,
    Folds,
    Paragraph,
    Section,
    Text,
    join_codes,
)
from elo_exp.report.sentences.check_sentences import conversations, cut_answers
from elo_exp.store.usage import TOKEN_FIELDS, Usage, sum_usages, total_dollars

Manifest = Mapping[str, Any]
# A term and its text
Fact: TypeAlias = tuple[str, Text]
_EMPTY_USAGE = dataclasses.asdict(Usage())
_MAX_ANSWER_FILES = 8


def format_kicker(name: str, manifest: Manifest) -> str:
    """Return the line above the headline of a page: its kind, and the start of its run."""
    started = manifest.get("started_at")
    return f"{name} · {format_time(started)}" if started else name


def describe_judge_roles(manifest: Manifest) -> str:
    """Return the role that the judge was given, to follow its name; empty if it has none."""
    return role_suffix((manifest.get("judge_roles") or {}).values())


def list_run_bill(manifest: Manifest) -> list[Block]:
    """Return the cost of a run by purpose, from its manifest."""
    return list_bill_blocks(manifest.get("usage"), manifest.get("paid_before"))


def build_details_section(
    bill: Sequence[Block],
    *,
    folds: Sequence[Fold] = (),
    made: Sequence[Block],
    terms: Sequence[tuple[str, str]] = COMPARISON_TERMS,
) -> Section:
    """Return the last section of a page: details for a reader to look up, each on a line of its own until it is opened.

    bill   the cost, from list_bill_blocks
    folds  further details of this page
    made   how the run was made
    terms  words of the page, with their meanings
    """
    dollars = next((block for block in bill if isinstance(block, Paragraph)), None)
    cost = Fold("cost", "Cost", dollars.text if dollars else "", bill)
    making = "settings, versions, seeds and input hashes"
    meaning = "the words of this page"
    return Section(
        "details",
        "Details",
        [
            Folds(
                [
                    *folds,
                    cost,
                    Fold("made", "How this was made", making, made),
                    Fold("glossary", "Glossary", meaning, [Facts(terms, "glossary")]),
                ]
            )
        ],
    )


def list_made_blocks(
    manifest: Manifest,
    more: Sequence[tuple[str, str]] = (),
    *,
    has_elo: bool = True,
) -> list[Block]:
    """Return how a run was made, from its manifest.

    more     terms and texts that only this page has
    has_elo  whether battles were replayed through Elo
    """
    facts = [*_list_facts(manifest, has_elo=has_elo), *more]
    return [
        Facts([fact for fact in facts if fact[1]]),
        Paragraph(
            "The complete configuration is in manifest.json next to this page.", "small"
        ),
    ]


def list_bill_blocks(
    usage: Mapping[str, Any] | None, before: Mapping[str, Any] | None
) -> list[Block]:
    """Return the cost of a run by purpose; empty if it made no call.

    usage, before  of the run, and of earlier attempts in its folder, as manifest.json has them
    """
    total_usage = _EMPTY_USAGE | sum_usages([usage, before])
    usage = _EMPTY_USAGE | dict(usage or {})
    if not usage["verdicts_wanted"] and not usage["responses_wanted"]:
        return []
    dollars, dollars_before = total_dollars(total_usage), total_dollars(before or {})
    tokens = [
        f"{format_count(usage[name])} {name.removesuffix('_tokens').replace('_', ' ')}"
        for name in TOKEN_FIELDS
        if usage[name]
    ]
    earlier = f"{_format_dollars(dollars_before)} of it in earlier attempts in the same folder"
    missing = usage["verdicts_missing"]
    facts: list[Fact] = [
        ("Before", earlier if dollars_before else ""),
        (
            "By rubric",
            _join_dollars(total_usage["dollars_by_dimension"]),
        ),
        ("By entrant", _join_dollars(total_usage["dollars_by_entrant"])),
        (
            "Answers",
            _format_new_and_cached(
                usage["responses_generated"],
                "generated",
                usage["responses_stored"],
            ),
        ),
        (
            "Verdicts",
            _format_new_and_cached(
                usage["judge_calls"], "new", usage["verdicts_stored"]
            ),
        ),
        (
            "Missing",
            f"{format_count(missing)} verdicts" if missing else "",
        ),
        ("Tokens", ", ".join(tokens)),
        ("Prompt cache", usage["cache"] or ""),
    ]
    return [
        Paragraph(_format_dollars(dollars) if dollars else "Nothing was paid.", "lede"),
        Facts([fact for fact in facts if fact[1]]),
    ]


def _format_dollars(amount: float) -> str:
    return f"${amount:,.2f}"


def _join_dollars(dollars: Mapping[str, float]) -> str:
    return ", ".join(
        f"{name} {_format_dollars(amount)}" for name, amount in dollars.items()
    )


def _format_new_and_cached(n: int, verb: str, n_stored: int) -> str:
    return (
        f"{format_count(n)} {verb}, {format_count(n_stored)} from cache"
        if n or n_stored
        else ""
    )


def _list_facts(manifest: Manifest, *, has_elo: bool) -> list[Fact]:
    return [
        *_list_command_facts(manifest),
        *_list_judging_facts(manifest),
        *(_list_elo_facts(manifest) if has_elo else ()),
        *_list_origin_facts(manifest),
    ]


def _list_command_facts(manifest: Manifest) -> Iterator[Fact]:
    overrides, started = manifest.get("overrides"), manifest.get("started_at")
    yield "Started", format_time(started) if started else ""
    yield "Experiment", manifest.get("experiment") or ""
    shown = [*map(shorten_override, overrides or ())]
    yield "Settings", join_codes(shown) if shown else "all defaults"


def _list_judging_facts(manifest: Manifest) -> Iterator[Fact]:
    judging = _get_config_group(manifest, "judging")
    yield "Preset", manifest.get("study") or ""
    if judge := manifest.get("judge_model"):
        judge += role_suffix((manifest.get("judge_roles") or {}).values())
        if orders := judging.get("orders"):
            judge += f", orders: {orders}"
        if share := judging.get("flip_share"):
            judge += f", and both for {format_percent(share)} of comparisons"
        yield "Judge", judge
    if opponents := judging.get("opponents"):
        yield "Opponents", f"{opponents} on each prompt"
    repeats = judging.get("repeats") or 1
    if judge and repeats > 1:
        yield "Repeats", f"each judge call made {repeats} times"
    n, bank_size = manifest.get("selected_prompt_count"), manifest.get("bank_size")
    if n and bank_size:
        yield (
            "Prompts",
            f"{format_count(n)} of the {format_count(bank_size)} in the prompt file",
        )
    yield "Rubrics", join_pairs(manifest.get("rubric_versions"))
    files = [
        _describe_battles_file(file) for file in manifest.get("battles_files") or ()
    ]
    yield "Battles", " ".join(files)
    answers = manifest.get("answers") or ()
    answer_texts = [
        _describe_answers_file(file) for file in answers[:_MAX_ANSWER_FILES]
    ]
    if n := len(answers) - len(answer_texts):
        answer_texts.append(f"{n} more files are in manifest.json.")
    yield "Answers", " ".join(answer_texts)
    if extent := manifest.get("conversations"):
        caution = cut_answers(extent)
        parts = [conversations(extent), caution and f"caution: {caution}"]
        yield "Conversations", "; ".join(filter(None, parts))
    if n_cut_off := sum((manifest.get("truncated_responses") or {}).values()):
        text = f"{format_count(n_cut_off)} at the token limit"
        yield "Answers cut off", text


def _get_config_group(manifest: Manifest, group: str) -> Mapping[str, Any]:
    """Return the settings of a group; {} if the experiment has none."""
    return (manifest.get("config") or {}).get(group) or {}


def has_flips(manifest: Manifest) -> bool:
    """Return whether at least some comparisons were judged in both orders."""
    judging = _get_config_group(manifest, "judging")
    return judging.get("orders") != "one" or bool(judging.get("flip_share"))


def _describe_battles_file(file: Mapping[str, Any]) -> str:
    rows = ", ".join(f"{format_count(n)} {kind}" for kind, n in file["rows"].items())
    assumed = f"; assumed: {file['assumed']}" if file.get("assumed") else ""
    notes = "".join(f"; {n}: {file[n]}" for n in ("files", "counts") if n in file)
    return f"{file['file']} read as {file['format']}: {rows}{assumed}{notes}."


def _describe_answers_file(file: Mapping[str, Any]) -> str:
    odd = [
        f"{format_count(file[name])} {name}"
        for name in ("empty", "failed")
        if file[name]
    ]
    notes = [f"{note} of {format_count(n)}" for note, n in file["notes"].items()]
    counts = "; ".join(
        [f"{format_count(file['answers'])} of {file['entrant']}", *odd, *notes]
    )
    return f"{file['file']} read as {file['format']}: {counts}."


def _list_elo_facts(manifest: Manifest) -> Iterator[Fact]:
    elo, seed = _get_config_group(manifest, "elo"), manifest.get("shuffle_seed")
    if k := elo.get("k"):
        text = f"K = {k:g}, {manifest.get('n_perms')} match orders"
        yield "Elo", text
    yield "Also at K", ", ".join(map(str, elo.get("k_sweep") or ()))
    if seed is not None:
        prompts = ""
        if manifest.get("selected_prompt_count"):
            prompts = f", prompts {manifest.get('pilot_seed')}"
        yield "Seeds", f"match orders {seed}{prompts}"


def _list_origin_facts(manifest: Manifest) -> Iterator[Fact]:
    if commit := manifest.get("git_commit"):
        yield "Commit", join_codes([commit])
    yield "Versions", join_pairs(manifest.get("versions"))
    hashes = manifest.get("input_hashes") or {}
    codes = [f"{name} sha256:{digest[:12]}" for name, digest in hashes.items()]
    yield "Inputs", join_codes(codes)


def join_pairs(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items())
