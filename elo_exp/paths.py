"""The folders of the files that ship beside the code."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
HOME = _PACKAGE / "home" if (_PACKAGE / "home").is_dir() else _PACKAGE.parent
"""The folder of conf/, rubrics/ and prompts/: inside the package in a wheel, the checkout's root otherwise."""

CONF = HOME / "conf"
