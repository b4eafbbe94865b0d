"""No judge: what stands in the place of one until somebody chooses."""

from dataclasses import dataclass

from elo_exp.errors import SettingError
from elo_exp.judges import Judge
from elo_exp.types import CacheKey


@dataclass(kw_only=True)
class NoJudge:
    """offers  judges by the names by which they are chosen, whose prices a run says in place of asking one"""

    offers: dict[str, Judge]

    model = "none"
    key_fields = ()

    def cache_key(self) -> CacheKey:
        raise SettingError(
            f"judge: none is chosen. Choose one: {', '.join(f'judge={name}' for name in self.offers)}, "
            "judge=openai_compatible (a server of your own), or judge=lexical (free: counts words)."
        )
