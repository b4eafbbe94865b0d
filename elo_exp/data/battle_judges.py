"""Who judged battles: people, or judges whose verdicts are shares of points or labels."""

import numpy as np

from elo_exp.data.battles import Battles, Codes

# Judge names that do not identify a person
_ANONYMOUS_JUDGES = {
    "human",
    "humans",
    "people",
    "crowd",
    "users",
    "voters",
    "annotators",
}


def count_shares_and_labels(battles: Battles) -> tuple[int, int]:
    """Count the verdicts of judges that are shares of points, and those that are labels; votes are neither."""
    is_vote = np.append([name == "human" for name in battles.sources], False)
    is_share = np.isfinite(battles.score)
    is_judged = ~is_vote[battles.source]
    return battles.count_at(is_judged & is_share), battles.count_at(
        is_judged & ~is_share
    )


def find_annotators(battles: Battles) -> Codes | None:
    """Return the person behind each battle (n,), a code of `judges`; None unless all are votes, and some name one.

    "human", "people" and the like are no names. Votes that name nobody among others that do have the code -1: they
    count together as one person.
    """
    is_vote = np.array([*(n == "human" for n in battles.sources), False], np.bool_)
    is_personal_name = np.array(
        [*(n not in _ANONYMOUS_JUDGES for n in battles.judges), False], np.bool_
    )
    is_named = is_personal_name[battles.judge]
    if not is_vote[battles.source].all() or not is_named.any():
        return None
    return np.where(is_named, battles.judge, np.int32(-1))
