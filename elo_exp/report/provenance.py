"""How a run was made and what it cost, as the lists at the end of a page."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.formatting import format_count, format_percent, format_time
from elo_exp.judges import role_suffix
from elo_exp.report.document import (
    Block,
    Facts,
    Paragraph,
    Section,
    Text,
    join_codes,
)
from elo_exp.report.sentences.check_sentences import conversations, cut_answers
from elo_exp.store.usage import TOKEN_FIELDS, Usage, sum_usages, total_dollars

Manifest = Mapping[str, Any]
_EMPTY_USAGE = dataclasses.asdict(Usage())
_MAX_ANSWER_FILES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A line of a list; `codes` are what a user typed, or may type."""

    term: str
    text: str = ""
    codes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What was paid, by what it was paid for."""

    total: str
    facts: Sequence[Fact]


def format_kicker(name: str, manifest: Manifest) -> str:
    """Return the line above the headline of a page: what it is, and when its run began."""
    started = manifest.get("started_at")
    return f"{name} · {format_time(started)}" if started else name


def describe_judge_roles(manifest: Manifest) -> str:
    """Return what the judge was told that it is, behind its name; empty if it was told nothing."""
    return role_suffix((manifest.get("judge_roles") or {}).values())


def build_cost_section(manifest: Manifest) -> Section:
    """Return what a run cost, from its manifest."""
    return Section(
        "cost",
        "Cost",
        list_bill_blocks(bill(manifest.get("usage"), manifest.get("paid_before"))),
    )


def list_bill_blocks(bill: Bill | None) -> list[Block]:
    if bill is None:
        return []
    facts = [(fact.term, _format_fact(fact)) for fact in bill.facts]
    return [Paragraph(bill.total, "lede"), Facts(facts)]


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
    facts = [
        (fact.term, _format_fact(fact))
        for fact in list_facts(manifest, has_elo=has_elo)
    ]
    return [
        Facts([*facts, *((term, text) for term, text in more if text)]),
        Paragraph(
            "The whole configuration is in manifest.json beside this page.", "small"
        ),
    ]


def _format_fact(fact: Fact) -> Text:
    return [fact.text, *join_codes(fact.codes)]


def bill(
    usage: Mapping[str, Any] | None, before: Mapping[str, Any] | None
) -> Bill | None:
    """Return what a run cost; None where it asked for nothing.

    usage, before  of the run, and of earlier attempts in its folder, as manifest.json has them
    """
    total_usage = _EMPTY_USAGE | sum_usages([usage, before])
    usage = _EMPTY_USAGE | dict(usage or {})
    if not usage["verdicts_wanted"] and not usage["responses_wanted"]:
        return None
    dollars, dollars_before = total_dollars(total_usage), total_dollars(before or {})
    tokens = [
        f"{format_count(usage[name])} {name.removesuffix('_tokens').replace('_', ' ')}"
        for name in TOKEN_FIELDS
        if usage[name]
    ]
    earlier = f"{_format_dollars(dollars_before)} of it, by earlier attempts in the same folder"
    missing = usage["verdicts_missing"]
    return Bill(
        total=_format_dollars(dollars) if dollars else "Nothing was paid.",
        facts=_drop_empty(
            Fact(term="Before", text=earlier if dollars_before else ""),
            Fact(
                term="By dimension",
                text=_join_dollars(total_usage["dollars_by_dimension"]),
            ),
            Fact(
                term="By entrant", text=_join_dollars(total_usage["dollars_by_entrant"])
            ),
            Fact(
                term="Answers",
                text=_format_new_and_cached(
                    usage["responses_generated"],
                    "generated",
                    usage["responses_stored"],
                ),
            ),
            Fact(
                term="Verdicts",
                text=_format_new_and_cached(
                    usage["judge_calls"], "new", usage["verdicts_stored"]
                ),
            ),
            Fact(
                term="Missing",
                text=f"{format_count(missing)} verdicts" if missing else "",
            ),
            Fact(term="Tokens", text=", ".join(tokens)),
            Fact(term="Prompt cache", text=usage["cache"] or ""),
        ),
    )


def _drop_empty(*facts: Fact) -> list[Fact]:
    return [fact for fact in facts if fact.text or fact.codes]


def _format_dollars(amount: float) -> str:
    return f"${amount:,.2f}"


def _join_dollars(dollars: Mapping[str, float]) -> str:
    return ", ".join(
        f"{name} {_format_dollars(amount)}" for name, amount in dollars.items()
    )


def _format_new_and_cached(n: int, verb: str, n_stored: int) -> str:
    return (
        f"{format_count(n)} {verb}, {format_count(n_stored)} cached"
        if n or n_stored
        else ""
    )


def list_facts(manifest: Manifest, *, has_elo: bool) -> list[Fact]:
    """Return how a run was made, from its manifest.

    has_elo  whether battles were replayed through Elo
    """
    return _drop_empty(
        *_list_command_facts(manifest),
        *_list_judging_facts(manifest),
        *(_list_elo_facts(manifest) if has_elo else ()),
        *_list_origin_facts(manifest),
    )


def _list_command_facts(manifest: Manifest) -> Iterator[Fact]:
    overrides, started = manifest.get("overrides"), manifest.get("started_at")
    yield Fact(term="Started", text=format_time(started) if started else "")
    yield Fact(term="Experiment", text=manifest.get("experiment") or "")
    no_overrides = "none: all settings as they ship"
    yield Fact(
        term="Overrides", text="" if overrides else no_overrides, codes=overrides or ()
    )


def _list_judging_facts(manifest: Manifest) -> Iterator[Fact]:
    judging = _get_config_group(manifest, "judging")
    yield Fact(term="Study", text=manifest.get("study") or "")
    if judge := manifest.get("judge_model"):
        judge += role_suffix((manifest.get("judge_roles") or {}).values())
        if orders := judging.get("orders"):
            judge += f"; orders used: {orders}"
        if share := judging.get("flip_share"):
            judge += f", and both for {format_percent(share)}"
        yield Fact(term="Judge", text=judge)
    if opponents := judging.get("opponents"):
        yield Fact(term="Opponents", text=f"{opponents} on each prompt")
    repeats = judging.get("repeats") or 1
    if judge and repeats > 1:
        yield Fact(term="Repeats", text=f"each query asked {repeats} times")
    n, bank_size = manifest.get("selected_prompt_count"), manifest.get("bank_size")
    if n and bank_size:
        yield Fact(
            term="Prompts",
            text=f"{format_count(n)} of the {format_count(bank_size)} in the bank",
        )
    yield Fact(term="Rubrics", text=join_pairs(manifest.get("rubric_versions")))
    files = [
        _describe_battles_file(file) for file in manifest.get("battles_files") or ()
    ]
    yield Fact(term="Battles", text=" ".join(files))
    answers = manifest.get("answers") or ()
    answer_texts = [
        _describe_answers_file(file) for file in answers[:_MAX_ANSWER_FILES]
    ]
    if n := len(answers) - len(answer_texts):
        answer_texts.append(f"And {n} more, in manifest.json.")
    yield Fact(term="Answers", text=" ".join(answer_texts))
    if extent := manifest.get("conversations"):
        caution = cut_answers(extent)
        parts = [conversations(extent), caution and f"caution: {caution}"]
        yield Fact(term="Conversations", text="; ".join(filter(None, parts)))
    if n_cut_off := sum((manifest.get("truncated_responses") or {}).values()):
        text = f"{format_count(n_cut_off)} at the limit of tokens"
        yield Fact(term="Answers cut off", text=text)


def _get_config_group(manifest: Manifest, group: str) -> Mapping[str, Any]:
    """Return the settings of a group; {} if the experiment has none."""
    return (manifest.get("config") or {}).get(group) or {}


def has_flips(manifest: Manifest) -> bool:
    """Whether comparisons, or some of them, were judged in both orders."""
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
        text = f"K = {k:g}, {manifest.get('n_perms')} permutations"
        yield Fact(term="Elo", text=text)
    yield Fact(term="Also at K", text=", ".join(map(str, elo.get("k_sweep") or ())))
    if seed is not None:
        prompts = ""
        if manifest.get("selected_prompt_count"):
            prompts = f", prompts {manifest.get('pilot_seed')}"
        yield Fact(term="Seeds", text=f"permutations {seed}{prompts}")


def _list_origin_facts(manifest: Manifest) -> Iterator[Fact]:
    if commit := manifest.get("git_commit"):
        yield Fact(term="Commit", codes=[commit])
    yield Fact(term="Versions", text=join_pairs(manifest.get("versions")))
    hashes = manifest.get("input_hashes") or {}
    codes = [f"{name} sha256:{digest[:12]}" for name, digest in hashes.items()]
    yield Fact(term="Inputs", codes=codes)


def join_pairs(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items())
