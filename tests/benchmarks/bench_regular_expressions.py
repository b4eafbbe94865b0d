"""How the time of each regular expression grows with the length of its worst text: below 3 from n to 2n is linear.

    python -m tests.benchmarks.bench_regular_expressions

Every pattern of the package is applied to texts that consist of a beginning, one piece repeated, and an end that does
not match. The texts that take longest at 200 characters are timed at 100,000 and 200,000: the processor time of the
fastest of five. Times below a millisecond are noise.
"""

from tests.regular_expressions import expressions

N_CHARS = 100_000
REPEATS = 5
NOISE = 0.001  # seconds


def main() -> None:
    print(f"{'pattern':60} {'seconds':>9} {'2n / n':>7}")
    ratios = []
    for expression in expressions():
        make = expression.worst_text(200)
        once, twice = (
            min(expression.seconds(text) for _ in range(REPEATS))
            for text in (make(N_CHARS), make(2 * N_CHARS))
        )
        ratio = twice / once if once > NOISE else None
        if ratio is not None:
            ratios.append(ratio)
        print(f"{expression.name:60} {once:9.4f} {f'{ratio:.2f}' if ratio else '':>7}")
    print(f"the largest ratio of {len(ratios)}: {max(ratios):.2f}")


if __name__ == "__main__":
    main()
