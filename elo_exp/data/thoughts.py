"""The thought that a model writes before its answer."""

from __future__ import annotations

TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "[THINK]": "[/THINK]",
    "<|channel|>": "<|channel|>final<|message|>",  # the channels of gpt-oss
}


def split_thought(text: str, *, is_open: bool = False) -> tuple[str, dict[str, str]]:
    """Split off what a text begins with, from an opening tag to the first closing one.

    The opening tag may end the prompt: then `is_open`, or only the closing one is seen.
    Returns the answer, empty where the thought never ends, and as diagnostics `thought` (none,
    closed or unclosed) and, where there is one, `reasoning`.
    """
    body = text.lstrip()
    for start, end in TAGS.items():
        head, closed, answer = body.partition(end)
        thought = head.removeprefix(start)
        is_begun = is_open or thought != head
        # what begins as JSON may quote a closing tag
        if closed and (is_begun or not (start in head or body.startswith("{"))):
            return answer.strip(), {"thought": "closed", "reasoning": thought.strip()}
        if thought != head:
            break
    if is_begun:
        return "", {"thought": "unclosed", "reasoning": thought.strip()}
    return text, {"thought": "none"}
