"""The speeds of docs/evidence.md on a GPU: a model of OLMo-2 7B's shape with random weights, in bfloat16.

    make bench-gpu                                                    # one card of 40 GiB, ten minutes
    python -m tests.benchmarks.bench_gpu --minutes 5 --results FILE   # in less, and as JSON
    vllm-env/bin/python -m tests.benchmarks.bench_gpu --vllm          # vLLM, in its environment
    python -m tests.benchmarks.bench_gpu --tiny                       # the same code, small, without a GPU

Every figure is the median of three repeats after a first call that counts for nothing, and says so where
time was left for fewer; the memory is the peak of its own row. Tokens a second of the product of experts
are of decoding alone, of the others of whole answers to prompts of 40 to 300 tokens. A model is made on
the card and never written, but for the row in 4 bits. Answers of a batch are compared, token id by token
id, with those of the same prompts one at a time.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from elo_exp import models, pipeline
from elo_exp.files import write_json
from elo_exp.judges.local import LABELS, Labels
from elo_exp.models import first_error_line, races
from elo_exp.models.generation import run_in_batches
from elo_exp.models.multihead import DecodedAnswer
from elo_exp.records import Prompt, Response
from tests.benchmarks import bench_poe
from tests.benchmarks.random_models import RandomWeights
from tests.data import shipped

BIG = {"hidden": 4096, "layers": 32, "inner": 11008, "vocabulary": 100_352}
SMALL = {"hidden": 64, "layers": 4, "inner": 64, "vocabulary": 256}
FOUR_BITS = {
    "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}
}
REPEATS = 3
FEW = 4  # prompts whose answers in a batch are compared with those of one at a time


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The rate of a work, by second: the median of its repeats, the lowest and the highest."""

    rate: float
    lowest: float
    highest: float
    repeats: int
    peak_gib: float | None  # None: of a processor


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was measured, or why it was not; `details` are figures of this row alone."""

    what: str
    how: str
    at_once: int  # prompts, or comparisons
    unit: str
    figures: Figures | None = None
    reason: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        cells = [self.what, self.how, f"{self.at_once:,}"]
        if self.figures is None:
            return f"| {' | '.join([*cells, self.reason or 'not measured', ''])} |"
        of = self.figures
        rate = f"{of.rate:,.0f} {self.unit} ({of.lowest:,.0f} to {of.highest:,.0f})"
        peak = "" if of.peak_gib is None else f"{of.peak_gib:.1f} GiB"
        notes = [f"{name} {value}" for name, value in self.details.items()]
        if of.repeats < REPEATS:
            notes.append(f"{of.repeats} repeats")
        return f"| {' | '.join([*cells, rate, '; '.join([peak, *notes])])} |"


Clock = Callable[[], float]


def measure(
    work: Callable[[], float],
    *,
    base: Callable[[], float] = lambda: 0.0,
    clock: Clock = bench_poe.clock,
    left: Callable[[], float] = lambda: float("inf"),
) -> Figures | None:
    """Measure how much of a work is done in a second; None where no time is left to repeat it.

    work, base  return how many tokens they made; the time and the tokens of the base, such as a
                shorter answer, are taken off those of the work
    left        seconds that are left for all
    The first call, which builds kernels and fills caches, counts for nothing.
    """

    def once() -> float:
        times, amounts = [clock()], []
        for each in (base, work):
            amounts.append(each())
            times.append(clock())
        short, long = times[1] - times[0], times[2] - times[1]
        if long <= short:
            return 0.0  # the clock's noise, which the lowest of the repeats shows
        return (amounts[1] - amounts[0]) / (long - short)

    start = clock()
    once()
    takes = clock() - start
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    rates: list[float] = []
    while len(rates) < REPEATS and left() > takes:
        rates.append(once())
    if not rates:
        return None
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    return Figures(
        rate=statistics.median(rates),
        lowest=min(rates),
        highest=max(rates),
        repeats=len(rates),
        peak_gib=None if peak is None else peak / 2**30,
    )


def agreement(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> dict[str, str]:
    """Compare the token ids of pairs of answers: how many are equal, and how far they are so."""
    starts = []
    for one, other in pairs:
        same = [a == b for a, b in zip(one, other, strict=False)]
        n = [*same, False].index(False)
        starts.append(n / max(len(one), len(other), 1))
    return {
        "equal to one at a time": f"{starts.count(1.0)} of {len(pairs)}",
        "equal at the start": f"{statistics.fmean(starts):.0%}",
    }


def prompts(n: int) -> list[Prompt]:
    """The first n of the prompts of 40 to 300 tokens, whose numbers are their seeds."""
    return [
        Prompt(prompt_id=f"p{i}", text="Why? " * (20 + i % 130), source="", subject="")
        for i in range(n)
    ]


class Bench:
    """Rows, printed as they are measured and written as JSON after each.

    minutes  after which nothing is begun
    results  the file for all rows; None writes none
    """

    def __init__(self, *, tiny: bool, minutes: float, results: Path | None) -> None:
        self.start, self.seconds, self.results = time.monotonic(), 60 * minutes, results
        self.rows: list[Row] = []
        self.failed = False
        self.tokens = 4 if tiny else 128  # of an answer
        self.short, self.long = (1, 4) if tiny else (8, 32)  # of the product of experts
        self.sizes = (1, 2) if tiny else (1, 8, 32, 64)
        self.batches = (2, 3) if tiny else (16, 64, 128)
        self.shape = {
            **(SMALL if tiny else BIG),
            "head_size": 16 if tiny else 128,
            "device": "cpu" if tiny else "cuda",
            "dtype": "float32" if tiny else "bfloat16",
        }
        self.weights = RandomWeights(**self.shape)
        self.known: dict[Any, dict[str, list[int]]] = {}  # answers alone, by entrant

    def left(self) -> float:
        return self.start + self.seconds - time.monotonic()

    def add(self, what: str, how: str, at_once: int, **more: Any) -> None:
        """Print a row, and write all of them."""
        self.rows.append(Row(what=what, how=how, at_once=at_once, **more))
        print(self.rows[-1], flush=True)
        if self.results is not None:
            write_json(self.results, self.as_json())

    def as_json(self) -> dict[str, Any]:
        packages = ("torch", "transformers", "bitsandbytes", "flash_attn", "vllm")
        has_gpu = torch.cuda.is_available()
        return {
            "device": torch.cuda.get_device_name() if has_gpu else "cpu",
            "packages": {name: version(name) for name in packages if find_spec(name)},
            "shape": self.shape,
            "tokens": self.tokens,
            "seconds": round(time.monotonic() - self.start, 1),
            "rows": [asdict(row) for row in self.rows],
        }

    def row(
        self,
        what: str,
        how: str,
        at_once: int,
        work: Callable[[], float],
        *,
        unit: str = "tokens/s",
        needs: str | None = None,
        details: Callable[[], dict[str, Any]] = dict,
        **how_measured: Any,
    ) -> None:
        """Measure a row. What goes wrong in one is its reason, and the others go on.

        needs    a package without which it is not measured
        details  of the row, asked for after its work has run
        """
        about: dict[str, Any] = {"unit": unit}
        if needs and find_spec(needs) is None:
            about["reason"] = f"not measured: {needs} is not installed"
        elif self.left() <= 0:
            about["reason"] = "not measured: no time was left"
        else:
            try:
                figures = measure(work, left=self.left, **how_measured)
                if figures is None:
                    about["reason"] = "not measured: no time was left"
                else:
                    about |= {"figures": figures, "details": details()}
            except Exception as error:
                traceback.print_exc()
                about["reason"] = f"failed: {first_error_line(error)}"
                self.failed = True
        self.add(what, how, at_once, **about)

    # The rows

    def product(self, hows: Sequence[str]) -> None:
        """Ways of decoding with nine heads, by number of prompts."""
        lm = models.load_weights(self.weights)
        heads = bench_poe.multi_head(lm)

        def answers(
            how: str, some: Sequence[int], n_tokens: int
        ) -> list[DecodedAnswer]:
            return bench_poe.answers(lm, heads, how, some, n_tokens)

        @cache
        def alone(how: str) -> list[DecodedAnswer]:
            one_each = [answers(how, [i], self.long) for i in range(FEW)]
            return [decoded for (decoded,) in one_each]

        for how in hows:
            for n in self.sizes:
                made: list[DecodedAnswer] = []

                def work(
                    n_tokens: int,
                    how: str = how,
                    n: int = n,
                    made: list[DecodedAnswer] = made,
                ) -> float:
                    made[:] = answers(how, range(n), n_tokens)
                    return n * n_tokens

                def details(
                    how: str = how, made: list[DecodedAnswer] = made
                ) -> dict[str, Any]:
                    about = {}
                    if len(made) > 1:
                        both = zip(alone(how), made, strict=False)
                        about = agreement([(a.tokens, b.tokens) for a, b in both])
                    accepted = [a for answer in made for a in answer.accepted]
                    if accepted:
                        about["drafts accepted"] = f"{statistics.fmean(accepted):.0%}"
                    return about

                self.row(
                    "product of experts",
                    how,
                    n,
                    partial(work, self.long),
                    base=partial(work, self.short),
                    details=details,
                )

    def entrant(self, kind: str = "huggingface", **settings: Any) -> Any:
        """An entrant that samples at temperature 1 and records its tokens."""
        if kind == "huggingface" and "model" not in settings:
            settings |= {
                "_target_": "tests.benchmarks.random_models.RandomEntrant",
                "model": "random weights",
                "shape": {**self.shape, **settings.pop("shape", {})},
            }
        return shipped(
            "entrant",
            kind,
            **{
                "temperature": 1.0,
                "logprobs": True,
                "dtype": self.shape["dtype"],
                "max_new_tokens": self.tokens,
                **settings,
            },
        )

    def answered(self, how: str, n: int, of: Any, **more: Any) -> dict[str, Response]:
        """A row of an entrant's answers to n prompts at once, which are returned.

        Some are compared with those of `one`, an entrant that takes one at a time.
        """
        one = more.pop("one", None)
        made: dict[str, Response] = {}

        def work() -> float:
            models.load_weights(of.weights)
            made.update((r.prompt_id, r) for r in of.generate(prompts(n)))
            return sum(r.diagnostics["n_tokens_generated"] for r in made.values())

        def details() -> dict[str, Any]:
            largest = max(r.diagnostics.get("batch_size", n) for r in made.values())
            about = {"memory for a batch of": largest} if largest < n else {}
            if one is None:
                return about
            alone = self.alone(one)
            pairs = [
                (alone[name], made[name].diagnostics["token_ids"])
                for name in alone
                if name in made
            ]
            return {**about, **agreement(pairs)}

        kind = "vllm" if how == "dummy weights" else "huggingface"
        self.row(kind, how, n, work, details=details, **more)
        return made

    def alone(self, of: Any) -> dict[str, list[int]]:
        """The token ids of the first answers, one prompt at a time."""
        key = (of.weights, of.max_new_tokens)
        if key not in self.known:
            some = of.generate(prompts(FEW))
            self.known[key] = {r.prompt_id: r.diagnostics["token_ids"] for r in some}
        return self.known[key]

    def transformers(self) -> None:
        """Answers of one entrant by batch size; then the same model as policy and as judge."""
        one = self.entrant(batch_size=1)
        self.answered("sdpa", 1, one)
        made: dict[str, Response] = {}
        for n in self.batches:
            many = self.answered("sdpa", n, self.entrant(batch_size=n), one=one)
            made = made or many
        self.forced(one, made)
        self.judged()

    def noise(self) -> None:
        """The random numbers of a step, which are the processor's to the last bit."""
        n, vocabulary = self.sizes[-1], self.shape["vocabulary"]

        def drawn(device: str) -> torch.Tensor:
            settings = {"draw": races.DRAFT, "step": 7, "device": device}
            return races.uniforms(range(n), vocabulary, **settings)

        def work() -> float:
            drawn(self.shape["device"])
            return 1.0

        def details() -> dict[str, str]:
            is_equal = torch.equal(drawn(self.shape["device"]).cpu(), drawn("cpu"))
            return {"the processor's numbers": "equal" if is_equal else "unequal"}

        self.row("noise", "Philox", n, work, unit="steps/s", details=details)

    def forced(self, of: Any, responses: dict[str, Response]) -> None:
        """Teacher forcing: answers scored one at a time, beside what was recorded of them."""
        by_id = {prompt.prompt_id: prompt for prompt in prompts(len(responses))}
        totals: dict[str, float | None] = {}

        def work() -> float:
            totals.update(of.teacher_force(by_id, list(responses.values())))
            return sum(r.diagnostics["n_tokens_generated"] for r in responses.values())

        def details() -> dict[str, Any]:
            any_gap = float("inf")
            check = pipeline.compare_logprobs(responses, totals, allowed=any_gap)
            return {"nats a token from drawing": f"{check.mean_difference:.2g}"}

        if responses:
            self.row("teacher forcing", "one at a time", 1, work, details=details)

    def judged(self) -> None:
        """The local judge: comparisons of 600 tokens, each read once."""
        for n in self.sizes[1::2]:

            def work(n: int = n) -> float:
                lm = models.load_weights(self.weights)
                labels = Labels(lm, "VERDICT:", LABELS)
                width = 40 if self.tokens < 10 else 600
                text = lm.bare_ids("Why? " * width)[:width]
                rows = {i: [*text, *labels.lead] for i in range(self.sizes[-1])}
                read = run_in_batches(
                    rows,
                    partial(labels.log_probabilities, lm),
                    batch_size=n,
                    label="judging",
                )
                return len(dict(read))

            self.row("local judge", "sdpa", n, work, unit="verdicts/s")

    def exact(self) -> None:
        """In float32, where a batch changes next to nothing; answers are shorter."""
        exact = {"dtype": "float32", "max_new_tokens": max(self.tokens // 4, 2)}
        one, fewer = self.entrant(batch_size=1, **exact), self.batches[0]
        of = self.entrant(batch_size=fewer, **exact)
        self.answered("float32", fewer, of, one=one)

    def others(self, folder: Path) -> None:
        """Flash attention and 4 bits."""
        n = self.batches[1]
        flash = {"attention": "flash_attention_2"}
        of = self.entrant(batch_size=n, shape=flash)
        self.answered("flash attention", n, of, needs="flash_attn")
        if find_spec("bitsandbytes") and self.left() > 0:
            models.release_weights()
            room = shutil.disk_usage(folder).free
            if room < 1.2 * self.weights.n_bytes:
                reason = f"not measured: {room / 2**30:.0f} GiB are free on disk for its weights"
                self.add("huggingface", "4 bits", n, unit="tokens/s", reason=reason)
                return
            lm = models.load_weights(self.weights)
            lm.model.save_pretrained(folder)
            lm.tokenizer.save_pretrained(folder)
            del lm
            models.release_weights()
        of = self.entrant(
            batch_size=n,
            model=str(folder),
            cache_dir=str(folder),
            load_kwargs=FOUR_BITS,
        )
        self.answered("4 bits", n, of, needs="bitsandbytes")

    def launches(self) -> None:
        """What a step of the product launches, which the time of small batches is made of."""
        if not torch.cuda.is_available() or self.left() <= 0:
            return
        lm = models.load_weights(self.weights)
        heads = bench_poe.multi_head(lm)
        with torch.profiler.profile() as profile:
            bench_poe.answers(lm, heads, "speculative", range(self.sizes[-1]), 4)
        events = profile.key_averages()
        n = sum(event.count for event in events if "LaunchKernel" in event.key)
        print(f"\n{n / 4:,.0f} launches a token\n")
        print(events.table(sort_by="self_device_time_total", row_limit=12))

    def vllm(self, folder: Path) -> None:
        lm = models.load_weights(self.weights)
        lm.model.config.save_pretrained(folder)
        lm.model.generation_config.save_pretrained(folder)
        lm.tokenizer.save_pretrained(folder)
        del lm
        models.release_weights()
        of = self.entrant(
            "vllm",
            model=str(folder),
            cache_dir=str(folder),
            load_kwargs={"load_format": "dummy", "max_model_len": 1024},
        )
        n = 3 if self.tokens < 10 else 1000
        self.forced(of, self.answered("dummy weights", n, of, needs="vllm"))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench_gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--vllm", action="store_true")
    of = parser.parse_args(arguments)
    if not (of.tiny or torch.cuda.is_available()):
        sys.exit("bench-gpu: found no GPU that torch can use. Expected one of 40 GiB.")
    if of.tiny:
        torch.set_num_threads(1)
    bench = Bench(tiny=of.tiny, minutes=of.minutes, results=of.results)
    print("| | | at once | median of the repeats | peak memory; notes |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        if of.vllm:
            bench.vllm(Path(folder))
        else:
            bench.noise()
            bench.product(["speculative"])
            bench.transformers()
            bench.exact()
            bench.product(["direct", "draft"])
            bench.others(Path(folder))
            bench.launches()
    models.release_weights()
    if bench.failed:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
