"""A change is made in the one place that matches it, whatever is named how, and nothing is written anew beside it."""

import ast
import re

import pytest

from tests.changes import AddressError, Change, Text

SOURCE = '''\
LIMIT = 2.0


class Till:
    def pay(self, dollars: float, names: list[str]) -> bool:
        """Pay where there is room."""
        room = self._cap - self._spent  # of this till
        if dollars > room or not names:
            return False
        elif dollars == LIMIT:
            self._warn(names[0], why="limit")
        try:
            self._db.execute(f"UPDATE till SET paid = ? WHERE {OURS} AND NOT {DONE}")
        except OSError as error:
            self._error = error
        self._spent += dollars
        self._n += 1

        def told() -> list[str]:
            return [name for name in names if name]

        return bool(told())
'''
OTHER_NAMES = {
    **{"dollars": "money", "room": "space", "names": "payers", "name": "payer"},
    **{"_cap": "_most", "_spent": "_paid", "_warn": "_tell", "_db": "_store"},
    **{"OURS": "MINE", "DONE": "OVER", "error": "mistake", "_n": "_count"},
}
CHANGES = {  # by what they replace in the source by what
    ("2.0", "4.0"): ("LIMIT", Change("2.0", "4.0")),
    ("self._cap - self._spent", "self._cap"): ("Till.pay", Change("A - B", "A")),
    (" or not names", ""): ("Till.pay", Change("A or not B", "A")),
    ("dollars > room", "dollars > LIMIT"): (
        "Till.pay",
        Change("A > B", "A > N", given="A == N"),
    ),
    ("elif dollars == LIMIT", "elif not dollars == LIMIT"): (
        "Till.pay",
        Change("if A == B: ...", "if not A == B: ..."),
    ),
    ('self._warn(names[0], why="limit")', "pass"): (
        "Till.pay",
        Change("self.F(A, **...)", "pass"),
    ),
    ("        self._spent += dollars\n", ""): (
        "Till.pay",
        Change("A += B\nC += 1", "C += 1"),
    ),
    ("OSError", "ValueError"): (
        "Till",
        Change("except A as B: ...", "except ValueError as B: ..."),
    ),
    ("for name in names if name", "for name in names"): (
        "Till.pay.told",
        Change("for A in B if A", "for A in B"),
    ),
    ("{OURS} AND NOT {DONE}", "{OURS} OR TRUE"): (
        "Till.pay",
        Text("{} AND NOT {}", "{} OR TRUE"),
    ),
}


def renamed(source: str) -> str:
    return re.sub(r"\w+", lambda word: OTHER_NAMES.get(word[0], word[0]), source)


@pytest.mark.parametrize("how", [str, renamed])
@pytest.mark.parametrize("replaced", CHANGES)
def test_a_change_is_one_of_shape_and_not_of_names(replaced, how):
    name, change = CHANGES[replaced]
    edited = change.edited(how(SOURCE), f"till:{name}")
    assert SOURCE.count(replaced[0]) == 1
    assert ast.unparse(ast.parse(edited)) == ast.unparse(
        ast.parse(how(SOURCE.replace(*replaced)))
    )
    assert "# of this till" in edited


@pytest.mark.parametrize(
    ("where", "change", "why"),
    [
        ("till:Till.pay", Change("A - 1", "A"), "till:Till.pay: A - 1: not there"),
        ("till:Till.pay", Change("A += B", "pass"), "2 times, on lines 16, 17. Exp"),
        ("till:Till.pay", Change("A - B", "N", given="A * N"), "A \\* N: not there"),
        ("till:Till.pay", Change("A - B", "A - B"), "line 7: nothing"),
        ("till:Till.pay", Change("A - B", "if"), "A - B and if: no patterns of one"),
        ("till:Till.pay", Text("t", "d"), "t: 3 times, on lines 6, 11, 13."),
        ("till:Till.pay", Text("bank", "till"), "till:Till.pay: bank: not there"),
        ("till:Till.paid", Change("A", "B"), "till:Till.paid: paid is defined 0 times"),
        ("till.yaml", Text("self", "B"), "till.yaml: self: 8 times. Expected once"),
    ],
)
def test_an_address_of_no_place_or_of_several_is_refused(where, change, why):
    with pytest.raises(AddressError, match=why):
        change.edited(SOURCE, where)
