"""Several heads on the trunk of one causal language model, which answer as a product of experts.

The LoRA updates of the heads, which docs/poe.md describes:

    security_dir/manifest.json                 {"config": {"num_shards": 9, "heads_depth": 3, ...}}
    security_dir/shard_0_lora.safetensors ... shard_8_lora.safetensors     one file per head
    robustness_dir/shard_0_lora.safetensors ...                            the final checkpoint (-1), or
    robustness_dir/shard_0/**/checkpoint_final[_slim].safetensors ...
    robustness_dir/shard_0/**/checkpoint_step_200[_slim].safetensors ...   that of step 200
    uncertainty_path                                                       one file

`models/to_safetensors.py` converts the files that torch writes: `.pt`, `.pth` and `.bin`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from shlex import quote
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from elo_exp.data.thoughts import split_thought
from elo_exp.entrants import TokenIdsByPrompt, WeightsEntrant
from elo_exp.errors import FileError, SettingError
from elo_exp.files import read_json, sha256, validate
from elo_exp.models import first_error_line
from elo_exp.models.checkpoints import CausalLM, ModelSettings
from elo_exp.models.generation import GeneratedAnswer, prompt_seed, run_in_batches
from elo_exp.models.to_safetensors import TORCH_SUFFIXES
from elo_exp.records import Prompt, make_fingerprint
from elo_exp.types import CacheKey, Count, Integer, Positive

if TYPE_CHECKING:
    from torch import Tensor

    from elo_exp.models.multihead import DecodedAnswer, Geometry, MultiHead, Update

# What the uncertainty head was trained on, word for word, with nothing before "Answer".
_CORRECTNESS_QUESTION = (
    "{prompt}Answer: {answer}\nTask: Reply A (correct) or B (wrong): "
)
_DIAGNOSTIC_DIGITS = 6
FINAL_CHECKPOINT = -1
_ADAPTER_SUFFIXES = (".safetensors", *TORCH_SUFFIXES)
_LORA_TENSOR_NAME = re.compile(
    r"(?:^|\.)(blocks|layers)\.(\d+)\.(?:.+\.)?(\w+)\.lora_([AB])(?:\.\w+)?\.weight$"
)
# An int stays one, for the digest
_PositiveNumber = Annotated[int | float, Field(gt=0)]


@dataclass(kw_only=True)
class ProductOfExpertsEntrant(ModelSettings, WeightsEntrant):
    """The settings are described in conf/entrant/poe.yaml.

    For each prompt one head is drawn, by the prompt's own seed, to draft. With `bypass_jury` its
    draft is the answer; else the other heads are its jury, and the answer is a sample of their
    product: verified draft by draft, or with `decode=direct` drawn from it. A batch is that of
    prompts and heads together.

    The cache key holds the weights, the adapter files and all settings that change what is drawn;
    it omits the device, which changes only rounding.
    """

    security_dir: str | None
    robustness_dir: str | None
    rob_checkpoint: Integer | None
    uncertainty_path: str | None
    bypass_jury: bool
    decode: Literal["speculative", "direct"]
    beta: Positive
    batch_size: Count
    needs_uncertainty: bool
    loader: Literal["custom_poe"]

    @property
    def version(self) -> int:
        return 2 if self.temperature is None else 3

    @property
    def varies(self) -> bool:
        """Whether tokens are drawn, or the head is whose likeliest tokens are the answer."""
        return super().varies or self.bypass_jury

    @property
    def weight_files(self) -> list[Path]:
        heads = [file.path for files in self.head_files.groups for file in files]
        return super().weight_files + heads

    def check(self) -> None:
        """Raise UserError for adapters or a template's file that are absent."""
        super().check()
        _ = self.head_files

    @cached_property
    def head_files(self) -> HeadFiles:
        """Find the files of every head. Raises SettingError or FileError if one is absent."""
        if self.security_dir is None:
            raise SettingError(
                "security_dir is not set: the folder with the heads' adapters (docs/poe.md). Train them and set "
                "ELO_EXP_SECURITY_DIR, or choose one:",
                "  recorded_dir=DIR for recorded answers",
                "  'entrant=[...]' for entrants of your own",
            ).mark_as_need("the adapters of security_dir")
        folder = Path(self.security_dir).expanduser()
        manifest = _read_manifest(folder)
        n_heads = manifest.num_shards
        if n_heads is None:
            raise FileError(
                f"security_dir must hold a manifest.json with num_shards, the number of heads; {folder} does not."
            )
        if n_heads == 1 and not self.bypass_jury:
            raise SettingError(
                "security_dir must hold two heads or more, as one head leaves no jury; got one. Or set bypass_jury=true."
            )
        groups = [
            [AdapterFile(_find_file("security_dir", folder, shard), manifest)]
            for shard in range(n_heads)
        ]
        if self.rob_checkpoint is not None:
            if self.robustness_dir is None:
                raise SettingError(
                    f"robustness_dir is not set, and rob_checkpoint={self.rob_checkpoint} needs it. Set "
                    "ELO_EXP_ROBUSTNESS_DIR to the adapters' folder, or rob_checkpoint=null."
                )
            robustness_folder = Path(self.robustness_dir).expanduser()
            for shard, files in enumerate(groups):
                path = _find_file(
                    "rob_checkpoint", robustness_folder, shard, self.rob_checkpoint
                )
                files.append(AdapterFile(path, _read_manifest(robustness_folder)))
        groups.append([])
        if self.needs_uncertainty:
            path = Path(self.uncertainty_path or "").expanduser()
            if not path.is_file():
                raise FileError(
                    f"uncertainty_path must be the file of the uncertainty head; {self.uncertainty_path} is no file. Or set "
                    "needs_uncertainty=false."
                )
            groups[-1].append(AdapterFile(path, _read_manifest(path.parent)))
        return HeadFiles(manifest.heads_depth, n_heads, groups)

    @cached_property
    def _sampling_key(self) -> CacheKey:
        sampling: dict[str, Any] = {"temperature": self.temperature}
        if not self.bypass_jury:
            sampling |= {"decode": self.decode, "beta": self.beta}
        contents = [
            [[sha256(file.path), file.manifest.lora_alpha] for file in files]
            for files in self.head_files.groups
        ]
        return {
            "loader": self.loader,
            "heads": make_fingerprint([self.head_files.depth, contents]),
            "sampling": sampling,
            "needs_uncertainty": self.needs_uncertainty,
        }

    def _generate_answers(
        self, lm: CausalLM, ids: TokenIdsByPrompt
    ) -> Iterator[tuple[Prompt, GeneratedAnswer]]:
        from elo_exp.models.multihead import MultiHead, measure_geometry

        sizes = measure_geometry(lm.model, self.head_files.depth)
        updates = [read_updates(files, sizes) for files in self.head_files.groups]
        model = MultiHead(lm.model, sizes, updates)
        return run_in_batches(
            ids,
            partial(self._answer_batch, lm, model),
            batch_size=self.batch_size,
            label=self.entrant_id,
        )

    def _answer_batch(
        self, lm: CausalLM, model: MultiHead, ids: TokenIdsByPrompt
    ) -> list[GeneratedAnswer]:
        import torch

        from elo_exp.models.multihead import Sampling, decode

        seeds, n_heads = (
            [prompt_seed(prompt) for prompt in ids],
            self.head_files.n_heads,
        )
        drafters = [int(np.random.default_rng(s).integers(n_heads)) for s in seeds]
        with torch.inference_mode():
            answers = decode(
                model,
                *lm.pad_rows(list(ids.values())),
                n_heads=n_heads,
                drafters=drafters,
                seeds=seeds,
                sampling=Sampling(
                    decode="draft" if self.bypass_jury else self.decode,
                    beta=self.beta,
                    temperature=self.temperature,
                    max_new_tokens=self.max_new_tokens,
                    end_ids=lm.end_ids,
                ),
            )
            p_correct: Sequence[float | None] = [None] * len(answers)
            if self.needs_uncertainty:
                p_correct = self._estimate_p_correct(lm, model, ids, answers)
        return [
            GeneratedAnswer(
                token_ids=answer.tokens,
                has_ended=answer.has_ended,
                p_correct=p,
                diagnostics={
                    "draft_head_idx": drafter,
                    "bypass_jury": self.bypass_jury,
                    "n_resampled": len(answer.diagnostics["rejected_at"]),
                    "batch_size": len(ids),
                    **({} if self.bypass_jury else _summarise_diagnostics(answer)),
                },
            )
            for answer, drafter, p in zip(answers, drafters, p_correct, strict=True)
        ]

    def _estimate_p_correct(
        self,
        lm: CausalLM,
        model: MultiHead,
        prompts: Iterable[Prompt],
        answers: Sequence[DecodedAnswer],
    ) -> list[float]:
        import torch

        from elo_exp.models.multihead import p_correct

        questions = []
        for prompt, answer in zip(prompts, answers, strict=True):
            answer_text = split_thought(lm.decode(answer.tokens))[0]
            text = _CORRECTNESS_QUESTION.format(prompt=prompt.text, answer=answer_text)
            questions.append(replace(prompt, text=text, messages=()))
        yes, no = lm.tokenizer(["A", "B"], add_special_tokens=False)["input_ids"]
        return p_correct(
            model,
            *lm.pad_rows(
                [self.chat_ids(lm, q.sent(self.system_prompt)) for q in questions]
            ),
            head=self.head_files.n_heads,
            witnesses=torch.stack([answer.witness for answer in answers]),
            yes=yes[0],
            no=no[0],
        )


def _summarise_diagnostics(answer: DecodedAnswer) -> dict[str, Any]:
    """Return the lists of Decoded.diagnostics and their means, which are None for empty lists."""
    diagnostics: dict[str, Any] = {}
    if answer.accepted:
        diagnostics["n_rounds"] = answer.n_rounds
        diagnostics["acceptance_rate"] = fmean(answer.accepted)
    for name, values in answer.diagnostics.items():
        diagnostics[name] = [round(value, _DIAGNOSTIC_DIGITS) for value in values]
        if name != "rejected_at":
            diagnostics[f"mean_{name}"] = fmean(values) if values else None
    return diagnostics


# The files of the heads


class AdapterManifest(BaseModel):
    """What a manifest.json has under `config`.

    heads_depth  last layers that each head has to itself
    lora_alpha   where it is absent, twice the rank
    """

    num_shards: Count | None = None
    heads_depth: Count = 3
    lora_r: _PositiveNumber | None = None
    lora_alpha: _PositiveNumber | None = None


class _ManifestFile(BaseModel):
    config: AdapterManifest


class AdapterFile(NamedTuple):
    path: Path
    manifest: AdapterManifest


class HeadFiles(NamedTuple):
    """The files of each language head, in the order of training, and last of the uncertainty head.

    Without an uncertainty head the last list is empty.
    """

    depth: int
    n_heads: int
    groups: Sequence[Sequence[AdapterFile]]


def read_updates(files: Sequence[AdapterFile], geometry: Geometry) -> Update:
    """Read the sum of the files' updates, by head layer (0 is the head's first) and projection.

    An update of a matrix (size out, size in) is up.T @ down with down (rank, size in) and up
    (rank, size out), scaled by alpha / rank. Updates are added by concatenating their ranks.
    Raises FileError for a file that does not fit the model.
    """
    import torch

    downs, ups = defaultdict(list), defaultdict(list)
    for file in files:
        halves: dict[tuple[int, str], dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in _load_updates(file.path).items():
            layer, projection, half = _parse_tensor_name(file.path, name, geometry)
            halves[layer, projection][half] = tensor
        if not halves:
            raise FileError.bad_file(
                file.path,
                "holds no tensor named ...lora_A.weight",
                "It must hold the LoRA update of a head.",
            )
        for (layer, projection), pair in sorted(halves.items()):
            shapes = {half: tuple(pair[half].shape) for half in sorted(pair)}
            rank = file.manifest.lora_r or len(pair.get("A", "?"))
            size_in, size_out = geometry.sizes[projection]
            expected_shapes = {"A": (rank, size_in), "B": (size_out, rank)}
            if shapes != expected_shapes:
                raise FileError.bad_file(
                    file.path,
                    f"does not fit the model: layer {layer}, {projection} has LoRA shapes {shapes} instead of "
                    f"{expected_shapes}",
                    "Is it another model's adapter?",
                )
            scale = (file.manifest.lora_alpha or 2 * rank) / rank
            downs[layer, projection].append(pair["A"])
            ups[layer, projection].append(pair["B"].T * scale)
    return {key: (torch.cat(downs[key]), torch.cat(ups[key])) for key in downs}


def _parse_tensor_name(
    path: Path, name: str, geometry: Geometry
) -> tuple[int, str, str]:
    """Parse a tensor's name into head layer, projection and half (A or B).

    `blocks` are counted from the head's first layer, `layers` from the model's.
    """
    from elo_exp.models.multihead import PROJECTIONS

    depth, first_layer = geometry.depth, geometry.n_layers - geometry.depth
    if match := _LORA_TENSOR_NAME.search(name):
        layer = int(match[2]) - (0 if match[1] == "blocks" else first_layer)
        projection = PROJECTIONS.get(match[3], match[3])
        if projection in geometry.sizes and 0 <= layer < depth:
            return layer, projection, match[4]
    raise FileError.bad_file(
        path,
        f"holds the update {name}, which belongs to no head",
        "Heads have only these updates:",
        f"  {', '.join(PROJECTIONS)} (or {', '.join(PROJECTIONS.values())})",
        f"  in blocks 0 to {depth - 1} or layers {first_layer} to {first_layer + depth - 1}",
    )


def _load_updates(path: Path) -> Mapping[str, Tensor]:
    """Read the updates of a safetensors file, which may hold other tensors as well."""
    from safetensors.torch import load_file

    if path.suffix != ".safetensors":
        raise FileError.bad_file(
            path,
            "is a torch file, and reading it could run code",
            "Write its tensors into a .safetensors file beside it:",
            f"  python -m elo_exp.models.to_safetensors {quote(str(path.parent))}",
        )
    try:
        state: Any = load_file(path)
    except Exception as error:
        raise FileError.bad_file(
            path,
            f"cannot be read ({first_error_line(error)})",
            "It must hold a state dict of tensors.",
        ) from None
    return {name: state[name].float() for name in state if "lora_" in name}


def _find_file(
    setting: str, folder: Path, shard: int, step: int = FINAL_CHECKPOINT
) -> Path:
    """Return the file of a head's final update, or of a step; of a training run the slim one."""
    final = folder / f"shard_{shard}_lora"
    for suffix in _ADAPTER_SUFFIXES:
        if step == FINAL_CHECKPOINT and (path := final.with_suffix(suffix)).is_file():
            return path
    shard_folder = folder / f"shard_{shard}"
    name = f"checkpoint_{'final' if step == FINAL_CHECKPOINT else f'step_{step}'}"
    paths = [
        p
        for p in sorted(shard_folder.rglob("checkpoint_*"))
        if p.suffix in _ADAPTER_SUFFIXES
    ]
    by_run = {p.parent: p for p in paths if p.stem in (name, f"{name}_slim")}
    if len(by_run) != 1:
        found_paths = (
            ", ".join(str(path.relative_to(shard_folder)) for path in paths) or "none"
        )
        expected = f"{name} in one training run"
        if step == FINAL_CHECKPOINT:
            expected = f"{final.name}{{{','.join(_ADAPTER_SUFFIXES)}}} or {expected}"
        raise FileError(
            f"{setting} must hold one file for head {shard} ({expected}); {shard_folder} has {len(by_run)} ({found_paths})."
        )
    return by_run.popitem()[1]


def _read_manifest(folder: Path) -> AdapterManifest:
    """Read a folder's manifest.json; an empty manifest where there is none."""
    path = folder / "manifest.json"
    if not path.is_file():
        return AdapterManifest()
    file: _ManifestFile = validate(_ManifestFile, read_json(path), path)
    return file.config
