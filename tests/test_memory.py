"""What the jobs of a sweep do not work out again: the same objects by the same settings, and nothing else."""

import gc
from collections.abc import Callable, Iterator

import pytest

from elo_exp import memory
from elo_exp.records import Prompt


@pytest.fixture
def on() -> Iterator[None]:
    memory.start()
    yield
    memory.stop()


def counted() -> tuple[list[int], Callable[[], list[int]]]:
    made: list[int] = []

    def make() -> list[int]:
        made.append(len(made))
        return list(made)

    return made, make


def test_a_result_is_made_once_of_the_same_objects_by_the_same_settings(on: None):
    made, make = counted()
    source = [1, 2]
    first = memory.once("sum", make, of=(source,), by="k")
    assert memory.once("sum", make, of=(source,), by="k") is first
    assert len(made) == 1


@pytest.mark.parametrize(
    ("name", "source", "by"), [("other", "mine", "k"), ("sum", "equal", "k"), ("sum", "mine", "j")]
)
def test_another_name_object_or_setting_is_another_result(
    on: None, name: str, source: str, by: str
):
    """An equal object is another one: only `same` makes equal values one."""
    sources = {"mine": [1, 2], "equal": [1, 2]}
    made, make = counted()
    memory.once("sum", make, of=(sources["mine"],), by="k")
    memory.once(name, make, of=(sources[source],), by=by)
    assert len(made) == 2


def test_equal_values_of_a_kind_are_one_object(on: None):
    first = memory.same("verdicts", {"a": [1]})
    assert memory.same("verdicts", {"a": [1]}) is first
    assert memory.same("verdicts", {"a": [2]}) == {"a": [2]}
    assert memory.same("others", {"a": [1]}) is not first


def test_a_result_is_never_taken_for_that_of_an_object_which_is_gone(on: None):
    """Python gives the place of a dead object, which is its id, to the next one."""
    for n in range(1000):
        assert memory.once("copy", lambda n=n: n, of=([n],)) == n  # type: ignore[misc]
        gc.collect(0)


def test_a_row_is_read_once(on: None):
    text = '{"prompt_id": "p", "text": "t", "source": "s", "subject": "u"}'
    assert memory.read(Prompt, text) is memory.read(Prompt, text)
    assert memory.read(Prompt, text) == Prompt(prompt_id="p", text="t", source="s", subject="u")


def test_outside_a_sweep_nothing_is_kept():
    made, make = counted()
    source = [1, 2]
    assert memory.once("sum", make, of=(source,)) is not memory.once("sum", make, of=(source,))
    assert memory.same("verdicts", source) is source
    assert memory.same("verdicts", [1, 2]) is not source
    assert len(made) == 2
