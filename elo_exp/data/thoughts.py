"""The thought that a model writes before its answer."""

import re

# Of Qwen, DeepSeek and others, of Magistral, and the channels of gpt-oss
_OPENING_TAG = r"<think(?:ing)?>|\[THINK\]|<\|channel\|>"
_CLOSING_TAG = r"</think(?:ing)?>|\[/THINK\]|<\|channel\|>final<\|message\|>"
OPEN_AT_START = re.compile(rf"\s*(?:{_OPENING_TAG})")
OPEN_AT_END = re.compile(rf"(?:{_OPENING_TAG})\s*$")


def split_thought(text: str) -> tuple[str, dict[str, str]]:
    """Split off what a text begins with, from an opening tag to the first closing one.

    Where the prompt has the opening tag, the closing one stands alone.
    Returns the answer, empty where the thought never ends, and as diagnostics `thought` (none,
    closed or unclosed) and, where there is one, `reasoning`.
    """
    body = text.lstrip()
    opening = re.match(_OPENING_TAG, body)
    thought, *answer = re.split(_CLOSING_TAG, body, maxsplit=1)
    # what begins as JSON may quote a closing tag
    is_alone = answer and not (re.search(_OPENING_TAG, thought) or body.startswith("{"))
    if not (opening or is_alone):
        return text, {"thought": "none"}
    reasoning = thought[opening.end() if opening else 0 :].strip()
    state = "closed" if answer else "unclosed"
    return "".join(answer).strip(), {"thought": state, "reasoning": reasoning}
