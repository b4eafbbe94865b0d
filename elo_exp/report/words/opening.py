"""The first line of a run on files: what there is to rate or to compare."""


def battles(n: int, n_dimensions: int) -> str:
    return f"{_counted(n, 'battle')} in {_counted(n_dimensions, 'dimension')}"


def scores(n_items: int, n_dimensions: int) -> str:
    return f"scores of {_counted(n_items, 'item')} in {_counted(n_dimensions, 'dimension')}"


def runs(n: int) -> str:
    return _counted(n, "finished run")


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
