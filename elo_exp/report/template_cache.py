"""Compiled templates, kept in the user's cache folder: they are compiled once an installation, not once a run.

A compiled template is code that runs, so that a file is loaded where nobody but this user can have written it: file and
folder are the user's, no other may write them, and the file is whole and of these versions. All else is compiled anew.
"""

import contextlib
import hashlib
import os
import sys
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from elo_exp.files import write_whole
from elo_exp.version import __version__

# Write permission of group and all
_WRITABLE_BY_OTHERS_BITS = 0o022


class TemplateCache(jinja2.BytecodeCache):
    """A file for each template of an installation; where there can be none, nothing is kept."""

    def __init__(self, folder: Path | None, options: object) -> None:
        """options: of the environment, all of which the code of a template is made by."""
        self._folder = folder
        versions = (__version__, jinja2.__version__, sys.implementation.cache_tag)
        self._fingerprint = repr((*versions, options)).encode()

    def load_bytecode(self, bucket: Bucket) -> None:
        if self._folder is None or not _is_user_folder(self._folder):
            return
        with (
            contextlib.suppress(OSError),
            (self._folder / bucket.key).open("rb") as file,
        ):
            if _only_user_can_write(os.fstat(file.fileno())):
                digest, code = file.read(32), file.read()
                if digest == self._digest(code):
                    bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if self._folder is None:
            return
        with contextlib.suppress(OSError):  # read-only, full, a file in its place
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_user_folder(self._folder):
                code = bucket.bytecode_to_string()
                write_whole(self._folder / bucket.key, self._digest(code) + code)

    def _digest(self, code: bytes) -> bytes:
        return hashlib.sha256(self._fingerprint + code).digest()


def user_folder() -> Path | None:
    """Return the folder of compiled templates of this user; None where the user has no home."""
    if cache_home := os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA"):
        return Path(cache_home) / "elo_exp" / "templates"
    try:
        return Path.home() / ".cache" / "elo_exp" / "templates"
    except RuntimeError:
        return None


def _is_user_folder(folder: Path) -> bool:
    try:
        return _only_user_can_write(folder.stat())
    except OSError:
        return False


def _only_user_can_write(status: os.stat_result) -> bool:
    """Return whether only this user can have written a file or folder; Windows keeps the folders of users apart itself."""
    if sys.platform == "win32":
        return True
    return (
        status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS_BITS
    )
