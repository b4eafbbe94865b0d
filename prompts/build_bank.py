"""Build a prompt bank from the public data sets MedMCQA and MedQA.

    pip install -e '.[bank]'
    python prompts/build_bank.py --out my_bank.jsonl --n-medmcqa 24 --n-medqa 69 --seed 20260427
    python -m elo_exp prompts.bank_path=my_bank.jsonl

Both hold multiple-choice questions. Those that can be asked without their options become open questions, and the text
of the right option becomes the gold answer; the rest is left out and counted. Of what remains, the seed draws as many
as asked for. The curated prompts are copied from the project's own bank. The data sets come from the Hugging Face hub,
or from a local .jsonl, .json or .parquet file with the same fields:

    MedMCQA   question, opa, opb, opc, opd, cop (0 to 3), subject_name, choice_type
    MedQA     question, options (letter to text), answer_idx (a letter), answer, meta_info
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.data import bank, table_files
from elo_exp.errors import UserError
from elo_exp.files import open_text, write_jsonl

Row = Mapping[str, Any]
ENDINGS = (".jsonl", ".json", ".parquet")
CURATED = Path(__file__).with_name("bank.jsonl")


class LeftOutError(Exception):
    """A question that cannot become an open one; the message is the reason, which is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the two data sets have in common. `gold` is the text of the right option."""

    stem: str
    options: tuple[str, ...]
    gold: str
    subject: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A public data set. `split` is the one of the hub that is labelled and not for training."""

    name: str  # of its option, and the start of its prompt_ids
    source: str  # the stratum in the bank
    split: str
    question: Callable[[str, Row], Question]


# Reading


def rows_of(place: str, *, split: str) -> Iterator[tuple[str, Row]]:
    """The rows of a local file or of a data set on the hub, each with the words that name it in an error."""
    path = Path(place)
    if path.suffix == ".json":
        yield from _json_rows(path)
    elif path.suffix in ENDINGS:
        yield from table_files.read_rows(path)
    elif path.exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", place):
        raise UserError(
            f"{place}: is no data set. Expected a file ending in {', '.join(ENDINGS)}, or OWNER/NAME."
        )
    else:
        yield from _hub_rows(place, split)


def _json_rows(path: Path) -> Iterator[tuple[str, Row]]:
    with open_text(path) as file:
        try:
            rows = json.load(file)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{path}: not JSON ({error}). Name a file with one object a line .jsonl."
            ) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(
            f"{path}: found no list of objects. Name a file with one object a line .jsonl."
        )
    yield from ((f"{path}: row {i}", row) for i, row in enumerate(rows, start=1))


def _hub_rows(name: str, split: str) -> Iterator[tuple[str, Row]]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise UserError(
            f"{name}: a data set of the hub needs the library 'datasets'. Install it with: pip install -e '.[bank]'; "
            "or name a local file."
        ) from None
    try:
        rows = load_dataset(name, split=split)
    except (
        OSError,
        ValueError,
    ) as error:  # no network, no such data set, no such split
        raise UserError(
            f"{name}: split {split!r} cannot be loaded ({_one_line(error)})."
        ) from None
    yield from (
        (f"{name}: {split} row {i}", row) for i, row in enumerate(rows, start=1)
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


# The two data sets


def medmcqa_question(place: str, row: Row) -> Question:
    options = tuple(
        _text(place, row, name, empty=True) for name in ("opa", "opb", "opc", "opd")
    )
    right = row.get("cop")
    if type(right) is not int or right not in range(4):
        raise UserError(
            f"{place}: 'cop' is {right!r}. Expected the right option, 0 to 3. The test split has no answers (-1), and "
            "the files of medmcqa.github.io count from 1: subtract 1."
        )
    if _text(place, row, "choice_type") != "single":
        raise LeftOutError("combines several options")
    topic = row.get("topic_name")
    return Question(
        stem=_text(place, row, "question"),
        options=options,
        gold=options[right],
        subject=_text(place, row, "subject_name").lower(),
        tags=(
            "medmcqa",
            *([_tag(topic)] if isinstance(topic, str) and topic.strip() else []),
        ),
    )


def medqa_question(place: str, row: Row) -> Question:
    options = row.get("options")
    if not isinstance(options, Mapping) or not options:
        raise UserError(f"{place}: 'options' is {options!r}. Expected texts by letter.")
    texts = {
        letter: _text(f"{place}: options", options, letter)
        for letter in options
        if options[letter] is not None
    }
    right = row.get("answer_idx")
    if right not in texts:
        raise UserError(
            f"{place}: 'answer_idx' is {right!r}. Expected one of {', '.join(texts)}."
        )
    if _text(place, row, "answer") != texts[right]:
        raise UserError(
            f"{place}: 'answer' is {row['answer']!r}, but option {right} is {texts[right]!r}."
        )
    step = _text(place, row, "meta_info").lower()
    return Question(
        stem=_text(place, row, "question"),
        options=tuple(texts.values()),
        gold=texts[right],
        subject=f"usmle {step}",
        tags=("medqa", _tag(step)),
    )


def _text(place: str, row: Row, name: str, *, empty: bool = False) -> str:
    """A text field, its white space tidied line by line. Raises UserError where it is absent, no text, or empty."""
    value = row.get(name)
    lines = value.splitlines() if isinstance(value, str) else []
    tidy = "\n".join(" ".join(line.split()) for line in lines if line.strip())
    if name not in row or not (tidy or empty):
        found = f"has {value!r} as" if name in row else "has no"
        raise UserError(
            f"{place}: the row {found} {name!r}. Expected a text; the row has {', '.join(map(str, row))}."
        )
    return tidy


def _tag(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


DATA_SETS = (
    DataSet(
        name="medmcqa",
        source="medmcqa_open",
        split="validation",
        question=medmcqa_question,
    ),
    DataSet(name="medqa", source="medqa", split="test", question=medqa_question),
)


# From multiple choice to an open question

_WHICH = r"\b(?P<which>[Ww])hich (?:one )?(?:of|among) (?:the )?following"
_TRAILING = " \t:;.,-–—_…\"'"
_PREPOSITIONS = "at|by|for|from|in|into|of|on|through|to|under|with"
_ASKS = (  # 'which' and its like also open relative clauses: 'the drug which', 'when given'
    r"(?:what|which|who|whom|whose|why|how|(?:when|where) (?:is|are|do|does|did|should|would|will|can))\b"
)
_PICTURE = (
    r"\b(?:images?|figure|photographs?|photomicrographs?|pictured|diagram|graph|exhibit|arrows?)\b"
    r"|\bshown (?:above|below|here)\b|\b(?:is|are) shown\b(?! to)|\bgiven below\b"
)
_NEEDS_OPTIONS = (
    r"\bthe following\b(?! (?:day|night|morning|evening|week|month|year)\b)|\b(?:of|among|from) following\b"
    r"|\bwhich of (?:these|those)\b|\bexcept\b|_{2,}|\.{3}|…"
    r"|\b(?:all|none|any|both|each) (?:of )?(?:the )?(?:above|options)\b"
    r"|(?:^|\s)\(?(?:a|1|i)[).] .*\s\(?(?:b|2|ii)[).] "  # a numbered list
)
_LEAD_NEEDS_OPTIONS = (  # said of the question itself, not of the case that comes before it
    r"\b(?:not|never|least|true|false|correct|incorrect|wrong|statements?|options?|choices|answers?|match\w*|pairs?)\b"
    r"|^(?:all|both)\b|\bexamples?\b"
)
_GOLD_NEEDS_OPTIONS = (
    r"(?:all|none|both|any|neither|either)(?: of)?(?: the)?(?: (?:above|these|them|following|options?))?"
    r"|(?:both|only)?\s*[a-e](?:\s*(?:,|and|&|\+)\s*[a-e])*(?:\s+only)?"  # A and C
    r"|[1-5](?:\s*(?:,|and|&|\+)\s*[1-5])+(?:\s+only)?|yes|no|true|false"  # 1, 2 and 4
)
_ABOVE = r"\b(?:all|none|any|both) (?:of )?(?:the )?(?:above|these|them|following)\b"

# What an open question can ask for one of: 'Which of the following drugs is' -> 'Which drug is'.
_NOUNS = """
    abnormality agent antibiotic antibody antigen artery bacterium bone cause cell change complication condition defect
    deficiency diagnosis disease disorder drug electrolyte enzyme factor feature finding fungus gene hormone infection
    injury intervention investigation lesion ligament mechanism medication molecule muscle mutation neoplasm nerve
    neurotransmitter nucleus organ organism parasite pathogen pathway phase procedure process protein reaction receptor
    sign site stage step structure study substance symptom syndrome technique test therapy tissue toxin treatment tumor
    tumour vaccine vector vein vessel virus vitamin
"""
_IRREGULAR = {
    "bacteria": "bacterium",
    "diagnoses": "diagnosis",
    "fungi": "fungus",
    "nuclei": "nucleus",
}
_SINGULAR_VERBS = {"are": "is", "were": "was", "have": "has", "do": "does"}
_VERBS = "is|are|was|were|has|have|had|does|do|did|can|could|may|might|must|should|would|will|best|most"

# Openings that name one thing: 'Drug of choice for ...' -> 'What is the drug of choice for ...?'
_NAMED = (
    r"(?:most (?:common|frequent|likely|important|sensitive|specific|appropriate|effective)|commonest|earliest"
    r"|gold standard|(?:drug|treatment|investigation|procedure|test) of choice|antidote|half[- ]life|rate[- ]limiting"
    r"|incubation period|nerve supply|blood supply)\b"
)
_UNFINISHED = r" (?:is|are|was|were|be|by|to|in|with|on|of|for|from|at|as|called)(?: (?:the|an?))?$"


def open_question(stem: str) -> str:
    """The stem as a question that can be asked without options. Raises LeftOutError where it cannot.

    Which of the following is the most likely diagnosis?  ->  What is the most likely diagnosis?
    Which of the following enzymes is deficient?          ->  Which enzyme is deficient?
    ... is most likely to show which of the following?    ->  ... is most likely to show what?
    Bite cells are seen in:                               ->  Bite cells are seen in what?
    Drug of choice for status epilepticus                 ->  What is the drug of choice for status epilepticus?
    """
    text = stem.strip("\"'")
    if re.search(_PICTURE, text, re.IGNORECASE):
        raise LeftOutError("shows a picture")
    text = _without_following(text)
    start = max(
        (end.end() for end in re.finditer(r"[.?!] (?=[A-Z])|\n", text)), default=0
    )
    case, lead = text[:start], text[start:]
    if re.search(_NEEDS_OPTIONS, text, re.IGNORECASE) or re.search(
        _LEAD_NEEDS_OPTIONS, lead, re.IGNORECASE
    ):
        raise LeftOutError("needs its options")
    return case + _as_question(lead)


def _without_following(text: str) -> str:
    """The text with 'which of the following' made open, in the forms that have one answer; else as it was."""
    text = re.sub(
        rf"{_WHICH} (is|are|was|were) (the|most|best)\b", r"\g<which>hat \2 \3", text
    )
    text = re.sub(
        rf"{_WHICH} ((?:(?:would|will|could|should) )?(?:best|most \w+)) ",
        r"\g<which>hat \2 ",
        text,
    )
    text = re.sub(
        rf"{_WHICH} (?P<noun>(?:[\w-]+ ){{0,3}}?[\w-]+) (?P<rest>{_VERBS})\b",
        _which_noun,
        text,
    )
    text = re.sub(
        rf"{_WHICH} (?P<noun>(?:[\w-]+ ){{0,3}}?[\w-]+) ?(?P<rest>(?:of action)?\?)$",
        _which_noun,
        text,
    )
    return re.sub(rf"(?<=\w ){_WHICH}\W*$", "what?", text)


def _which_noun(match: re.Match[str]) -> str:
    *before, noun = match["noun"].split()
    single = _singular(noun)
    if single is None or {"and", "or", *_VERBS.split("|")} & set(before):
        return match[0]
    rest = _SINGULAR_VERBS.get(match["rest"], match["rest"])
    return f"{match['which']}hich {' '.join([*before, single])}{'' if rest == '?' else ' '}{rest}"


def _singular(noun: str) -> str | None:
    """The singular of one of _NOUNS; None for any other word."""
    guesses = (
        noun,
        _IRREGULAR.get(noun, ""),
        noun[:-3] + "y",
        noun.removesuffix("es"),
        noun.removesuffix("s"),
    )
    return next((guess for guess in guesses if guess in _NOUNS.split()), None)


def _as_question(lead: str) -> str:
    """The last sentence of a stem as a question, finished with 'what' where an option was to finish it."""
    asked = lead.rstrip(_TRAILING).endswith("?")
    body = lead.rstrip(_TRAILING + "?")
    opens = rf"^(?:(?:{_PREPOSITIONS}) )?{_ASKS}|, what\b"
    asks = rf"{opens}|\bwhat\b|, {_ASKS}|\b(?:{_PREPOSITIONS}) {_ASKS}"
    if re.search(asks if asked else opens, body, re.IGNORECASE):
        return f"{body}?"
    named = re.sub(r"^the | (?:is|are)$", "", body, flags=re.IGNORECASE)
    if re.match(_NAMED, named, re.IGNORECASE) and not re.search(
        r"\b(?:is|are|was|were|which|that)\b", named
    ):
        return f"What is the {named[0].lower()}{named[1:]}?"
    if re.search(_UNFINISHED, body):
        return re.sub(r" (?:the|an?)$", "", body) + " what?"
    raise LeftOutError("has no form of a question")


def check_options(options: Sequence[str], gold: str) -> None:
    """Raises LeftOutError where an option speaks of the others, or the right one says nothing by itself."""
    if not gold or re.fullmatch(_GOLD_NEEDS_OPTIONS, gold.rstrip("."), re.IGNORECASE):
        raise LeftOutError("has an answer that needs the options")
    if any(re.search(_ABOVE, option, re.IGNORECASE) for option in options):
        raise LeftOutError("has an option on the other options")


# The bank


def draw(data_set: DataSet, place: str, n: int, *, seed: int) -> list[dict[str, Any]]:
    """n bank rows drawn from a data set, in its order. Raises UserError where too few questions can be asked openly."""
    if n == 0:
        return []
    usable: dict[
        str, dict[str, Any]
    ] = {}  # by text: a question asked twice counts once
    left_out: Counter[str] = Counter()
    n_rows = 0
    for n_rows, (where, row) in enumerate(
        rows_of(place, split=data_set.split), start=1
    ):
        try:
            prompt = _prompt(
                data_set, where, row, prompt_id=f"{data_set.name}-{n_rows:06d}"
            )
            if prompt["text"].lower() in usable:
                raise LeftOutError("is asked twice")
        except LeftOutError as reason:
            left_out[str(reason)] += 1
        else:
            usable[prompt["text"].lower()] = prompt
    why = (
        "; left out: "
        + ", ".join(f"{n} {reason}" for reason, n in left_out.most_common())
        if left_out
        else ""
    )
    if len(usable) < n:
        raise UserError(
            f"{place}: --n-{data_set.name} asks for {n} prompts, {len(usable)} of its {n_rows} rows can be asked "
            f"without options{why}. Ask for fewer, or give more rows."
        )
    print(
        f"{data_set.name}: {n} of {len(usable)} usable questions, from {n_rows} rows{why}"
    )
    drawn = np.random.default_rng(seed).choice(len(usable), size=n, replace=False)
    candidates = list(usable.values())
    return [candidates[i] for i in sorted(drawn)]


def _prompt(
    data_set: DataSet, where: str, row: Row, *, prompt_id: str
) -> dict[str, Any]:
    question = data_set.question(where, row)
    check_options(question.options, question.gold)
    return {
        "prompt_id": prompt_id,
        "source": data_set.source,
        "subject": question.subject,
        "text": open_question(question.stem),
        "gold_answer": question.gold,
        "tags": list(question.tags),
    }


def curated(path: Path) -> list[dict[str, Any]]:
    """The curated rows of a bank, as they are. Raises UserError where there is none."""
    # refuses what would be refused later, by its place in this file
    bank.load_bank(path)
    rows = [
        row for _, row in table_files.read_rows(path) if row.get("source") == "curated"
    ]
    if not rows:
        raise UserError(
            f"{path}: holds no prompt of source 'curated'. Name a bank that does with --curated."
        )
    return rows


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--out", type=Path, required=True, help="the bank to write, a .jsonl file"
    )
    parser.add_argument(
        "--n-medmcqa",
        type=_count,
        default=24,
        help="prompts from MedMCQA (%(default)s)",
    )
    parser.add_argument(
        "--n-medqa", type=_count, default=69, help="prompts from MedQA (%(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=_count,
        default=20260427,
        help="decides which are drawn (%(default)s)",
    )
    where = "file or hub data set (%(default)s)"
    parser.add_argument(
        "--medmcqa",
        default="openlifescienceai/medmcqa",
        metavar="PATH_OR_HUB_ID",
        help=where,
    )
    parser.add_argument(
        "--medqa",
        default="GBaker/MedQA-USMLE-4-options",
        metavar="PATH_OR_HUB_ID",
        help=where,
    )
    parser.add_argument(
        "--curated",
        type=Path,
        default=CURATED,
        help="bank whose curated prompts are copied",
    )
    return parser.parse_args(given)


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"found {number}. Expected 0 or more.")
    return number


def build(args: argparse.Namespace) -> None:
    if args.out.resolve() == args.curated.resolve():
        raise UserError(
            f"{args.out}: is the bank whose curated prompts are copied. Name another file with --out."
        )
    copied = curated(args.curated)  # first, since the data sets may take minutes
    rows: list[dict[str, Any]] = []
    for data_set in DATA_SETS:
        place, n = getattr(args, data_set.name), getattr(args, f"n_{data_set.name}")
        rows += draw(data_set, place, n, seed=args.seed)
    try:
        write_jsonl(args.out, [*rows, *copied])
    except OSError as error:
        raise UserError(f"{args.out}: cannot be written ({error.strerror}).") from None
    sources = Counter(prompt.source for prompt in bank.load_bank(args.out))
    print(f"{args.out}: " + ", ".join(f"{n} {source}" for source, n in sources.items()))


def main(given: Sequence[str] | None = None) -> int:
    args = arguments(given)
    try:
        build(args)
    except UserError as error:
        print(f"build_bank.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
