"""What page and console of an oracle experiment show: the rows of their tables, and the console."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.console import format_table
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
    format_p,
    format_percent,
)
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import Analysis, PolicyEstimate
from elo_exp.oracle.gates import CAUTION, REFUSE, REPORT, WeightDiagnostics
from elo_exp.report.sentences import oracle_sentences as words
from elo_exp.report.sentences import taste_line

_COLOR_AND_CHIP_BY_STATUS = {
    REPORT: ("supported", "Report"),
    CAUTION: ("caution", "Caution"),
    REFUSE: ("open", "Refused"),
}
_COUNT_FIELDS = (
    "n_responses",
    "n_cut_off",
    "n_null",
    "n_zero",
    "n_exactly_one",
    "n_extreme",
)
_COLLECTED_COLUMNS = (
    *("policy", "answers", "cut off", "null", "zero", "w = 1", "w > 5"),
    *("scores", "mean", "labels", "mean", "unread"),
)
_LEGEND = """\
± SE: over prompts, including the error of the labels. report: may be published as it is; caution: only with
the reason given; refuse: the data cannot tell. ESS: effective sample size of the weights, in rows."""
_COMPAT_NOTE = "compat=cje-0.3: estimates and errors of that library, which refuses nothing. See docs/oracle.md."
_COLLECTED_LEGEND = """\
null, zero: unknown log-probabilities of logged answers, and 0 of those that are not empty.
w: importance weights, exactly 1, and outside 1/5 .. 5. unread: unreadable scores and labels."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """The estimate of one policy to quote; `value` is None where it is refused."""

    policy: str
    kind: str
    chip: str
    value: str | None
    interval: str
    basis: str
    reason: str | None
    truth: str | None
    agreeing: str | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: its name, numbers, what is said before and after these, its class."""

    name: str
    numbers: Sequence[str]
    text: str = ""
    words: str = ""
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class PolicyTable:
    """All estimates of one policy; `refusal` where there is no number among them."""

    policy: str
    truth: str | None
    refusal: str | None
    rows: Sequence[Row]


@dataclass(frozen=True, kw_only=True)
class OraclePage:
    """What the page lays out; None and empty where there is nothing to show."""

    title: str
    facts: str
    is_compat: bool
    is_ranked: bool
    whose: str | None
    cards: Sequence[Card]
    against_truth: str | None
    differences: Sequence[Row]
    advice: str | None
    estimates: Sequence[PolicyTable]
    transport: Sequence[Row]
    weights: Sequence[Row]
    half_widths: Sequence[str]
    budget: Sequence[Row]
    lenders: str
    collected: Sequence[Row]


def oracle_page(
    analysis: Analysis,
    truth: Mapping[str, Truth],
    budgets: Sequence[Mapping[str, Any]],
    collection: Mapping[str, Any] | None = None,
) -> OraclePage:
    """Make the rows of the page.

    budgets     rows of label_budget.json
    collection  what a run itself has collected
    """
    data, digits = analysis.data, analysis.data.scale.decimals + 1
    options = analysis.options
    quoted_by_policy = quote_estimates(analysis)
    estimated_pairs = {
        (row.policy, row.estimator)
        for row in analysis.estimates
        if row.value is not None
    }
    facts = [f"{len(data.policies)} policies"]
    if len(data.logged):
        facts.append(f"{format_count(len(data.logged))} logged answers")
    facts.append(f"{format_count(len(analysis.calibration.rows))} oracle labels.")
    return OraclePage(
        title=words.title(analysis, quoted_by_policy),
        facts=", ".join(facts),
        is_compat=bool(options.compat),
        is_ranked=bool(analysis.comparison.ranking),
        whose=None
        if options.compat
        else taste_line.describe_oracle_scope(options.oracle),
        cards=[
            _build_card(analysis, row, truth, digits)
            for row in quoted_by_policy.values()
        ],
        against_truth=words.compare_with_truth(analysis.estimates, truth, digits),
        differences=[
            Row(
                name=row["a"],
                text=row["b"],
                numbers=(
                    format_number(row["value"], digits),
                    _format_pair_interval(row, digits),
                    format_interval(row["low"], row["high"], digits),
                    format_p(row["p_holm"]),
                ),
                words=row["rests_on"],
            )
            for row in analysis.comparison.differences
        ],
        advice=None if options.compat else words.advice(analysis.comparison, digits),
        estimates=[
            _build_policy_table(analysis, policy, truth, digits)
            for policy in data.policies
        ],
        transport=[
            Row(
                name=policy,
                numbers=(
                    format_number(checks.overlap.affinity, 2),
                    format_percent(checks.overlap.out_of_range),
                    format_percent(checks.overlap.saturation),
                ),
                words=words.transport(
                    checks.audit, margin=options.max_residual, digits=digits
                ),
            )
            for policy, checks in analysis.checks.items()
        ],
        weights=[
            _make_weights_row(checks.weights)
            for checks in analysis.checks.values()
            if checks.weights
        ],
        half_widths=[f"for ±{width:g}" for width in options.half_widths],
        budget=[
            Row(
                name=row["policy"],
                text=row["estimator"],
                numbers=(
                    format_count(row["n_labels"]),
                    f"±{format_number(row['half_width'], digits)}",
                    f"±{format_number(row['half_width_at_best'], digits)}",
                    *map(format_count, row["labels_for"].values()),
                ),
            )
            for row in budgets
            if (row["policy"], row["estimator"]) in estimated_pairs
        ],
        lenders=", ".join(data.lenders),
        collected=[
            _make_collected_row(row, digits)
            for row in (collection or {}).get("policies", ())
        ],
    )


def quote_estimates(analysis: Analysis) -> dict[str, PolicyEstimate]:
    """Return the estimate of each policy to quote: its headline; with compat the first of the best status."""

    def preference(row: PolicyEstimate) -> tuple[bool, bool, bool]:
        return (not row.headline, row.status != REPORT, row.value is None)

    return {
        policy: min(analysis.of(policy), key=preference)
        for policy in analysis.data.policies
    }


def _format_pair_interval(difference: Mapping[str, Any], digits: int) -> str:
    """Return the interval of one pair by itself; a dash if its error is unknown."""
    low, high = difference["ci_low"], difference["ci_high"]
    return (
        NO_VALUE if low is None or high is None else format_interval(low, high, digits)
    )


def _build_card(
    analysis: Analysis, row: PolicyEstimate, truth: Mapping[str, Truth], digits: int
) -> Card:
    kind, chip = _COLOR_AND_CHIP_BY_STATUS[row.status]
    values = [e.value for e in analysis.of(row.policy) if e.value is not None]
    agreeing = None
    if len(set(values)) > 1:
        agreeing = (
            f"All {len(values)} estimates that are not refused lie from "
            f"{format_number(min(values), digits)} to {format_number(max(values), digits)}."
        )
    policy_truth = truth.get(row.policy)
    return Card(
        policy=row.policy,
        kind=kind,
        chip=chip,
        value=None if row.value is None else format_number(row.value, digits),
        interval=format_interval(row.ci_low, row.ci_high, digits),
        basis=f"; rests on {row.rests_on}" if row.rests_on else f", by {row.estimator}",
        reason=words.sentence(row.reason) if row.reason else None,
        truth=None
        if policy_truth is None
        else format_number(policy_truth.mean, digits),
        agreeing=agreeing,
    )


def _build_policy_table(
    analysis: Analysis, policy: str, truth: Mapping[str, Truth], digits: int
) -> PolicyTable:
    rows, policy_truth = analysis.of(policy), truth.get(policy)
    refusal = None
    if all(row.value is None for row in rows):
        refusal = f"All {len(rows)} estimators are refused: {rows[0].reason}."
    return PolicyTable(
        policy=policy,
        truth=None
        if policy_truth is None
        else format_number(policy_truth.mean, digits + 1),
        refusal=refusal,
        rows=[
            Row(
                name=row.estimator,
                numbers=(
                    format_number(row.value, digits + 1),
                    format_number(row.std_error, digits + 1),
                    format_interval(row.ci_low, row.ci_high, digits)
                    + (", clipped" if row.ci_clipped else ""),
                    format_count(row.n),
                    format_number(row.ess),
                ),
                text=row.status,
                words=row.reason,
                kind="yes" if row.status == REPORT else "no",
            )
            for row in rows
        ],
    )


def _make_weights_row(row: WeightDiagnostics) -> Row:
    calibrated = row.ess_calibrated
    return Row(
        name=row.policy,
        numbers=(
            *map(format_count, (row.n, row.n_failed, row.n_exactly_one, row.n_extreme)),
            format_percent(row.ess / row.n),
            NO_VALUE if calibrated is None else format_percent(calibrated / row.n),
            format_number(row.tail_index, 2),
            format_number(row.hellinger, 2),
            format_percent(row.target_coverage),
        ),
    )


def _make_collected_row(row: Mapping[str, Any], digits: int) -> Row:
    scores, labels = row["scores"], row["labels"]
    names = ("n_responses", "n_cut_off", "n_null", "n_exactly_one", "n_extreme")
    return Row(
        name=row["policy"],
        numbers=(
            *(format_count(row[name]) for name in names),
            format_count(scores["n"]),
            format_number(scores["mean"], digits),
            format_count(labels["n"]),
            format_number(labels["mean"], digits),
            format_count(scores["n_unreadable"] + labels["n_unreadable"]),
        ),
    )


def list_oracle_facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the page adds to how a run was made: calibration, draws, checks of log-probabilities."""
    oracle_config = (manifest.get("config") or {}).get("oracle")
    calibration = ""
    if oracle_config:
        columns = ", ".join(["score", *oracle_config["covariates"]])
        calibration = f"on {columns}, five folds by seed {oracle_config['seed']}"
    checks = (manifest.get("collection") or {}).get("checks", ())
    return [
        ("Calibration", calibration),
        ("Fresh draws", _join_counts(manifest.get("n_draws"))),
        ("Probes", _join_counts(manifest.get("n_probe"))),
        ("Log-probabilities", "; ".join(map(words.describe_logprob_check, checks))),
    ]


def _join_counts(counts: Mapping[str, int] | None) -> str:
    return ", ".join(f"{name} {n}" for name, n in (counts or {}).items())


# The console


def format_console(
    analysis: Analysis,
    truth: Mapping[str, Truth],
    collection: Mapping[str, Any] | None = None,
) -> str:
    """Return the end of a run on the console."""
    lines = [format_collection(collection)] if collection else []
    digits = analysis.data.scale.decimals + 1
    if not analysis.options.compat:
        lines += _format_ranking(analysis, digits)
        lines += [words.advice(analysis.comparison, digits), ""]
    for policy in analysis.checks:
        lines += _format_policy(analysis, policy, truth, digits)
    if analysis.options.compat:
        lines.append(_COMPAT_NOTE)
    else:
        lines += [_LEGEND, taste_line.describe_oracle_scope(analysis.options.oracle)]
    if truth_sentence := words.compare_with_truth(analysis.estimates, truth, digits):
        lines += ["", truth_sentence]
    return "\n".join(lines)


def _format_interval(row: PolicyEstimate, digits: int) -> str:
    return f"{row.ci_low:.{digits}f} .. {row.ci_high:.{digits}f}"


def _format_ranking(analysis: Analysis, digits: int) -> list[str]:
    quoted_by_policy, rows = quote_estimates(analysis), []
    for row in analysis.comparison.ranking:
        estimate = quoted_by_policy[row["policy"]]
        ranks = "-".join(map(str, dict.fromkeys((row["rank_low"], row["rank_high"]))))
        rows.append(
            (
                ranks,
                estimate.policy,
                f"{estimate.value:.{digits}f}",
                _format_interval(estimate, digits),
                estimate.rests_on,
                estimate.status,
            )
        )
    head = ("rank", "policy", "value", "95 %", "rests on", "use")
    table = format_table(head, rows, text=("policy", "rests on", "use"))
    return [table] if rows else []


def _format_policy(
    analysis: Analysis, policy: str, truth: Mapping[str, Truth], digits: int
) -> list[str]:
    """Return what is known of one policy: its data, its estimates, and which are refused."""
    checks, fresh = analysis.checks[policy], analysis.data.fresh.get(policy)
    weights, counts, quality = checks.weights, [], []
    quality.append(f"overlap of judge scores {checks.overlap.affinity:.2f}")
    if weights:
        counts.append(f"{format_count(weights.n)} logged answers")
        if weights.n_failed:
            counts.append(f"{format_count(weights.n_failed)} without log-probability")
        quality.append(f"raw ESS {100 * weights.ess / weights.n:.3g} %")
    if fresh is not None:
        counts.append(f"{format_count(len(fresh))} fresh draws")
    counts.append(f"{format_count(len(analysis.calibration.rows))} labels")
    margin = analysis.options.max_residual
    audit = words.transport(checks.audit, margin=margin, digits=digits)
    quality.append(f"transport check: {audit}")
    if policy in truth:
        quality.append(f"truth {truth[policy].mean:.{digits + 1}f}")
    rows, estimators_by_reason = [], dict[str, list[str]]()
    for row in analysis.of(policy):
        if row.value is None:
            estimators_by_reason.setdefault(row.reason.split("; ")[0], []).append(
                row.estimator
            )
            continue
        rows.append(
            (
                row.estimator,
                f"{row.value:.{digits + 1}f}",
                f"{row.std_error:.{digits + 1}f}",
                _format_interval(row, digits) + ("*" if row.ci_clipped else ""),
                format_count(row.n),
                "-" if row.ess is None else format_count(round(row.ess)),
                row.status,
                row.reason,
            )
        )
    head = ("estimator", "value", "± SE", "95 %", "n", "ESS", "use", "why")
    table = format_table(head, rows, text=("use", "why")) if rows else ""
    lines = [f"{policy}: {', '.join(counts)}", ", ".join(quality), table]
    for reason, names in estimators_by_reason.items():
        lines.append(f"  refused: {', '.join(names)}: {reason}")
    return [*lines, ""] if estimators_by_reason else lines


def format_collection(collection: Mapping[str, Any]) -> str:
    """Return what a run has collected, as dataset_info.json has it."""

    def cells(row: Mapping[str, Any]) -> list[str]:
        scores, labels = row["scores"], row["labels"]
        means = [
            "-" if statistics["mean"] is None else f"{statistics['mean']:.3f}"
            for statistics in (scores, labels)
        ]
        n_unreadable = scores["n_unreadable"] + labels["n_unreadable"]
        return [
            row["policy"],
            *(format_count(row[name]) for name in _COUNT_FIELDS),
            *(format_count(scores["n"]), means[0]),
            *(format_count(labels["n"]), means[1]),
            format_count(n_unreadable),
        ]

    table = format_table(_COLLECTED_COLUMNS, map(cells, collection["policies"]))
    checks = map(words.describe_logprob_check, collection["checks"])
    return "\n".join([table, _COLLECTED_LEGEND, *checks])


def status(progress: Mapping[str, Mapping[str, tuple[int, int]]]) -> str:
    """Return what the store holds of a collection.

    progress  by policy and step: how many of how many
    """
    missing = dict[str, int]()
    for steps in progress.values():
        for step, (n, wanted) in steps.items():
            missing[step] = missing.get(step, 0) + wanted - n
    rows = [
        [
            policy,
            *(
                f"{format_count(n)} of {format_count(wanted)}"
                for n, wanted in steps.values()
            ),
        ]
        for policy, steps in progress.items()
    ]
    table = format_table(["policy", *missing], rows)
    if missing_counts := [
        f"{format_count(n)} {step}" for step, n in missing.items() if n
    ]:
        end = f"missing: {', '.join(missing_counts)}. Run without status=true to continue."
    else:
        end = "complete"
    return f"{table}\n{end}"
