"""The page and the console text of an oracle experiment: the reported estimates, then the reasons."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elo_exp.console import format_table, wrap_lines
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
    format_p,
    format_percent,
)
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import Analysis, PolicyEstimate, count_labels
from elo_exp.oracle.gates import REPORT, WeightDiagnostics
from elo_exp.report.document import (
    Block,
    Card,
    Cards,
    Cell,
    Document,
    FigureSlot,
    Heading,
    OtherFigures,
    Paragraph,
    Section,
    Styled,
    Table,
)
from elo_exp.report.provenance import (
    build_details_section,
    format_kicker,
    list_made_blocks,
    list_run_bill,
)
from elo_exp.report.sentences import oracle_sentences as words
from elo_exp.report.sentences import scope_line

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
    *("scores", "mean", "labels", "mean", "invalid"),
)
_LEGEND = """\
status  report: you may publish the estimate; caution: quote it only with its reason; refuse: no estimate
± SE    standard error over prompts, including the error of the labels
n, ESS  number of answers, and the effective sample size of the weights in answers"""
_COMPAT_NOTE = (
    "These are the estimates and errors of cje-eval 0.3 (compat=cje-0.3), which refuses no estimate. See "
    "docs/oracle_cje.md."
)
_COLLECTED_LEGEND = """\
null, zero    log-probabilities of logged answers that are unknown, or 0 for an answer that is not empty
w = 1, w > 5  importance weights of exactly 1, and above 5 or below 1/5
invalid       scores and labels that could not be read"""


_DIFFERENCES_NOTE = (
    "Differences are paired by prompt. ",
    Styled("All at once", "quote"),
    ": these intervals contain all true differences together with 95% probability. A policy may be the best unless "
    "another policy is above it by such an interval.",
)
_TRANSPORT_NOTE = (
    "Calibrated estimates assume that a judge score means the same for every policy (calibration transfer). Labels of "
    "a policy’s own answers test this, and correct its reported estimate."
)
_WEIGHTS_NOTE = (
    "ESS: effective sample size, as a share of the answers. Tail index: below 2 the weights have no finite variance, "
    "below 1 no finite mean. E √w: 1 if the policies are equal. Typical: logged answers that are as typical of the policy "
    "as 90% of its own answers."
)
_GLOSSARY = (
    (
        "logging policy",
        "The policy that gave the logged answers. Other policies are estimated from these answers or from samples of their "
        "own.",
    ),
    (
        "oracle label",
        "The expensive score of one answer. The cheap scores of the judge are calibrated on these labels.",
    ),
    (
        "importance weight",
        "The probability that a policy gives a logged answer, divided by the probability that the logging policy gives "
        "it.",
    ),
    (
        "calibration transfer",
        "The assumption that a judge score means the same for every policy, so that one calibration fits all policies.",
    ),
    (
        "effective sample size",
        "The number of equally weighted answers that carry as much information as the weighted answers.",
    ),
    (
        "report, caution, refuse",
        "Report: you may publish the estimate. Caution: quote it only with its reason. Refuse: there is no estimate.",
    ),
)
_FOOTER = (
    "All numbers are in estimates.json and weight_diagnostics.json next to this page. docs/oracle_files.md describes the "
    "files."
)


def build_document(
    analysis: Analysis,
    truth: Mapping[str, Truth],
    budgets: Sequence[Mapping[str, Any]],
    collection: Mapping[str, Any] | None,
    manifest: Mapping[str, Any],
) -> Document:
    """Return the page of an oracle experiment.

    budgets     rows of label_budget.json
    collection  answers, scores and labels that the run itself has collected
    """
    digits, quoted_by_policy = _count_digits(analysis), quote_estimates(analysis)
    is_compatible = bool(analysis.options.compat)
    cards = [
        _build_card(analysis, row, truth, digits) for row in quoted_by_policy.values()
    ]
    against_truth = words.compare_with_truth(analysis.estimates, truth, digits)
    advice = "" if is_compatible else words.advice(analysis.comparison, digits)
    next_step = Paragraph([Styled("Next:", "bold"), f" {advice}"])
    return Document(
        kicker=format_kicker("oracle", manifest),
        headline=words.title(analysis, quoted_by_policy),
        lede=_list_lede(analysis, quoted_by_policy, manifest),
        sections=[
            Section(
                "result",
                "Result",
                [Cards(cards), *([Paragraph(against_truth)] if against_truth else [])],
            ),
            Section(
                "differences",
                "Differences",
                [
                    _build_differences_table(analysis, digits),
                    *([next_step] if advice else []),
                ],
            ),
            Section(
                "estimates",
                "Estimates",
                [
                    *_list_estimate_blocks(analysis, truth, digits),
                    FigureSlot("estimates"),
                ],
            ),
            Section(
                "diagnostics",
                "Calibration and weights",
                [
                    _build_transport_table(analysis, digits),
                    FigureSlot("calibration"),
                    _build_weights_table(analysis),
                    FigureSlot("weights"),
                ],
            ),
            Section(
                "labels",
                "Labels needed",
                [_build_labels_table(analysis, budgets, digits)],
            ),
            Section(
                "collected",
                "Collected data",
                [_build_collected_table(collection, digits)],
            ),
            Section("figures", "Further figures", [OtherFigures()]),
            build_details_section(
                list_run_bill(manifest),
                made=list_made_blocks(manifest, _list_oracle_facts(manifest)),
                terms=_GLOSSARY,
            ),
        ],
        footer=_FOOTER,
    )


def _count_digits(analysis: Analysis) -> int:
    return analysis.data.scale.decimals + 1


def _list_lede(
    analysis: Analysis,
    quoted_by_policy: Mapping[str, PolicyEstimate],
    manifest: Mapping[str, Any],
) -> list[Paragraph]:
    data, options = analysis.data, analysis.options
    n = len(data.policies)
    counts = [f"{n} {'policy' if n == 1 else 'policies'}"]
    if len(data.logged_rows):
        counts.append(f"{format_count(len(data.logged_rows))} logged answers")
    counts.append(f"{format_count(len(analysis.calibration.rows))} oracle labels.")
    facts = [
        sentence
        for sentence in (
            words.describe_finding(analysis, quoted_by_policy),
            ", ".join(counts),
        )
        if sentence
    ]
    if not options.compat:
        facts.append(scope_line.describe_oracle_scope(options.oracle))
    lede = [Paragraph(" ".join(facts), "facts")]
    if manifest.get("is_simulated"):
        lede.append(Paragraph(words.SIMULATED_NOTE, "warn"))
    if options.compat:
        lede.append(Paragraph(_COMPAT_NOTE, "warn"))
    return lede


def quote_estimates(analysis: Analysis) -> dict[str, PolicyEstimate]:
    """Return the estimate of each policy to quote: the reported one, or with compat the first of the best status."""

    def preference(row: PolicyEstimate) -> tuple[bool, bool, bool]:
        return (not row.headline, row.status != REPORT, row.value is None)

    return {
        policy: min(analysis.list_estimates(policy), key=preference)
        for policy in analysis.data.policies
    }


def _format_pair_interval(difference: Mapping[str, Any], digits: int) -> str:
    """Return the interval of one pair on its own; a dash if its error is unknown."""
    low, high = difference["ci_low"], difference["ci_high"]
    return (
        NO_VALUE if low is None or high is None else format_interval(low, high, digits)
    )


def _build_card(
    analysis: Analysis, row: PolicyEstimate, truth: Mapping[str, Truth], digits: int
) -> Card:
    state = words.STATE_ROWS[row.status]
    reason = words.sentence(row.reason) if row.reason else ""
    if row.value is None:
        blocks = [Heading("No estimate can be reported."), Paragraph(reason)]
        return Card(title=row.policy, chip=state.chip, tone=state.tone, blocks=blocks)
    interval = format_interval(row.ci_low, row.ci_high, digits)
    basis = (
        f"It rests on {words.describe_basis(row.rests_on)}"
        if row.rests_on
        else f"Estimator: {row.estimator}"
    )
    sentence = f"95% interval {interval}. {basis}."
    details = [_format_truth(row.policy, truth, digits)]
    values = [
        e.value for e in analysis.list_estimates(row.policy) if e.value is not None
    ]
    if len(set(values)) > 1:
        details.append(
            f"{len(values)} estimators give values from {format_number(min(values), digits)} to "
            f"{format_number(max(values), digits)}."
        )
    return Card(
        title=row.policy,
        chip=state.chip,
        tone=state.tone,
        blocks=[
            Heading(format_number(row.value, digits)),
            Paragraph(f"{sentence} {reason}".rstrip()),
            *(Paragraph(detail, "small") for detail in details if detail),
        ],
    )


def _format_truth(policy: str, truth: Mapping[str, Truth], digits: int) -> str:
    if policy not in truth:
        return ""
    return f"Truth: {format_number(truth[policy].mean, digits)}."


def _build_differences_table(analysis: Analysis, digits: int) -> Table:
    return Table(
        label="Differences of policies",
        columns=[
            "Policy",
            "Above",
            "Difference",
            "95% CI",
            "All at once",
            "Holm p",
            "Rests on",
        ],
        rows=[
            [
                row["a"],
                row["b"],
                format_number(row["value"], digits),
                _format_pair_interval(row, digits),
                format_interval(row["low"], row["high"], digits),
                format_p(row["p_holm"]),
                words.describe_basis(row["rests_on"]),
            ]
            for row in analysis.comparison.differences
        ],
        words=["Above", "Rests on"],
        note=_DIFFERENCES_NOTE,
    )


def _list_estimate_blocks(
    analysis: Analysis, truth: Mapping[str, Truth], digits: int
) -> Iterator[Block]:
    """Yield all estimates of each policy, or the reason why it has none."""
    for policy in analysis.data.policies:
        rows = analysis.list_estimates(policy)
        yield Heading(policy)
        if truth_sentence := _format_truth(policy, truth, digits + 1):
            yield Paragraph(truth_sentence, "small")
        if all(row.value is None for row in rows):
            yield Paragraph(
                f"All {len(rows)} estimators are refused. Reason: {rows[0].reason}."
            )
        else:
            yield Table(
                label=f"Estimates of {policy}",
                columns=[
                    "Estimator",
                    "Value",
                    "± SE",
                    "95% CI",
                    "Answers",
                    "ESS",
                    "Status",
                    "Reason",
                ],
                rows=[_make_estimate_row(row, digits) for row in rows],
                words=["Status", "Reason"],
            )


def _make_estimate_row(row: PolicyEstimate, digits: int) -> list[str | Cell]:
    interval = format_interval(row.ci_low, row.ci_high, digits)
    return [
        row.estimator,
        format_number(row.value, digits + 1),
        format_number(row.std_error, digits + 1),
        f"{interval}{', clipped' if row.ci_clipped else ''}",
        format_count(row.n),
        format_number(row.ess),
        Cell(row.status, "yes" if row.status == REPORT else "no"),
        Cell(row.reason, "words"),
    ]


def _build_transport_table(analysis: Analysis, digits: int) -> Table:
    margin = analysis.options.max_residual
    return Table(
        label="Scores and calibration",
        columns=[
            "Policy",
            "Overlap of scores",
            "Outside labelled range",
            "At an end of the range",
            "Calibration transfer",
        ],
        rows=[
            [
                policy,
                format_number(checks.overlap.affinity, 2),
                format_percent(checks.overlap.out_of_range),
                format_percent(checks.overlap.saturation),
                Cell(
                    words.transport(
                        checks.transport_audit, margin=margin, digits=digits
                    ),
                    "words",
                ),
            ]
            for policy, checks in analysis.evidence_by_policy.items()
        ],
        words=["Calibration transfer"],
        note=_TRANSPORT_NOTE,
    )


def _build_weights_table(analysis: Analysis) -> Table:
    return Table(
        label="Importance weights",
        columns=[
            "Policy",
            "Answers",
            "Failed",
            "Exactly 1",
            "Outside ⅕ to 5",
            "ESS",
            "ESS calibrated",
            "Tail index",
            "E √w",
            "Typical",
        ],
        rows=[
            _make_weights_row(checks.weight_diagnostics)
            for checks in analysis.evidence_by_policy.values()
            if checks.weight_diagnostics
        ],
        note=_WEIGHTS_NOTE,
    )


def _make_weights_row(row: WeightDiagnostics) -> list[str]:
    calibrated = row.ess_calibrated
    return [
        row.policy,
        *map(format_count, (row.n, row.n_failed, row.n_exactly_one, row.n_extreme)),
        format_percent(row.ess / row.n),
        NO_VALUE if calibrated is None else format_percent(calibrated / row.n),
        format_number(row.tail_index, 2),
        format_number(row.hellinger, 2),
        format_percent(row.target_coverage),
    ]


def _build_labels_table(
    analysis: Analysis, budgets: Sequence[Mapping[str, Any]], digits: int
) -> Table:
    estimated_pairs = {
        (row.policy, row.estimator)
        for row in analysis.estimates
        if row.value is not None
    }
    half_widths = [f"for ±{width:g}" for width in analysis.options.half_widths]
    lenders = ", ".join(analysis.data.label_sources)
    return Table(
        label="Label budget",
        columns=[
            "Policy",
            "Estimator",
            "Labels",
            "95% CI",
            "Unlimited labels",
            *half_widths,
        ],
        rows=[
            [
                row["policy"],
                row["estimator"],
                format_count(row["n_labels"]),
                f"±{format_number(row['half_width'], digits)}",
                f"±{format_number(row['half_width_at_best'], digits)}",
                *map(format_count, row["labels_for"].values()),
            ]
            for row in budgets
            if (row["policy"], row["estimator"]) in estimated_pairs
        ],
        words=["Estimator"],
        note=f"Numbers of labels for answers of {lenders}, if everything else stays equal. A dash: there are not as many "
        "answers.",
    )


def _build_collected_table(collection: Mapping[str, Any] | None, digits: int) -> Table:
    return Table(
        label="Answers, scores and labels of this run",
        columns=[
            "Policy",
            "Answers",
            "Cut off",
            "Log p unknown",
            "Weight 1",
            "Outside ⅕ to 5",
            "Scores",
            "Mean",
            "Labels",
            "Mean",
            "Invalid",
        ],
        rows=[
            _make_collected_row(row, digits)
            for row in (collection or {}).get("policies", ())
        ],
    )


def _make_collected_row(row: Mapping[str, Any], digits: int) -> list[str]:
    scores, labels = row["scores"], row["labels"]
    names = ("n_responses", "n_cut_off", "n_null", "n_exactly_one", "n_extreme")
    return [
        row["policy"],
        *(format_count(row[name]) for name in names),
        format_count(scores["n"]),
        format_number(scores["mean"], digits),
        format_count(labels["n"]),
        format_number(labels["mean"], digits),
        format_count(scores["n_unreadable"] + labels["n_unreadable"]),
    ]


def _list_oracle_facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts that the page adds to the section on how a run was made."""
    oracle_config = (manifest.get("config") or {}).get("oracle")
    calibration = ""
    if oracle_config:
        columns = ", ".join(["score", *oracle_config["covariates"]])
        calibration = f"on {columns}, in five folds with seed {oracle_config['seed']}"
    checks = (manifest.get("collection") or {}).get("checks", ())
    return [
        ("Calibration", calibration),
        ("Samples", _join_counts(manifest.get("n_draws"))),
        ("Target-policy labels", _join_counts(manifest.get("n_probe"))),
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
    """Return the result of a run for the console."""
    lines = [format_collection(collection)] if collection else []
    digits = _count_digits(analysis)
    if not analysis.options.compat:
        lines += _format_ranking(analysis, digits)
        lines += [*wrap_lines([words.advice(analysis.comparison, digits)]), ""]
    for policy in analysis.evidence_by_policy:
        lines += _format_policy(analysis, policy, truth, digits)
    if analysis.options.compat:
        lines += wrap_lines([_COMPAT_NOTE])
    else:
        lines += [_LEGEND, scope_line.describe_oracle_scope(analysis.options.oracle)]
    if truth_sentence := words.compare_with_truth(analysis.estimates, truth, digits):
        lines += ["", *wrap_lines([truth_sentence])]
    return "\n".join(lines)


def _format_interval(row: PolicyEstimate, digits: int) -> str:
    return format_interval(row.ci_low, row.ci_high, digits)


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
                words.describe_basis(estimate.rests_on),
                estimate.status,
            )
        )
    head = ("rank", "policy", "value", "95% CI", "rests on", "status")
    table = format_table(head, rows, text=("policy", "rests on", "status"))
    return [table] if rows else []


def _format_policy(
    analysis: Analysis, policy: str, truth: Mapping[str, Truth], digits: int
) -> list[str]:
    """Return the data and the estimates of one policy, and the refused estimators."""
    checks, fresh = (
        analysis.evidence_by_policy[policy],
        analysis.data.fresh_draws.get(policy),
    )
    weights, counts, quality = checks.weight_diagnostics, [], []
    quality.append(f"score overlap {checks.overlap.affinity:.2f}")
    if weights:
        counts.append(f"{format_count(weights.n)} logged answers")
        if weights.n_failed:
            counts.append(f"{format_count(weights.n_failed)} without log-probability")
        quality.append(f"ESS of the weights {100 * weights.ess / weights.n:.3g}%")
    if fresh is not None:
        counts.append(f"{format_count(len(fresh))} samples")
    margin = analysis.options.max_residual
    audit = words.transport(checks.transport_audit, margin=margin, digits=digits)
    n_calibrating = len(analysis.calibration.rows)
    facts = [
        f"{policy}: {', '.join(counts)}; {words.describe_labels(count_labels(checks), n_calibrating)}",
        f"{', '.join(quality)}",
        f"calibration transfer: {audit}",
    ]
    if policy in truth:
        facts.append(f"true value: {truth[policy].mean:.{digits + 1}f}")
    rows, estimators_by_reason = [], dict[str, list[str]]()
    for row in analysis.list_estimates(policy):
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
    head = ("estimator", "value", "± SE", "95% CI", "n", "ESS", "status", "reason")
    table = format_table(head, rows, text=("status", "reason")) if rows else ""
    lines = [*wrap_lines(facts), table]
    lines += wrap_lines(
        f"  refused: {', '.join(names)}. Reason: {reason}"
        for reason, names in estimators_by_reason.items()
    )
    return [*lines, ""] if estimators_by_reason else lines


def format_collection(collection: Mapping[str, Any]) -> str:
    """Return a table of the collected answers, scores and labels, from dataset_info.json."""

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
    """Return the progress of a collection.

    progress  by policy and step: the number in the cache and the number needed
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
        end = f"Missing: {', '.join(missing_counts)}. Run without status=true to continue."
    else:
        end = "Complete."
    return f"{table}\n{end}"
