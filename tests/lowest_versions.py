"""The lowest versions of direct dependencies that pyproject.toml allows, as pip's constraints.

python -m tests.lowest_versions [EXTRA ...] > constraints.txt
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]


def lowest_versions(*extras: str) -> list[str]:
    """Return `name==version` for the requirements of the project and of some of its extras."""
    requirements = [
        *PROJECT["dependencies"],
        *(line for extra in extras for line in PROJECT["optional-dependencies"][extra]),
    ]
    bounds = (
        re.match(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", line) for line in requirements
    )
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


if __name__ == "__main__":
    print("\n".join(lowest_versions(*sys.argv[1:])))
