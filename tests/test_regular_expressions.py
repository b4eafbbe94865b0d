"""No text takes a regular expression of the package more than linear time."""

import pytest

from tests.regular_expressions import expressions

LONG = 50_000  # characters
LIMIT = 4.0  # CPU-seconds, of which linear time mostly takes hundredths


@pytest.mark.system
def test_the_longest_texts_take_linear_time():
    slow = []
    for expression in expressions():
        text = expression.worst_text(80)(LONG)
        if (seconds := expression.seconds(text)) > LIMIT:
            slow.append((expression.name, text[:20], seconds))
    assert not slow
