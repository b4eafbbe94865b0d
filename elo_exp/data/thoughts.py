"""The thought that a model writes before its answer."""

from __future__ import annotations

TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "[THINK]": "[/THINK]",
    "<|channel|>": "<|channel|>final<|message|>",  # the channels of gpt-oss
}


def split_thought(text: str) -> tuple[str, dict[str, str]]:
    """Split off what a text begins with, from an opening tag to the first closing one.

    Where the prompt has the opening tag, the closing one stands alone.
    Returns the answer, empty where the thought never ends, and as diagnostics `thought` (none,
    closed or unclosed) and, where there is one, `reasoning`.
    """
    body = text.lstrip()
    for start, end in TAGS.items():
        head, closed, answer = body.partition(end)
        thought = head.removeprefix(start)
        is_begun = thought != head
        # what begins as JSON may quote a closing tag
        if closed and (is_begun or not (start in head or body.startswith("{"))):
            return answer.strip(), {"thought": "closed", "reasoning": thought.strip()}
        if is_begun:
            return "", {"thought": "unclosed", "reasoning": thought.strip()}
    return text, {"thought": "none"}
