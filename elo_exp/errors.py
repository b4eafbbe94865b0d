"""Errors that a user can correct."""

from elo_exp.masking import mask_text


class UserError(Exception):
    """A mistake that the user can correct: shown as one line, exit code 2, no traceback.

    below  what there is to choose from, shown under the line as it is
    """

    def __init__(self, line: object, *below: str) -> None:
        line, below = mask_text(str(line)), tuple(map(mask_text, below))
        super().__init__("\n".join([line, *below]))
        self.line, self.below = line, below
