"""Language models: loading one at a time, generation, scoring, several heads and their product."""

import gc
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from elo_exp.errors import UserError

TokenRows = Sequence[Sequence[Sequence[int]]]  # token ids of prompt and answer, by row

# Holds at most one model
_loaded_models: dict[Any, Any] = {}


def load_weights(weights: Any) -> Any:
    """Load a model in place of the one that is loaded; equal weights are not loaded again.

    weights  hashable, with a method `load`, such as a Checkpoint
    """
    if weights not in _loaded_models:
        release_weights()
        _loaded_models[weights] = weights.load()
    return _loaded_models[weights]


def release_weights() -> None:
    """Drop the loaded model, if there is one, and free the accelerator's memory."""
    if _loaded_models:  # to look for garbage takes as long as a small run
        _loaded_models.clear()
        free_memory()


def free_memory() -> None:
    """Return the memory of dropped tensors to the accelerator."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch and torch.backends.mps.is_available():
        torch.mps.empty_cache()


def require_packages(model: str, *packages: str, extra: str) -> None:
    """Raise UserError where a package that a model needs is not installed."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise UserError(
            f"{model} needs Python packages that are not installed: {', '.join(missing)}. To install them:",
            f"  pip install 'elo-exp[{extra}]'",
        ).mark_as_need(f"pip install 'elo-exp[{extra}]'")


def first_error_line(error: Exception) -> str:
    """Return the first line of a library's message, without its full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def check_template_variables(template: str, variables: Mapping[str, Any]) -> None:
    """Raise ValueError for a variable that a chat template never reads."""
    from jinja2 import Environment, meta

    if not variables:
        return
    # transformers has a tag of its own
    text = re.sub(r"{%-?\s*(end)?generation\s*-?%}", "", template)
    syntax_tree = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(text)
    if unused := variables.keys() - meta.find_undeclared_variables(syntax_tree):
        raise ValueError(
            f"chat_template_kwargs has values that it never reads: {', '.join(unused)}"
        )
