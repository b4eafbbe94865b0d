"""The thought that a model writes before its answer."""

import re

# Of Qwen, DeepSeek and others, of Magistral, and the channels of gpt-oss
_OPENING = r"<think(?:ing)?>|\[THINK\]|<\|channel\|>"
_CLOSING = r"</think(?:ing)?>|\[/THINK\]|<\|channel\|>final<\|message\|>"
OPEN_AT_START = re.compile(rf"\s*(?:{_OPENING})")
OPEN_AT_END = re.compile(rf"(?:{_OPENING})\s*$")


def split_thought(text: str) -> tuple[str, dict[str, str]]:
    """Split off what a text begins with, from an opening tag to the first closing one.

    Where the prompt has the opening tag, the closing one stands alone.
    Returns the answer, empty where the thought never ends, and as diagnostics `thought` (none,
    closed or unclosed) and, where there is one, `reasoning`.
    """
    body = text.lstrip()
    begun = re.match(_OPENING, body)
    thought, *answer = re.split(_CLOSING, body, maxsplit=1)
    # what begins as JSON may quote a closing tag
    is_alone = answer and not (re.search(_OPENING, thought) or body.startswith("{"))
    if not (begun or is_alone):
        return text, {"thought": "none"}
    reasoning = thought[begun.end() if begun else 0 :].strip()
    state = "closed" if answer else "unclosed"
    return "".join(answer).strip(), {"thought": state, "reasoning": reasoning}
