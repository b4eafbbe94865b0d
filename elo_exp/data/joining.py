"""Files of answers, joined to the prompts that they answer; what is missing on either side is said."""

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elo_exp.data import answers, bank, conversations
from elo_exp.data.answers import Answer
from elo_exp.data.fields import folded, natural
from elo_exp.records import Prompt, Response, UserError

_LOST = 0.1  # of the prompts, from which on missing answers are a warning
_NAMED = 3  # entrants of a file that have a line each, or that a line names
_CUT = "length"

# A name and its file. No name: the file's own; no file: the entrant of this name is left out
Given = tuple[str | None, Path | None]
_File = tuple[answers.Format, Sequence[Answer], Mapping[str | None, Sequence[Answer]]]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers of one entrant, of one file.

    given   whether the command named the entrant
    inside  the file's own name of it, where the file has several
    """

    entrant: str
    path: Path
    format: str
    given: bool
    inside: str | None
    rows: Sequence[Answer]

    @functools.cached_property
    def _by_text(self) -> Mapping[str, Sequence[Answer]]:
        found = defaultdict(list)
        for row in self.rows:
            if row.prompt is not None:
                found[folded(row.prompt)].append(row)
        return found

    @functools.cached_property
    def _by_id(self) -> Mapping[str, Sequence[Answer]]:
        found = defaultdict(list)
        for row in self.rows:
            if row.id is not None:
                found[row.id].append(row)
        return found

    def rows_of(self, key: str) -> Sequence[Answer]:
        """Return the rows with this id."""
        return self._by_id.get(key, ())

    def rows_to(self, prompt: Prompt) -> Sequence[Answer]:
        """Return the rows that answer a prompt, whichever draw they are.

        They are found by its text, and of equal texts by its id; else by its id.
        """
        same_text = self._by_text.get(folded(prompt.text), ())
        both = [row for row in same_text if row.id == prompt.prompt_id]
        return both or same_text or self.rows_of(prompt.prompt_id)

    def to(self, prompt: Prompt) -> Answer | None:
        """Return the answer to a prompt and draw; None where there is none. Raises UserError for two that differ."""
        rows = [
            row
            for row in self.rows_to(prompt)
            if row.text is not None
            and row.draw_idx == prompt.draw_idx
            and None not in row.later[: conversations.n_turns(prompt) - 1]
        ]
        for row in rows[1:]:
            if (row.text, row.messages) != (rows[0].text, rows[0].messages):
                raise UserError(
                    f"{row.place}: a second, different answer of {self.entrant} to "
                    f"{prompt.prompt_id!r}; the first is at {rows[0].place}. Keep one of them."
                )
        return rows[0] if rows else None

    def answers(self, prompt: Prompt, draws: int) -> bool:
        """Whether a prompt has this many answers, or as many as each has in this file, where these are fewer."""
        n = min(draws, self.n_draws)
        each = (replace(prompt, draw_idx=i) for i in range(n))
        return all(self.to(one) is not None for one in each)

    def response(self, prompt: Prompt) -> Response | None:
        """Return the same as a Response under the entrant's name."""
        row = self.to(prompt)
        if row is None:
            return None
        assert row.text is not None
        recorded = {"finish_reason": _CUT if row.is_cut else None, **row.recorded}
        found = Response(
            entrant_id=self.entrant,
            prompt_id=prompt.prompt_id,
            response_text=row.text,
            messages=row.messages,
            draw_idx=row.draw_idx,
            **recorded,
        )
        n_turns = conversations.n_turns(prompt)
        if n_turns == 1 or row.messages:
            return found
        if len(row.later) < n_turns - 1:
            raise UserError(
                f"{row.place}: answers {1 + len(row.later)} of the {n_turns} turns that prompt "
                f"{prompt.prompt_id!r} asks. Expected all of them; a bank of first turns asks no more."
            )
        later = [
            replace(found, response_text=text)
            for text in row.later[: n_turns - 1]
            if text is not None
        ]
        return conversations.joined(prompt, [found, *later])

    def has_failed(self, prompt: Prompt) -> bool:
        """Whether the file records that the request failed, so that nobody has to guess why an answer is missing."""
        rows = [row for row in self.rows_to(prompt) if row.text is None]
        return any(row.is_failed for row in rows) and self.to(prompt) is None

    @property
    def n_answers(self) -> int:
        """How many prompts it answers: a program may write a row for each of its filters."""
        rows = [row for row in self.rows if row.text is not None]
        return len({(row.id, folded(row.prompt or "")) for row in rows})

    @functools.cached_property
    def n_draws(self) -> int:
        """How many answers there are to each prompt, at least; those that failed are among them."""
        last = dict[Any, int]()
        for row in self.rows:
            key = row.id or folded(row.prompt or "")
            last[key] = max(last.get(key, 0), row.draw_idx)
        return 1 + min(last.values(), default=0)

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

    def line(self) -> str:
        """Return what was read, in words."""
        facts = self.facts()
        counts = [
            f"{facts['empty']} empty" if facts["empty"] else "",
            f"{facts['cut_off']} cut off" if facts["cut_off"] else "",
            *(f"{note} of {n}" for note, n in facts["notes"].items()),
            f"{facts['failed']} failed" if facts["failed"] else "",
            f"{facts['later_draws']:,} later draws" if "later_draws" in facts else "",
        ]
        is_plain = self.entrant in (stem(self.path), _folder(self.path))
        if not (self.given or self.inside or is_plain):
            counts.append("call it otherwise: 'answers={NAME:FILE,...}'")
        text = (
            f"{self.path}: {self.format}: {self.n_answers:,} answers of {self.entrant}"
        )
        return "; ".join([text, *filter(None, counts)])


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Prompts, and who answered them.

    prompts  of the bank or, without one, of the files; in an order that is not that of the files
    files    the answers of each entrant, by name
    bank     the file of the prompts; None: they are those of the answers
    draws    how many answers to each prompt are wanted, of files that have several
    """

    prompts: Sequence[Prompt]
    files: Mapping[str, Answers]
    bank: Path | None
    draws: int = 1

    @functools.cached_property
    def answered(self) -> Mapping[str, Sequence[str]]:
        """The prompts that each entrant answered in every draw, by their ids."""
        return {
            name: [p.prompt_id for p in self.prompts if one.answers(p, self.draws)]
            for name, one in self.files.items()
        }

    @functools.cached_property
    def planned(self) -> Sequence[Prompt]:
        """The prompts to which some file has a row, answered or not. Raises UserError if no two entrants can be compared.

        A prompt of the bank to which no file has a row was not asked.
        """
        self._refuse_incomparable()
        return [
            prompt
            for prompt in self.prompts
            if any(one.rows_to(prompt) for one in self.files.values())
        ]

    @functools.cached_property
    def failed(self) -> Mapping[str, Sequence[str]]:
        """The prompts on which each entrant is on record as having failed, by their ids."""
        return {
            name: [p.prompt_id for p in self.prompts if one.has_failed(p)]
            for name, one in self.files.items()
        }

    def clusters(self, column: str) -> dict[str, str] | None:
        """Return the cluster of each prompt that the files name in a column, by its id; None if no row has the column.

        Raises UserError for a prompt in two clusters.
        """
        key, found = column.strip().casefold(), dict[str, tuple[str, str]]()
        for prompt in self.prompts:
            for one in self.files.values():
                for row in one.rows_to(prompt):
                    if (cluster := row.columns.get(key)) is None:
                        continue
                    first, place = found.setdefault(
                        prompt.prompt_id, (cluster, row.place)
                    )
                    if cluster != first:
                        raise UserError(
                            f"{row.place}: prompt {prompt.prompt_id!r} is in cluster {cluster!r}, and at {place} in "
                            f"{first!r}. Expected one cluster of each prompt."
                        )
        if not found and not any(
            key in row.columns for one in self.files.values() for row in one.rows
        ):
            return None
        return {name: cluster for name, (cluster, _) in found.items()}

    @property
    def columns(self) -> list[str]:
        """The names of short cells that the files have, sorted."""
        return sorted(
            {
                name
                for one in self.files.values()
                for row in one.rows
                for name in row.columns
            }
        )

    @functools.cached_property
    def shared(self) -> Sequence[Prompt]:
        """The prompts that all entrants answered. Raises UserError if no two entrants can be compared."""
        self._refuse_incomparable()
        counts = self._n_answered
        return [p for p in self.prompts if counts[p.prompt_id] == len(self.files)]

    @functools.cached_property
    def _n_answered(self) -> Mapping[str, int]:
        """How many entrants answered each prompt."""
        return Counter(key for keys in self.answered.values() for key in keys)

    def _refuse_incomparable(self) -> None:
        """Raise UserError if no prompt is answered by two entrants, or by the one that there is."""
        least = min(2, len(self.files))
        if max(self._n_answered.values(), default=0) < least:
            have = [f"{name} has {len(keys):,}" for name, keys in self._by_number]
            rest = f" and {len(have) - 5} more" if have[5:] else ""
            hint = " Are these answers to one set of prompts?"
            if self.bank is not None:
                hint = f" Are these answers to the prompts of {self.bank}?"
            for one in self.files.values():
                if all(row.prompt is None for row in one.rows):
                    hint = f" {one.path} holds no prompts: add prompts=FILE."
                    break
            whom = "all" if len(self.files) <= 2 else "two of them"
            raise UserError(
                f"answers: no prompt is answered by {whom} ({', '.join(have[:5])}{rest}, none "
                f"shared).{hint}"
            )

    @property
    def _by_number(self) -> list[tuple[str, Sequence[str]]]:
        return sorted(self.answered.items(), key=lambda item: len(item[1]))

    def lines(self, *, keeps_all: bool = False) -> list[str]:
        """Return what was read and what is missing, a line each; warnings begin with "warning: ".

        keeps_all  prompts that not all answered are not left out
        """
        by_path = defaultdict(list)
        for one in self.files.values():
            by_path[one.path].append(one)
        lines = []
        for path, several in by_path.items():
            if len(several) <= _NAMED:
                lines += [one.line() for one in several]
            else:
                n = sum(one.n_answers for one in several)
                names = ", ".join(one.entrant for one in several[:_NAMED])
                lines.append(
                    f"{path}: {several[0].format}: {n:,} answers of {len(several)} entrants "
                    f"({names} and {len(several) - _NAMED} more)"
                )
        joined = (line for one in self.files.values() for line in self._oddities(one))
        return [*lines, *joined, *self._counts(keeps_all), *self._of_draws()]

    def _of_draws(self) -> list[str]:
        """Say that there are more draws than are wanted."""
        n = min(
            (one.n_draws for one in self.files.values() if one.n_draws > 1), default=1
        )
        if n <= self.draws:
            return []
        return [
            f"draws: {self.draws} of the {n} answers to each prompt; draws={n} compares all"
        ]

    def _oddities(self, one: Answers) -> Iterator[str]:
        """Warn of answers that join no prompt, or one of another text."""
        used, otherwise = set[int](), list[str]()
        for prompt in self.prompts:
            rows = one.rows_to(prompt)
            used |= set(map(id, rows))
            texts = [row.prompt for row in rows if row.prompt is not None]
            if any(folded(text) != folded(prompt.text) for text in texts):
                otherwise.append(prompt.prompt_id)
        if cut := sum(len(row.later) > 0 for row in self._of_one_turn(one)):
            yield f"{one.entrant}: the first turn of {cut:,} answers, whose prompts ask no more"
        strays = [r for r in one.rows if r.text is not None and id(r) not in used]
        if strays:
            what = strays[0].id or repr(folded(strays[0].prompt or "")[:40])
            yield (
                f"warning: {one.entrant}: {len(strays):,} answers are to no prompt of the bank "
                f"({what}), and left out."
            )
        if otherwise:
            yield (
                f"warning: {one.entrant}: {len(otherwise):,} answers are joined by id alone: their "
                f"file has another text for the prompt ({otherwise[0]})."
            )

    def _of_one_turn(self, one: Answers) -> Iterator[Answer]:
        """The rows that answer prompts of one turn."""
        for prompt in self.prompts:
            if conversations.n_turns(prompt) == 1:
                yield from one.rows_to(prompt)

    def _counts(self, keeps_all: bool) -> list[str]:
        n, m, shared = len(self.prompts), len(self.files), self.shared
        lacking = [
            f"{name} lacks {n - len(keys):,}"
            for name, keys in self._by_number
            if len(keys) < n
        ]
        rest = f" and {len(lacking) - 5} more" if lacking[5:] else ""
        whom = f"all {m}" if m > 1 else next(iter(self.files))
        referred = sum(prompt.gold_answer is not None for prompt in shared)
        line = f"prompts: {n:,}, answered by {whom}: {len(shared):,}"
        line += f" ({', '.join(lacking[:5])}{rest})" if lacking else ""
        lines = [f"{line}; {referred:,} with a reference"]
        if n - len(shared) > _LOST * n and not keeps_all:
            lines.append(
                f"warning: {n - len(shared):,} of {n:,} prompts lack an answer. A lead holds only if it "
                "survives when these count against it."
            )
        return lines


def stem(path: Path) -> str:
    """Return a file's name without its endings and without "responses_"."""
    name = Path(path.name.removesuffix(".gz")).stem
    return name.removeprefix("responses_") or name


def _folder(path: Path) -> str:
    return path.absolute().parent.name


def given(value: Any) -> list[Given]:
    """Return the files that the setting `answers` names, those in a folder one by one.

    value  a file, a list of files or of {name: NAME, file: FILE}, or NAME: FILE. With null in place of
           a file, the entrant of this name is left out
    Raises UserError for anything else, and for a name that stands twice.
    """
    items = [] if value is None else value if isinstance(value, list) else [value]
    if isinstance(value, Mapping):
        items = [{"name": name, "file": file} for name, file in value.items()]
    found: list[Given] = []
    for item in items:
        name, file = None, item
        if isinstance(item, Mapping) and set(item) == {"name", "file"}:
            name, file = str(item["name"]), item["file"]
            if file in (None, "null"):
                found.append((name, None))
                continue
        if not isinstance(file, str) or not file:
            raise UserError(
                f"answers: found {file!r:.80}. Expected a file, a list of files, or NAME: FILE."
            )
        if name is not None and name in [known for known, _ in found]:
            raise UserError(f"answers: {name!r} stands twice. Give each file its own.")
        path = Path(file)
        inside = (
            sorted(filter(Path.is_file, path.glob("[!.]*"))) if path.is_dir() else []
        )
        if path.is_dir() and (name is not None or not inside):
            raise UserError(f"answers: {file} is a folder. Name the files in it.")
        found += [(name, one) for one in inside or [path]]
    return found


def entrants(files: Sequence[Given]) -> dict[str, Answers]:
    """Read files, and return the answers of each entrant by name.

    An entrant is called what the command says, else what the file says, else as the file, else as
    its folder. Raises UserError for a file that cannot be read, for two of one name, and for one that
    is left out and not there.
    """
    paths = [(name, path) for name, path in files if path is not None]
    stems = Counter(stem(path) for path in {path for _, path in paths})
    found: dict[str, Answers] = {}
    for name, path in paths:
        for one in _of_file(path, name, is_alone=stems[stem(path)] == 1):
            if not one.entrant.isprintable():
                raise UserError(
                    f"{path}: is of {one.entrant!r}. Expected a name without control characters: "
                    "'answers={NAME:FILE,...}'."
                )
            if one.entrant in found:
                raise UserError(_second(one, found[one.entrant].path))
            found[one.entrant] = one
    for out in [name for name, path in files if path is None]:
        if found.pop(str(out), None) is None:
            known = ", ".join(list(found)[:5]) + (", ..." if len(found) > 5 else "")
            raise UserError(
                f"answers: {out!r} is left out (null), and no file has it. Choose one of {known}."
            )
    return found


def _second(one: Answers, first: Path) -> str:
    paths = [first, one.path]
    pairs = next(
        (names for names in (list(map(stem, paths)), list(map(_folder, paths))) if len(set(names)) > 1),
        ["one", "two"],
    )  # fmt: skip
    named = ",".join(f"{name}:{path}" for name, path in zip(pairs, paths, strict=True))
    return (
        f"{one.path}: a second file of {one.entrant!r}, as {first}. Name them: "
        f"'answers={{{named}}}'."
    )


def _of_file(path: Path, name: str | None, *, is_alone: bool) -> Iterable[Answers]:
    chosen, rows, by_entrant = _read(path)
    inside = [name for name in by_entrant if name is not None]
    about: dict[str, Any] = {
        "path": path,
        "format": chosen.name,
        "given": name is not None,
    }
    if name is not None and len(inside) > 1:
        if name not in inside:
            known = ", ".join(inside[:5]) + (", ..." if len(inside) > 5 else "")
            raise UserError(
                f"{path}: has the answers of {len(inside)} entrants, and none is called {name!r}. "
                f"Choose one of {known}."
            )
        own = by_entrant[name]
        return [Answers(entrant=name, inside=name, rows=own, **about)]
    unnamed = [row for row in by_entrant.get(None, ()) if row.text is not None]
    if inside and unnamed:
        raise UserError(
            f"{unnamed[0].place}: names no model, and other rows do. Name it, or leave the row out."
        )
    if len(inside) > 1:
        return [
            Answers(entrant=one, inside=one, rows=by_entrant[one], **about)
            for one in inside
        ]
    in_place = stem(path) if is_alone and not chosen.in_folder else _folder(path)
    called = name or next(iter(inside), None) or in_place
    return [Answers(entrant=called, inside=None, rows=rows, **about)]


def one(path: Path, entrant: str, inside: str | None) -> Answers:
    """Return the answers of one entrant of a file, as `entrants` has found them."""
    (found,) = _of_file(path, inside or entrant, is_alone=True)
    return Answers(**{**vars(found), "entrant": entrant, "inside": inside})


def join(
    files: Mapping[str, Answers], bank_path: Path | None, *, draws: int = 1
) -> Joined:
    """Join answers to the prompts of a bank or, without one, to those that the files hold.

    A prompt is found by its text, whatever its white space, else by its id. Raises UserError where
    no file holds a prompt, for an id that stands for two, and for two references.
    """
    prompts = bank.load(bank_path) if bank_path else _own_prompts(files)
    return Joined(prompts=prompts, files=files, bank=bank_path, draws=draws)


def _own_prompts(files: Mapping[str, Answers]) -> list[Prompt]:
    """Return the prompts of files, in an order that depends on them alone."""
    rows = [row for one in files.values() for row in one.rows]
    by_text: dict[str, list[Answer]] = defaultdict(list)
    texts_of: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.prompt is not None:
            by_text[folded(row.prompt)].append(row)
            if row.id is not None:
                texts_of[row.id].add(folded(row.prompt))
    if not by_text:
        raise UserError(
            "answers: these files hold no prompts. Add prompts=FILE, the questions that they answer."
        )
    for row in rows:
        if row.prompt is None and len(texts_of.get(row.id or "", ())) > 1:
            raise UserError(
                f"{row.place}: id {row.id!r} stands for two prompts in these files. Add prompts=FILE."
            )
    found = []
    for key, texts in texts_of.items():
        question = _question(key, [row for text in texts for row in by_text[text]])
        if len(texts) > 1 and question is not None:
            same = [row for text in texts for row in by_text.pop(text)]
            found.append(_prompt(key, question, same))
    for text, same in by_text.items():
        ids = [key for key in {row.id for row in same} if key is not None]
        is_known = len(ids) == 1 and len(texts_of[ids[0]]) == 1
        key = ids[0] if is_known else bank.hashed(text)
        found.append(_prompt(key, min(str(row.prompt) for row in same), same))
    return sorted(found, key=lambda prompt: natural(prompt.prompt_id))


def _question(key: str, rows: Sequence[Answer]) -> str | None:
    """Return the one question that rows of one id were all made of, if they were."""
    questions = {row.question for row in rows}
    is_one = len(questions) == 1 and all(row.id == key for row in rows)
    return questions.pop() if is_one else None


def _prompt(key: str, text: str, rows: Sequence[Answer]) -> Prompt:
    sources = {row.source for row in rows} - {None}
    return Prompt(
        prompt_id=key,
        text=text,
        source=str(*sources) if len(sources) == 1 else bank.OWN,
        subject=bank.OWN,
        gold_answer=_reference(rows),
        messages=next((row.asked for row in rows if row.asked), ()),
    )


def _reference(rows: Sequence[Answer]) -> str | None:
    given = [row for row in rows if row.reference is not None]
    for row in given[1:]:
        if folded(str(row.reference)) != folded(str(given[0].reference)):
            raise UserError(
                f"{row.place}: another reference than at {given[0].place}, to one prompt. Add "
                "prompts=FILE, whose references count."
            )
    return min((str(row.reference) for row in given), default=None)


def _read(path: Path) -> _File:
    """Return a file's format, its rows, and these by entrant.

    It is read once in a command, in which several parts ask for it, as long as it does not change.
    """
    try:
        about = path.stat()
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}). Check the path."
        ) from None
    version = about.st_ino, about.st_mtime_ns, about.st_size
    return _read_once(path.absolute(), path, version)


@functools.lru_cache(maxsize=256)
def _read_once(_: Path, path: Path, __: tuple[int, int, int]) -> _File:
    chosen, rows = answers.read(path)
    by_entrant: dict[str | None, list[Answer]] = defaultdict(list)
    for row in rows:
        by_entrant[row.entrant].append(row)
    return chosen, rows, dict(by_entrant)
