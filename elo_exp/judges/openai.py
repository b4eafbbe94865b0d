"""A model of OpenAI as judge, or of another server that takes OpenAI's form of batches; or one request at a time."""

import re
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from elo_exp.api.costs import AutomaticCache
from elo_exp.api.openai import OpenAiApi
from elo_exp.api.openai_batches import OpenAiBatches
from elo_exp.errors import SettingError
from elo_exp.judges import BatchJudge, ChatJudge, build_unpriced_error
from elo_exp.types import Dollars, NonNegative

_HOSTS_WITHOUT_PROOF = re.compile(r"(^|\.)together\.(xyz|ai)$")


@dataclass(kw_only=True)
class OpenAiModel:
    """Dollars per million tokens.

    cache_write   of input that the server writes to its prompt cache by itself; that of input, where this is free
    batch_factor  what a batch pays of all of these
    """

    input: Dollars
    cached_input: Dollars
    cache_write: Dollars
    output: Dollars
    batch_factor: NonNegative


@dataclass(kw_only=True)
class OpenAiJudge(ChatJudge, BatchJudge):
    """model  an id with an entry in `models`, which has its prices

    The rest is described in conf/judge/openai.yaml. The key of a verdict is that of judges.openai_compatible: with the
    same settings, what either has paid for is found by both.
    """

    models: dict[str, OpenAiModel]

    _api_class: ClassVar[type[OpenAiApi]] = OpenAiBatches

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prices_of(self.model)
        host = urlsplit(self.base_url).hostname or ""
        if self.transport == "batches" and _HOSTS_WITHOUT_PROOF.search(host):
            raise SettingError(
                f"transport must be messages for {host}, whose batches do not show who sent them; got batches."
            )

    def prices_of(self, model: str) -> AutomaticCache:
        """Return the prices of a model; a batch of an earlier run may be another model's."""
        openai_model = self.models.get(model)
        if openai_model is None:
            raise build_unpriced_error(model, self.models, "conf/judge/openai.yaml")
        return AutomaticCache(
            input=openai_model.input,
            output=openai_model.output,
            cache_write_5m=openai_model.cache_write,
            cache_write_1h=openai_model.cache_write,
            cache_read=openai_model.cached_input,
            batch_factor=openai_model.batch_factor,
            min_cacheable_tokens=0,
        )

    def _check_server(self) -> None:
        self._check_budget()
        super()._check_server()
        if self.transport == "batches":
            self.api.check_batches()
