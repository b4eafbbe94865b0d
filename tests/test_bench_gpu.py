"""The GPU's benchmark tells the truth: what a slow first call, a noisy clock and equal texts do to its rows."""

import json
from collections.abc import Callable

import pytest
import torch

from tests.benchmarks import bench_gpu
from tests.benchmarks.bench_gpu import agreement, measure


class Machine:
    """Makes 10 tokens a second, and 5 before it begins; its first call is `slow` seconds slower."""

    def __init__(self, *, slow: float = 0.0, hiccup: int | None = None) -> None:
        self.seconds, self.calls = 0.0, 0
        self.slow, self.hiccup = slow, hiccup

    def makes(self, n: int) -> Callable[[], float]:
        def work() -> float:
            self.calls += 1
            waits = 100.0 if self.calls == self.hiccup else 0.0
            self.seconds += 0.5 + n / 10 + waits + (self.slow if self.calls == 1 else 0)
            return n

        return work

    def measured(self, **more):
        return measure(self.makes(32), clock=lambda: self.seconds, **more)


@pytest.mark.parametrize("has_base", [False, True])
def test_a_slow_first_call_changes_no_figure(has_base):
    """It builds kernels: 1 s more made -27.6 tokens/s of a difference between two calls."""
    rates = []
    for slow in (0.0, 1.0, 60.0):
        machine = Machine(slow=slow)
        base = {"base": machine.makes(8)} if has_base else {}
        figures = machine.measured(**base)
        assert (figures.repeats, figures.peak_gib) == (3, None)
        assert figures.lowest == pytest.approx(figures.highest)
        rates.append(figures.rate)
    expected = 10 if has_base else 32 / 3.7  # 24 tokens in 2.4 s; 32 in 3.7
    assert rates == pytest.approx([expected] * 3)


def test_one_slow_repeat_of_three_is_the_lowest_and_not_the_median():
    figures = Machine(hiccup=3).measured()
    assert figures.rate == pytest.approx(32 / 3.7)
    assert figures.lowest == pytest.approx(32 / 103.7)


def test_what_no_time_is_left_for_is_not_begun():
    """A repeat is made while there is as much time as the first call took: 3.7 s."""
    machine = Machine()
    figures = machine.measured(left=lambda: 9.0 - machine.seconds)
    assert (figures.repeats, machine.seconds) == (1, pytest.approx(2 * 3.7))
    assert machine.measured(left=lambda: 0.0) is None


def test_answers_are_equal_where_their_token_ids_are():
    """Ids that no text stands for, or an answer that goes on, are no equal answers."""
    alone, batch = [[7, 300, 2], [5, 5], [1, 2, 3, 4]], [[7, 301, 2], [5, 5], [1, 2]]
    assert agreement(list(zip(alone, batch, strict=True))) == {
        "equal to one at a time": "1 of 3",
        "equal at the start": "61%",  # the mean of 1/3, 1 and 1/2
    }


@pytest.mark.system
def test_the_benchmark_itself_small_and_without_a_gpu(tmp_path, capsys):
    """Every row has its figures or the reason for none, on the console and in the file."""
    n_threads = torch.get_num_threads()
    path = tmp_path / "rows.json"
    bench_gpu.main(["--tiny", "--results", str(path)])
    torch.set_num_threads(n_threads)
    result = json.loads(path.read_text())
    rows = {(r["what"], r["how"], r["at_once"]): r for r in result["rows"]}
    absent = {("huggingface", "flash attention", 3): "flash_attn"}
    absent[("huggingface", "4 bits", 3)] = "bitsandbytes"
    for name, row in rows.items():
        if package := absent.get(name):
            assert row["reason"] == f"not measured: {package} is not installed"
        else:
            assert row["figures"]["rate"] > 0, row
            assert row["figures"]["repeats"] == 3
    assert {what for what, *_ in rows} == {
        "product of experts", "huggingface", "teacher forcing", "local judge", "noise",
    }  # fmt: skip
    for name in (("product of experts", "speculative", 2), ("huggingface", "sdpa", 2)):
        assert rows[name]["details"]["equal to one at a time"] == "2 of 2"
    assert rows["noise", "Philox", 2]["details"]["the processor's numbers"] == "equal"
    gap = rows["teacher forcing", "one at a time", 1]["details"]
    assert float(gap["nats a token from drawing"]) < 1e-4
    assert (result["device"], result["shape"]["dtype"]) == ("cpu", "float32")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 + len(rows) and "not measured" in printed[-1]


def test_no_time_leaves_rows_that_say_so(tmp_path):
    path = tmp_path / "rows.json"
    n_threads = torch.get_num_threads()
    bench_gpu.main(["--tiny", "--minutes", "0", "--results", str(path)])
    torch.set_num_threads(n_threads)
    reasons = {row["reason"] for row in json.loads(path.read_text())["rows"]}
    no_time = "not measured: no time was left"
    assert no_time in reasons and all("not measured" in each for each in reasons)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_without_a_gpu_it_says_what_it_expects():
    with pytest.raises(
        SystemExit, match="found no GPU that torch can use. Expected one"
    ):
        bench_gpu.main([])
