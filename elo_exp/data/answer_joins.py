"""Files of answers, joined to the prompts that they answer; what is missing on either side is said."""

import functools
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elo_exp.data import answers, column_roles, conversations
from elo_exp.data.answers import Answer
from elo_exp.data.bank import DEFAULT_SOURCE, PromptBank, hash_text
from elo_exp.data.column_roles import NO_COLUMNS, Columns
from elo_exp.data.field_names import entrant_stem, fold_spaces, natural_key
from elo_exp.data.similar_questions import describe_closest_questions, shorten_question
from elo_exp.data.table_files import Source
from elo_exp.errors import EvidenceError, FileError, SettingError, format_value
from elo_exp.records import Prompt, Response

_MAX_UNANSWERED_SHARE = 0.1
# A file of more entrants has one line, which names so many
_MAX_NAMED_ENTRANTS = 3
_CUT_FINISH_REASON = "length"

# A name and its file. No name: the file's own; no file: the entrant of this name is left out
NamedFile = tuple[str | None, Path | None]
_AnswerFile = tuple[
    answers.Format, Sequence[Answer], Mapping[str | None, Sequence[Answer]]
]


@dataclass(frozen=True, kw_only=True)
class AnswerSet:
    """The answers of one entrant, of one file.

    given   whether the command named the entrant
    inside  the file's own name of it, where the file has several
    columns  the file's column of each role that the command names
    """

    entrant: str
    path: Path
    format: str
    is_named: bool
    inner_name: str | None
    rows: Sequence[Answer]
    columns: Columns = field(default_factory=dict)

    @functools.cached_property
    def _rows_by_text(self) -> Mapping[str, Sequence[Answer]]:
        rows_by_text = defaultdict(list)
        for row in self.rows:
            if row.prompt is not None:
                rows_by_text[fold_spaces(row.prompt)].append(row)
        return rows_by_text

    @functools.cached_property
    def _rows_by_id(self) -> Mapping[str, Sequence[Answer]]:
        rows_by_id = defaultdict(list)
        for row in self.rows:
            if row.id is not None:
                rows_by_id[row.id].append(row)
        return rows_by_id

    def list_questions(self) -> list[str]:
        """Return the different questions."""
        return [
            *dict.fromkeys(row.prompt for row in self.rows if row.prompt is not None)
        ]

    def rows_with_id(self, key: str) -> Sequence[Answer]:
        """Return the rows with this id."""
        return self._rows_by_id.get(key, ())

    def rows_for_prompt(self, prompt: Prompt) -> Sequence[Answer]:
        """Return the rows that answer a prompt, whichever draw they are.

        They are found by its text, and of equal texts by its id; else by its id.
        """
        same_text = self._rows_by_text.get(fold_spaces(prompt.text), ())
        same_text_and_id = [row for row in same_text if row.id == prompt.prompt_id]
        return same_text_and_id or same_text or self.rows_with_id(prompt.prompt_id)

    def find_answer(self, prompt: Prompt) -> Answer | None:
        """Return the answer to a prompt and draw; None where there is none. Raises FileError for two that differ."""
        rows = [
            row
            for row in self.rows_for_prompt(prompt)
            if row.text is not None
            and row.draw_idx == prompt.draw_idx
            and None not in row.later_turns[: conversations.n_turns(prompt) - 1]
        ]
        for row in rows[1:]:
            if (row.text, row.messages) != (rows[0].text, rows[0].messages):
                raise FileError.bad_file(
                    row.location,
                    f"holds a second, different answer of {self.entrant} to {shorten_question(prompt.text)}",
                    f"The first is at {rows[0].location}. Keep one of them.",
                )
        return rows[0] if rows else None

    def has_answers(self, prompt: Prompt, draws: int) -> bool:
        """Whether a prompt has this many answers, or as many as each has in this file, where these are fewer."""
        n = min(draws, self.n_draws)
        prompt_draws = (replace(prompt, draw_idx=i) for i in range(n))
        return all(
            self.find_answer(prompt_draw) is not None for prompt_draw in prompt_draws
        )

    def find_response(self, prompt: Prompt) -> Response | None:
        """Return the same as a Response under the entrant's name."""
        row = self.find_answer(prompt)
        if row is None:
            return None
        assert row.text is not None
        recorded = {
            "finish_reason": _CUT_FINISH_REASON if row.is_cut else None,
            **row.recorded,
        }
        response = Response(
            entrant_id=self.entrant,
            prompt_id=prompt.prompt_id,
            response_text=row.text,
            messages=row.messages,
            draw_idx=row.draw_idx,
            **recorded,
        )
        n_turns = conversations.n_turns(prompt)
        if n_turns == 1 or row.messages:
            return response
        if len(row.later_turns) < n_turns - 1:
            raise FileError.bad_file(
                row.location,
                f"answers {1 + len(row.later_turns)} of the {n_turns} turns of prompt {prompt.prompt_id}",
                "Answer each turn, or give prompts with their first turns only.",
            )
        later = [
            replace(response, response_text=text)
            for text in row.later_turns[: n_turns - 1]
            if text is not None
        ]
        return conversations.join_turns(prompt, [response, *later])

    def has_failed(self, prompt: Prompt) -> bool:
        """Whether the file records that the request failed, so that nobody has to guess why an answer is missing."""
        rows = [row for row in self.rows_for_prompt(prompt) if row.text is None]
        return any(row.is_failed for row in rows) and self.find_answer(prompt) is None

    @property
    def n_answers(self) -> int:
        """How many prompts it answers: a program may write a row for each of its filters."""
        rows = [row for row in self.rows if row.text is not None]
        return len({(row.id, fold_spaces(row.prompt or "")) for row in rows})

    @functools.cached_property
    def n_draws(self) -> int:
        """How many answers there are to each prompt, at least; those that failed are among them."""
        last_draw = dict[Any, int]()
        for row in self.rows:
            key = row.id or fold_spaces(row.prompt or "")
            last_draw[key] = max(last_draw.get(key, 0), row.draw_idx)
        return 1 + min(last_draw.values(), default=0)

    def facts(self) -> dict[str, Any]:
        """Return the manifest's row of it; what it counts is of first draws."""
        rows = [row for row in self.rows if row.draw_idx == 0]
        return {
            "file": str(self.path),
            "format": self.format,
            "entrant": self.entrant,
            "answers": self.n_answers,
            "empty": sum(row.text is not None and not row.text.strip() for row in rows),
            "cut_off": sum(row.is_cut for row in rows),
            "failed": sum(row.text is None for row in rows),
            "notes": dict(Counter(note for row in rows for note in row.notes)),
            **(
                {"later_draws": n_later}
                if (n_later := len(self.rows) - len(rows))
                else {}
            ),
        }

    def describe(self) -> str:
        """Return what was read, in words."""
        facts = self.facts()
        counts = [
            f"{facts['empty']} empty" if facts["empty"] else "",
            f"{facts['cut_off']} cut off" if facts["cut_off"] else "",
            *(f"{note} of {n}" for note, n in facts["notes"].items()),
            f"{facts['failed']} failed" if facts["failed"] else "",
            f"{facts['later_draws']:,} later draws" if "later_draws" in facts else "",
        ]
        is_plain = self.entrant in (entrant_stem(self.path), _folder_name(self.path))
        if not (self.is_named or self.inner_name or is_plain):
            counts.append("call it otherwise: 'answers={NAME:FILE,...}'")
        text = (
            f"{self.path}: {self.format}: {self.n_answers:,} answers of {self.entrant}"
        )
        return "; ".join([text, *filter(None, counts)])


@dataclass(frozen=True, kw_only=True)
class JoinedAnswers:
    """Prompts, and who answered them.

    prompts  of the bank or, without one, of the files; in an order that is not that of the files
    files    the answers of each entrant, by name
    bank     the file of the prompts; None: they are those of the answers
    draws    how many answers to each prompt are wanted, of files that have several
    """

    prompts: Sequence[Prompt]
    answer_sets: Mapping[str, AnswerSet]
    bank: Path | None
    draws: int = 1

    @functools.cached_property
    def answered_ids(self) -> Mapping[str, Sequence[str]]:
        """The prompts that each entrant answered in every draw, by their ids."""
        return {
            name: [
                p.prompt_id
                for p in self.prompts
                if answer_set.has_answers(p, self.draws)
            ]
            for name, answer_set in self.answer_sets.items()
        }

    @functools.cached_property
    def planned_prompts(self) -> Sequence[Prompt]:
        """The prompts to which some file has a row, answered or not. Raises EvidenceError if no two entrants can be compared.

        A prompt of the bank to which no file has a row was not asked.
        """
        self._refuse_incomparable()
        return [
            prompt
            for prompt in self.prompts
            if any(
                answer_set.rows_for_prompt(prompt)
                for answer_set in self.answer_sets.values()
            )
        ]

    @functools.cached_property
    def failed_ids(self) -> Mapping[str, Sequence[str]]:
        """The prompts on which each entrant is on record as having failed, by their ids."""
        return {
            name: [p.prompt_id for p in self.prompts if answer_set.has_failed(p)]
            for name, answer_set in self.answer_sets.items()
        }

    def clusters(self, column: str) -> dict[str, str] | None:
        """Return the cluster of each prompt that the files name in a column, by its id; None if no row has the column.

        Raises FileError for a prompt in two clusters.
        """
        key, located_clusters = column.strip().casefold(), dict[str, tuple[str, str]]()
        for prompt in self.prompts:
            for answer_set in self.answer_sets.values():
                for row in answer_set.rows_for_prompt(prompt):
                    if (cluster := row.columns.get(key)) is None:
                        continue
                    known_cluster, location = located_clusters.setdefault(
                        prompt.prompt_id, (cluster, row.location)
                    )
                    if cluster != known_cluster:
                        raise FileError.bad_file(
                            row.location,
                            f"has prompt {prompt.prompt_id} in cluster {cluster}, and {location} has it in {known_cluster}",
                            "Each prompt must be in one cluster.",
                        )
        if not located_clusters and not any(
            key in row.columns
            for answer_set in self.answer_sets.values()
            for row in answer_set.rows
        ):
            return None
        return {name: cluster for name, (cluster, _) in located_clusters.items()}

    @property
    def columns(self) -> list[str]:
        """The names of short cells that the files have, sorted."""
        return sorted(
            {
                name
                for answer_set in self.answer_sets.values()
                for row in answer_set.rows
                for name in row.columns
            }
        )

    @functools.cached_property
    def shared_prompts(self) -> Sequence[Prompt]:
        """The prompts that all entrants answered. Raises EvidenceError if no two entrants can be compared."""
        self._refuse_incomparable()
        counts = self._n_answered
        return [p for p in self.prompts if counts[p.prompt_id] == len(self.answer_sets)]

    @functools.cached_property
    def _n_answered(self) -> Mapping[str, int]:
        """How many entrants answered each prompt."""
        return Counter(key for keys in self.answered_ids.values() for key in keys)

    def _refuse_incomparable(self) -> None:
        """Raise EvidenceError if no prompt is answered by two entrants, or by the one that there is."""
        min_entrants = min(2, len(self.answer_sets))
        if max(self._n_answered.values(), default=0) < min_entrants:
            have = [
                f"{name} has {len(keys):,}"
                for name, keys in self._entrants_by_n_answered
            ]
            more = f" and {len(have) - 5} more" if have[5:] else ""
            hint = " Are these answers to the same prompts?"
            if self.bank is not None:
                hint = f" Are these answers to the prompts of {self.bank}?"
            for answer_set in self.answer_sets.values():
                if all(row.prompt is None for row in answer_set.rows):
                    hint = f" {answer_set.path} holds no prompts. Add prompts=FILE."
                    break
            whom = "all entrants" if len(self.answer_sets) <= 2 else "two entrants"
            questions = {
                name: answer_set.list_questions()
                for name, answer_set in self.answer_sets.items()
            }
            closest = [] if self.bank else describe_closest_questions(questions)
            raise EvidenceError(
                f"No prompt is answered by {whom} ({', '.join(have[:5])}{more}, none shared).{hint}",
                *closest,
            )

    @property
    def _entrants_by_n_answered(self) -> list[tuple[str, Sequence[str]]]:
        return sorted(self.answered_ids.items(), key=lambda item: len(item[1]))

    def describe(self, *, keeps_all: bool = False) -> list[str]:
        """Return what was read and what is missing, a line each; warnings begin with "warning: ".

        keeps_all  prompts that not all answered are not left out
        """
        by_path = defaultdict(list)
        for answer_set in self.answer_sets.values():
            by_path[answer_set.path].append(answer_set)
        lines = []
        for path, answer_sets in by_path.items():
            if len(answer_sets) <= _MAX_NAMED_ENTRANTS:
                lines += [answer_set.describe() for answer_set in answer_sets]
            else:
                n = sum(answer_set.n_answers for answer_set in answer_sets)
                names = ", ".join(
                    answer_set.entrant
                    for answer_set in answer_sets[:_MAX_NAMED_ENTRANTS]
                )
                lines.append(
                    f"{path}: {answer_sets[0].format}: {n:,} answers of {len(answer_sets)} entrants "
                    f"({names} and {len(answer_sets) - _MAX_NAMED_ENTRANTS} more)"
                )
        oddities = (
            line
            for answer_set in self.answer_sets.values()
            for line in self._warn_of_oddities(answer_set)
        )
        return [
            *lines,
            *_describe_wide_tables(self.answer_sets.values()),
            *oddities,
            *self._describe_counts(keeps_all),
            *self._describe_extra_draws(),
            *_describe_scores(self.answer_sets.values()),
        ]

    def _describe_extra_draws(self) -> list[str]:
        """Return a line if the files have more draws than are compared."""
        n = min(
            (
                answer_set.n_draws
                for answer_set in self.answer_sets.values()
                if answer_set.n_draws > 1
            ),
            default=1,
        )
        if n <= self.draws:
            return []
        return [
            f"answers: {self.draws} of {n} per prompt; answers_per_prompt={n} compares all"
        ]

    def _warn_of_oddities(self, answer_set: AnswerSet) -> Iterator[str]:
        """Warn of answers that join no prompt, or one of another text."""
        joined_rows, other_text_ids = set[int](), list[str]()
        for prompt in self.prompts:
            rows = answer_set.rows_for_prompt(prompt)
            joined_rows |= set(map(id, rows))
            texts = [row.prompt for row in rows if row.prompt is not None]
            if any(fold_spaces(text) != fold_spaces(prompt.text) for text in texts):
                other_text_ids.append(prompt.prompt_id)
        if n_cut := sum(
            len(row.later_turns) > 0 for row in self._find_single_turn_rows(answer_set)
        ):
            yield f"{answer_set.entrant}: the first turn of {n_cut:,} answers, whose prompts ask no more"
        strays = [
            r
            for r in answer_set.rows
            if r.text is not None and id(r) not in joined_rows
        ]
        if strays:
            example = strays[0].id or repr(fold_spaces(strays[0].prompt or "")[:40])
            yield (
                f"warning: {answer_set.entrant}: {len(strays):,} answers are to no prompt of the bank "
                f"({example}), and left out."
            )
        if other_text_ids:
            yield (
                f"warning: {answer_set.entrant}: {len(other_text_ids):,} answers are joined by id alone: their "
                f"file has another text for the prompt ({other_text_ids[0]})."
            )

    def _find_single_turn_rows(self, answer_set: AnswerSet) -> Iterator[Answer]:
        """Yield the rows that answer prompts of one turn."""
        for prompt in self.prompts:
            if conversations.n_turns(prompt) == 1:
                yield from answer_set.rows_for_prompt(prompt)

    def _describe_counts(self, keeps_all: bool) -> list[str]:
        n, m, shared_prompts = (
            len(self.prompts),
            len(self.answer_sets),
            self.shared_prompts,
        )
        shortfalls = [
            f"{name} lacks {n - len(keys):,}"
            for name, keys in self._entrants_by_n_answered
            if len(keys) < n
        ]
        more = f" and {len(shortfalls) - 5} more" if shortfalls[5:] else ""
        whom = f"all {m} entrants" if m > 2 else "both entrants"
        if m == 1:
            whom = next(iter(self.answer_sets))
        n_with_reference = sum(
            prompt.gold_answer is not None for prompt in shared_prompts
        )
        n_shared = len(shared_prompts)
        line = f"prompts: {n_shared:,} of {n:,} answered by {whom}"
        line += f" ({', '.join(shortfalls[:5])}{more})" if shortfalls else ""
        lines = [f"{line}, {n_with_reference:,} with a reference answer"]
        if n - n_shared > _MAX_UNANSWERED_SHARE * n and not keeps_all:
            lines.append(
                f"warning: {n - n_shared:,} of {n:,} prompts lack an answer. A lead holds only if it "
                "survives when these prompts count against it."
            )
        return lines


def find_guessed_columns(answer_sets: Iterable[AnswerSet]) -> dict[Path, list[str]]:
    """Return the columns that are taken as an entrant each because they hold texts, by file."""
    guessed = defaultdict[Path, list[str]](list)
    for answer_set in answer_sets:
        if answer_set.format == answers.WIDE_TABLE:
            guessed[answer_set.path].append(answer_set.inner_name or answer_set.entrant)
    return dict(guessed)


def _describe_wide_tables(answer_sets: Iterable[AnswerSet]) -> list[str]:
    """Return the setting that a model as judge needs, for each table with guessed entrants."""
    lines = []
    for path, columns in find_guessed_columns(answer_sets).items():
        (setting,) = column_roles.format_settings({"answer": columns})
        lines += [
            f"{path}: each column of texts is taken as an entrant. With a model as the judge, add:",
            setting,
        ]
    return lines


def _describe_scores(answer_sets: Collection[AnswerSet]) -> list[str]:
    """Return how to rate by the scores that all rows have beside their answers; nothing without such scores."""
    rows = [row for answer_set in answer_sets for row in answer_set.rows]
    names = (
        name
        for name in column_roles.NAMES_BY_ROLE["score"]
        if all(column_roles.is_number(row.columns.get(name)) for row in rows)
    )
    if (name := next(names, None)) is None:
        return []
    paths = dict.fromkeys(
        shlex.quote(str(answer_set.path)) for answer_set in answer_sets
    )
    return [
        f"scores: each row also has a number in {name}. To rate by it, without a judge:",
        f"  python -m elo_exp experiment=rate {' '.join(paths)} columns.score={name}",
    ]


def _folder_name(path: Path) -> str:
    return path.absolute().parent.name


def parse_answers_setting(value: Any) -> list[NamedFile]:
    """Return the files that the setting `answers` names, those in a folder one by one.

    value  a file, a list of files or of {name: NAME, file: FILE}, or NAME: FILE. With null in place of
           a file, the entrant of this name is left out
    Raises SettingError for anything else, and for a name that stands twice.
    """
    items = [] if value is None else value if isinstance(value, list) else [value]
    if isinstance(value, Mapping):
        items = [{"name": name, "file": file} for name, file in value.items()]
    named_files: list[NamedFile] = []
    for item in items:
        name, file = None, item
        if isinstance(item, Mapping) and set(item) == {"name", "file"}:
            name, file = str(item["name"]), item["file"]
            if file in (None, "null"):
                named_files.append((name, None))
                continue
        if not isinstance(file, str) or not file:
            raise SettingError.bad_value(
                "answers", file, "be a file, a list of files, or NAME: FILE"
            )
        if name is not None and name in [other_name for other_name, _ in named_files]:
            raise SettingError(f"answers must have each name once; got {name} twice.")
        path = Path(file)
        inner_paths = (
            sorted(filter(Path.is_file, path.glob("[!.]*"))) if path.is_dir() else []
        )
        if path.is_dir() and (name is not None or not inner_paths):
            raise SettingError(
                f"answers must name files, and {file} is a folder. Name the files in it."
            )
        named_files += [(name, inner_path) for inner_path in inner_paths or [path]]
    return named_files


def read_answer_sets(
    files: Sequence[NamedFile], columns: Columns = NO_COLUMNS
) -> dict[str, AnswerSet]:
    """Read files, and return the answers of each entrant by name.

    columns  the column of each role, in the files that have it

    An entrant is called what the command says, else what the file says, else as the file, else as
    its folder. Raises FileError for a file that cannot be read, and SettingError for two of one name and
    for one that is left out and not there.
    """
    paths = [(name, path) for name, path in files if path is not None]
    stems = Counter(entrant_stem(path) for path in {path for _, path in paths})
    answer_sets: dict[str, AnswerSet] = {}
    present = column_roles.select_present([path for _, path in paths], columns)
    for name, path in paths:
        for answer_set in _split_by_entrant(
            path,
            name,
            present.get(path, NO_COLUMNS),
            is_alone=stems[entrant_stem(path)] == 1,
        ):
            if not answer_set.entrant.isprintable():
                raise FileError.bad_file(
                    path,
                    f"names the entrant {format_value(answer_set.entrant)}, which has control characters",
                    "Give it another name:",
                    f"  'answers={{NAME:{path}}}'",
                )
            if answer_set.entrant in answer_sets:
                raise _build_second_file_error(
                    answer_set, answer_sets[answer_set.entrant].path
                )
            answer_sets[answer_set.entrant] = answer_set
    for left_out in [name for name, path in files if path is None]:
        if answer_sets.pop(str(left_out), None) is None:
            choices = ", ".join(list(answer_sets)[:5]) + (
                ", ..." if len(answer_sets) > 5 else ""
            )
            raise SettingError(
                f"answers leaves out {left_out} (null), and no file has it. Choose from {choices}."
            )
    return answer_sets


def _build_second_file_error(answer_set: AnswerSet, first_path: Path) -> SettingError:
    paths = [first_path, answer_set.path]
    distinct_names = next(
        (names for names in (list(map(entrant_stem, paths)), list(map(_folder_name, paths))) if len(set(names)) > 1),
        ["one", "two"],
    )  # fmt: skip
    suggestion = ",".join(
        f"{name}:{path}" for name, path in zip(distinct_names, paths, strict=True)
    )
    return SettingError(
        f"{first_path} and {answer_set.path} both hold answers of {answer_set.entrant}. Name the two:",
        f"  'answers={{{suggestion}}}'",
    )


def _split_by_entrant(
    path: Path, name: str | None, columns: Columns, *, is_alone: bool
) -> Iterable[AnswerSet]:
    file_format, rows, by_entrant = _read_file(path, columns)
    inner_names = [name for name in by_entrant if name is not None]
    shared_fields: dict[str, Any] = {
        "path": path,
        "format": file_format.name,
        "is_named": name is not None,
        "columns": columns,
    }
    if name is not None and len(inner_names) > 1:
        if name not in inner_names:
            choices = ", ".join(inner_names[:5]) + (
                ", ..." if len(inner_names) > 5 else ""
            )
            raise SettingError(
                f"{path} has the answers of {len(inner_names)} entrants, and none is called {name}. Choose from {choices}."
            )
        entrant_rows = by_entrant[name]
        return [
            AnswerSet(entrant=name, inner_name=name, rows=entrant_rows, **shared_fields)
        ]
    unnamed_rows = [row for row in by_entrant.get(None, ()) if row.text is not None]
    if inner_names and unnamed_rows:
        raise FileError.bad_file(
            unnamed_rows[0].location,
            "names no model, and other rows do",
            "Name it, or leave the row out.",
        )
    if len(inner_names) > 1:
        return [
            AnswerSet(
                entrant=entrant,
                inner_name=entrant,
                rows=by_entrant[entrant],
                **shared_fields,
            )
            for entrant in inner_names
        ]
    default_name = (
        entrant_stem(path)
        if is_alone and not file_format.in_folder
        else _folder_name(path)
    )
    entrant_name = name or next(iter(inner_names), None) or default_name
    return [
        AnswerSet(entrant=entrant_name, inner_name=None, rows=rows, **shared_fields)
    ]


def read_answer_set(
    path: Path, entrant: str, inside: str | None, columns: Columns = NO_COLUMNS
) -> AnswerSet:
    """Return the answers of one entrant of a file, as `entrants` has found them.

    columns  the file's column of each role that the command names
    """
    (answer_set,) = _split_by_entrant(path, inside or entrant, columns, is_alone=True)
    return AnswerSet(**{**vars(answer_set), "entrant": entrant, "inner_name": inside})


def join(
    files: Mapping[str, AnswerSet], bank: PromptBank | None, *, draws: int = 1
) -> JoinedAnswers:
    """Join answers to the prompts of a bank or, without one, to those that the files hold.

    A prompt is found by its text, whatever its white space, else by its id. Raises SettingError
    if no file holds a prompt, and FileError for an id that stands for two and for two references.
    """
    return JoinedAnswers(
        prompts=bank.prompts if bank else _collect_prompts(files),
        answer_sets=files,
        bank=bank.path if bank else None,
        draws=draws,
    )


def _collect_prompts(files: Mapping[str, AnswerSet]) -> list[Prompt]:
    """Return the prompts of files, in an order that does not depend on the order of the files."""
    rows = [row for answer_set in files.values() for row in answer_set.rows]
    by_text: dict[str, list[Answer]] = defaultdict(list)
    texts_of: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.prompt is not None:
            by_text[fold_spaces(row.prompt)].append(row)
            if row.id is not None:
                texts_of[row.id].add(fold_spaces(row.prompt))
    if not by_text:
        raise SettingError(
            "The files of answers hold no prompts. Add the questions that they answer:",
            "  prompts=FILE",
        )
    for row in rows:
        if row.prompt is None and len(texts_of.get(row.id or "", ())) > 1:
            raise FileError.bad_file(
                row.location,
                f"has the id {row.id}, which stands for two prompts in these files",
                "Add prompts=FILE.",
            )
    prompts = []
    for key, texts in texts_of.items():
        question = _find_shared_question(
            key, [row for text in texts for row in by_text[text]]
        )
        if len(texts) > 1 and question is not None:
            prompt_rows = [row for text in texts for row in by_text.pop(text)]
            prompts.append(_build_prompt(key, question, prompt_rows))
    for text, prompt_rows in by_text.items():
        ids = [key for key in {row.id for row in prompt_rows} if key is not None]
        is_known = len(ids) == 1 and len(texts_of[ids[0]]) == 1
        key = ids[0] if is_known else hash_text(text)
        prompts.append(
            _build_prompt(key, min(str(row.prompt) for row in prompt_rows), prompt_rows)
        )
    return sorted(prompts, key=lambda prompt: natural_key(prompt.prompt_id))


def _find_shared_question(key: str, rows: Sequence[Answer]) -> str | None:
    """Return the question shared by all rows with this id, or None."""
    questions = {row.question for row in rows}
    is_shared = len(questions) == 1 and all(row.id == key for row in rows)
    return questions.pop() if is_shared else None


def _build_prompt(key: str, text: str, rows: Sequence[Answer]) -> Prompt:
    sources = {row.source for row in rows} - {None}
    return Prompt(
        prompt_id=key,
        text=text,
        source=str(*sources) if len(sources) == 1 else DEFAULT_SOURCE,
        subject=DEFAULT_SOURCE,
        gold_answer=_find_reference(rows),
        messages=next(
            (row.question_messages for row in rows if row.question_messages), ()
        ),
    )


def _find_reference(rows: Sequence[Answer]) -> str | None:
    referenced_rows = [row for row in rows if row.reference is not None]
    for row in referenced_rows[1:]:
        if fold_spaces(str(row.reference)) != fold_spaces(
            str(referenced_rows[0].reference)
        ):
            raise FileError.bad_file(
                row.location,
                f"has another reference for its prompt than {referenced_rows[0].location}",
                "Add prompts=FILE, whose references count.",
            )
    return min((str(row.reference) for row in referenced_rows), default=None)


def _read_file(path: Path, columns: Columns) -> _AnswerFile:
    """Return a file's format, its rows, and these by entrant.

    It is read once in a command, in which several parts ask for it, as long as it does not change.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise FileError.not_found(path) from None
    except OSError as error:
        raise FileError.bad_file(path, f"cannot be read ({error.strerror})") from None
    version = status.st_ino, status.st_mtime_ns, status.st_size
    source = column_roles.name_columns(path, columns, column_roles.ANSWER_COLUMNS)
    return _read_version(path.absolute(), source, version)


@functools.lru_cache(maxsize=256)
def _read_version(_: Path, source: Source, __: tuple[int, int, int]) -> _AnswerFile:
    file_format, rows = answers.read_answers(source)
    by_entrant: dict[str | None, list[Answer]] = defaultdict(list)
    for row in rows:
        by_entrant[row.entrant].append(row)
    return file_format, rows, dict(by_entrant)
