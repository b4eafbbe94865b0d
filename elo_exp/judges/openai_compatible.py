"""A judge behind an OpenAI-compatible API: vLLM, llama.cpp, Ollama, or hosted. One query at a
request."""

import logging
from dataclasses import dataclass

from elo_exp.api.costs import Prices, make_token_prices
from elo_exp.judges import ChatJudge
from elo_exp.types import Dollars

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class OpenAiCompatibleJudge(ChatJudge):
    """Described in conf/judge/openai_compatible.yaml."""

    input_usd_per_million: Dollars
    cached_input_usd_per_million: Dollars
    output_usd_per_million: Dollars

    transport = "messages"

    def _check_server(self) -> None:
        is_priced = bool(self.input_usd_per_million or self.output_usd_per_million)
        if is_priced:
            self._check_budget()
        super()._check_server()
        if self.key_variable is not None and not is_priced:
            logger.warning(
                "warning: %s.input_usd_per_million: the prices of %s are 0, so its cost is not "
                "counted and no budget is enforced. If you pay for it, set the prices.", self.part, self.model,
            )  # fmt: skip

    def prices_of(self, model: str) -> Prices:
        return make_token_prices(
            self.input_usd_per_million,
            self.output_usd_per_million,
            self.cached_input_usd_per_million,
        )
