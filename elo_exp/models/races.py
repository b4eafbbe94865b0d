"""Draw tokens by exponential races, whose noise depends on prompt, draw, step and token alone.

A token is the argmin over v of E_v / p_v, for independent standard exponential E_v: it is v with
probability p_v, since E_v / p_v is exponential with rate p_v (the exponential form of the Gumbel-max
trick, Maddison et al. 2014). Inverting the cumulative distribution in the order of token ids has the
same law, but there any rounding of a low id moves the boundaries of all later ones. In a race a token
changes only where two are nearly level, and entrants that share the noise differ where their
distributions do: common random numbers.

The noise is Philox 4x64-10 (Salmon et al. 2011) with the key (seed, draw) and the counter (v // 4, step):
numpy's generator on a CPU, the same integer arithmetic on CUDA. Its numbers are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# What a number is drawn for. A token that is drawn at once is drawn like a draft.
DRAFT, VERDICT, REPLACEMENT = range(3)

_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_PHILOX_ROUNDS = 10
_LOW_32_BITS = 0xFFFFFFFF


def uniforms(
    seeds: Sequence[int], n: int, *, draw: int, step: int, device: torch.device | str
) -> Tensor:
    """Return n numbers of each seed, (seed, n) float64, uniform on (0, 1], on the device.

    They are the odd multiples of 2**-54, rounded to float64: 1 is one of 2**53.
    A device without float64 (mps) is given the CPU's.
    """
    import torch

    if torch.device(device).type == "cuda":
        bits = philox(seeds, n, draw=draw, step=step, device=device)
        mantissas = (bits >> 11) & ((1 << 53) - 1)
        return (mantissas.double() + 0.5) * 2.0**-53
    rows = []
    for seed in seeds:
        source = np.random.Philox(key=[seed, draw], counter=[0, step, 0, 0])
        rows.append(source.random_raw(n) >> np.uint64(11))
    return torch.from_numpy((np.stack(rows).astype(float) + 0.5) * 2.0**-53)


def philox(
    seeds: Sequence[int], n: int, *, draw: int, step: int, device: torch.device | str
) -> Tensor:
    """Return the first n outputs of numpy's Philox of each seed, as uniforms() has them.

    Returns the bits of unsigned integers as int64, (seed, n): torch multiplies no others.
    """
    import torch

    def column(*values: int) -> Tensor:
        signed_values = [
            value - (1 << 64) if value >> 63 else value for value in values
        ]
        return torch.tensor(signed_values, device=device)

    multipliers = column(*_MULTIPLIERS).view(2, 1, 1)
    low, high = multipliers & _LOW_32_BITS, (multipliers >> 32) & _LOW_32_BITS
    keys = torch.stack([column(*seeds), column(draw).expand(len(seeds))])[:, :, None]
    weyl = column(*_WEYL).view(2, 1, 1)
    blocks = torch.arange(1, -(-n // 4) + 1, device=device)
    # Of the four words of a counter, the first and third are multiplied, the others added.
    even = torch.stack([blocks, torch.zeros_like(blocks)])[:, None]
    even = even.repeat(1, len(seeds), 1)
    odd = torch.zeros_like(even)
    odd[0] = step
    for _ in range(_PHILOX_ROUNDS):
        even_low, even_high = even & _LOW_32_BITS, (even >> 32) & _LOW_32_BITS
        middle = high * even_low + ((low * even_low >> 32) & _LOW_32_BITS)
        carry = low * even_high + (middle & _LOW_32_BITS)
        upper = (
            high * even_high
            + ((middle >> 32) & _LOW_32_BITS)
            + ((carry >> 32) & _LOW_32_BITS)
        )
        even, odd = upper.flip(0) ^ odd ^ keys, (multipliers * even).flip(0)
        keys = keys + weyl
    words = torch.stack([even[0], odd[0], even[1], odd[1]], dim=-1)
    return words.flatten(1)[:, :n]


def exponentials(
    seeds: Sequence[int], n: int, *, draw: int, step: int, device: torch.device | str
) -> Tensor:
    """Return standard exponential numbers of each seed, (seed, n) float64; see uniforms()."""
    return -(-uniforms(seeds, n, draw=draw, step=step, device=device)).log1p()


def race_winners(noise: Tensor, probabilities: Tensor, top_p: float = 1.0) -> Tensor:
    """Return the token (row,) that wins each race, within the nucleus.

    noise          (row, vocabulary) exponential, above 0
    probabilities  (row, vocabulary), not necessarily normalised
    top_p          the nucleus is the likeliest tokens up to the one that reaches top_p;
                   Holtzman et al. (2020)
    """
    if top_p < 1:
        ranked_probabilities, tokens = probabilities.sort(
            dim=-1, descending=True, stable=True
        )
        outside = ranked_probabilities.cumsum(dim=-1) - ranked_probabilities >= top_p
        outside = outside.scatter(-1, tokens, outside)
        probabilities = probabilities.masked_fill(outside, 0.0)
    return (probabilities / noise).argmax(dim=-1)
