"""report.html of the oracle experiment: which numbers may be used first, then why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elo_exp.oracle.ablation import AblationRow, summaries
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import Analysis, PolicyEstimate
from elo_exp.oracle.gates import CAUTION, REFUSE, REPORT
from elo_exp.oracle.validation import PolicySummary
from elo_exp.report import html
from elo_exp.report.markup import (
    NONE,
    Markup,
    between,
    codes,
    document,
    listed,
    maybe,
    percent,
    table,
    tag,
)
from elo_exp.results import Plot

_FIRST = (
    "stacked_dr",
    "dr_cpo",
    "tmle",
    "mrdr",
    "direct",
    "calibrated_ips",
    "snips",
    "ips",
)  # to be quoted
_SCORES = {
    "judge": "judge's scores as they are",
    "calibrated": "calibrated",
    "calibrated_by_variance": "calibrated, by variance",
}
_TRANSPORT = {
    "pass": "off by less than is allowed",
    "fail": "off",
    "inconclusive": "too few labels to tell",
    "not_graded": "fewer than 20 labels",
    "not_checked": "not checked: no label of its answers",
}


def page(
    analysis: Analysis,
    truth: Mapping[str, Truth],
    ablation: Sequence[AblationRow],
    plots: Sequence[Plot],
    *,
    title: str,
    manifest: Mapping[str, Any],
    collected: Sequence[PolicySummary] = (),
) -> str:
    """The whole report as one HTML file.

    manifest   what manifest.json says
    collected  what the run itself has made of each policy
    """
    sections = {
        "What may be reported": _verdicts(analysis),
        "Estimates": _estimates(analysis, truth),
        "Figures": (html.figure(plot, numbers=f"figures/{plot.name}.csv") for plot in plots),
        "Can the data tell": _checks(analysis),
        "How many labels it takes": _budget(analysis),
        "What calibration is worth": _ablation(ablation),
        "What was collected": _collected(collected),
        "How it was made": _making(manifest),
    }
    data = analysis.data
    started = [html.when(manifest["started_at"])] if manifest.get("started_at") else []
    lede = [
        f"{len(data.policies)} policies, {len(data.logged):,} logged answers, {data.n_labels:,} oracle labels"
    ]
    note = "Every number is in estimates.json and weight_diagnostics.json beside this page; docs/oracle.md describes them."
    return document(title, ", ".join([*lede, *started]), sections, note=note)


def _verdicts(analysis: Analysis) -> Iterator[Markup]:
    for policy in analysis.data.policies:
        said = _verdict(analysis.of(policy))
        is_sure = any(e.status == REPORT for e in analysis.of(policy))
        yield tag(
            "div",
            tag("h3", policy),
            tag("p", *said),
            class_="verdict" if is_sure else "verdict open",
        )
    if analysis.options.compat:
        yield tag(
            "p", "compat=cje-0.3: as that library gives them, which refuses nothing.", class_="warn"
        )


def _verdict(of_policy: Sequence[PolicyEstimate]) -> list[Any]:
    order = {name: i for i, name in enumerate(_FIRST)}
    ranked = sorted(
        of_policy, key=lambda e: (_severity(e.status), order.get(e.estimator, len(order)))
    )
    best = ranked[0]
    if best.value is None:
        direct = next((e for e in of_policy if e.estimator == "direct"), best)
        return [tag("b", "Nothing may be reported."), f" {_sentence(direct.reason)}"]
    same = [e.value for e in of_policy if e.status == best.status and e.value is not None]
    alike = f"{len(same)} of {len(of_policy)} estimators, from {min(same):.3f} to {max(same):.3f}."
    said = [
        tag("b", f"{best.value:.3f}"),
        f" (95 %: {between(best.ci_low, best.ci_high, 3)}, {best.estimator}). ",
    ]
    said.append("With caution: " if best.status == CAUTION else "")
    return [*said, f"{_sentence(best.reason)} " if best.reason else "", f"As sure: {alike}"]


def _severity(status: str) -> int:
    return (REPORT, CAUTION, REFUSE).index(status)


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."


def _estimates(analysis: Analysis, truth: Mapping[str, Truth]) -> Iterator[Markup]:
    head = [
        "!estimator",
        "value",
        "± SE",
        "labels' part",
        "95 %",
        "rows",
        "effective",
        "<use",
        ">why not",
    ]
    for policy in analysis.data.policies:
        yield tag("h3", policy)
        if policy in truth:
            yield tag("p", f"Truth: {truth[policy].mean:.4f}.", class_="note")
        rows = [
            [
                *(
                    e.estimator,
                    maybe(e.value, 4),
                    maybe(e.std_error, 4),
                    maybe(e.std_error_labels, 4),
                ),
                f"{between(e.ci_low, e.ci_high, 3)}{', cut off' if e.ci_clipped else ''}",
                *(
                    f"{e.n:,}",
                    NONE if e.ess is None else f"{e.ess:,.0f}",
                    _status(e.status),
                    e.reason,
                ),
            ]
            for e in analysis.of(policy)
        ]
        yield table(f"Estimates of {policy}", head, rows, wide=True)


def _status(status: str) -> Markup:
    return tag("span", status, class_="yes" if status == REPORT else "no")


def _checks(analysis: Analysis) -> Iterator[Markup]:
    head = [
        "!policy",
        "overlap of scores",
        "beyond the labelled",
        "at an end",
        "<transport",
        "off by",
        "labels",
    ]
    rows = [
        [
            *(
                overlap.policy,
                f"{overlap.affinity:.2f}",
                percent(overlap.out_of_range),
                percent(overlap.saturation),
            ),
            _TRANSPORT[audit.status],
            NONE
            if audit.residual is None
            else f"{maybe(audit.residual, 3)} ± {maybe(audit.half_width, 3)}",
            f"{audit.n:,}",
        ]
        for checks in analysis.checks.values()
        for overlap, audit in [(checks.overlap, checks.audit)]
    ]
    yield table("Scores and calibration", head, rows)
    said = (
        "Estimates that rest on the calibration assume that a score means the same for every policy. Labels of a "
        "policy's own answers test that (transport); among its fresh draws they also correct the direct estimate."
    )
    yield tag("p", said, class_="note")
    names = [
        "!policy",
        "rows",
        "failed",
        "exactly 1",
        "beyond 1/5 .. 5",
        "ESS",
        "calibrated",
        "tail index",
        "E √w",
        "typical",
    ]
    weights = [
        [
            *(w.policy, f"{w.n:,}", f"{w.n_failed:,}", f"{w.n_exactly_one:,}", f"{w.n_extreme:,}"),
            *(
                NONE if ess is None else f"{100 * ess / w.n:.3g} %"
                for ess in (w.ess, w.ess_calibrated)
            ),
            *(maybe(w.tail_index, 2), maybe(w.hellinger, 2)),
            NONE if w.target_coverage is None else percent(w.target_coverage),
        ]
        for checks in analysis.checks.values()
        if (w := checks.weights) is not None
    ]
    if weights:
        yield table("Importance weights", names, weights)
        said = (
            "ESS: effective sample, of the rows. Tail index: below 2 the weights have no variance, below 1 no mean. "
            "E √w: 1 for equal policies. Typical: answers as typical for the policy as nine in ten of its own."
        )
        yield tag("p", said, class_="note")


def _budget(analysis: Analysis) -> Iterator[Markup]:
    refused = {(e.policy, e.estimator) for e in analysis.estimates if e.status == REFUSE}
    shown = [b for b in analysis.budgets if (b.policy, b.estimator) not in refused]
    if not shown:
        return
    widths = list(shown[0].labels_for)
    head = [
        "!policy",
        "<estimator",
        "labels",
        "95 %",
        "at best",
        *(f"for ±{width}" for width in widths),
    ]
    rows = [
        [
            *(
                b.policy,
                b.estimator,
                f"{b.n_labels:,}",
                f"±{b.half_width:.3f}",
                f"±{b.half_width_at_best:.3f}",
            ),
            *(NONE if (n := b.labels_for[width]) is None else f"{n:,}" for width in widths),
        ]
        for b in shown
    ]
    yield table("Label budget", head, rows)
    said = "Labels of logged answers, everything else staying as it is; – where there are not as many answers."
    yield tag("p", said, class_="note")


def _ablation(ablation: Sequence[AblationRow]) -> Iterator[Markup]:
    found = summaries(ablation)
    if not found:
        return
    head = ["!estimator", "<scores", "bias", "RMSE", "covered"]
    rows = [
        [
            s.estimator,
            _SCORES[s.scores],
            maybe(s.bias, 4),
            maybe(s.rmse, 4),
            f"{s.n_covered} of {s.n_policies}",
        ]
        for s in sorted(found, key=lambda s: s.estimator)
    ]
    yield table("Ablation", head, rows)
    yield tag(
        "p",
        "Over all policies whose truth is known, also where the estimate is refused.",
        class_="note",
    )


def _collected(summaries: Sequence[PolicySummary]) -> Iterator[Markup]:
    if not summaries:
        return
    names = [
        "!policy",
        "answers",
        "cut off",
        "log p unknown",
        "weight 1",
        "beyond 1/5 .. 5",
        "scores",
        "mean",
        "labels",
    ]
    rows = [
        [
            *(
                s.policy,
                f"{s.n_responses:,}",
                f"{s.n_cut_off:,}",
                f"{s.n_null:,}",
                f"{s.n_exactly_one:,}",
            ),
            *(f"{s.n_extreme:,}", f"{s.scores.n:,}", maybe(s.scores.mean, 3)),
            *(
                f"{s.labels.n:,}",
                maybe(s.labels.mean, 3),
                f"{s.scores.n_unreadable + s.labels.n_unreadable:,}",
            ),
        ]
        for s in summaries
    ]
    yield table(
        "Answers, scores and labels of this run", [*names, "mean", "unreadable"], rows, wide=True
    )


def _making(manifest: Mapping[str, Any]) -> Iterator[Markup]:
    oracle = manifest.get("config", {}).get("oracle", {})
    rows: dict[str, object] = {
        "Chosen by hand": codes(manifest.get("overrides") or ())
        or "nothing: all settings as they ship",
        "Calibration": f"{oracle.get('calibration')}, {oracle.get('n_folds')} folds by seed {oracle.get('seed')}",
        "Fresh draws": ", ".join(
            f"{name} {n:,}" for name, n in manifest.get("n_draws", {}).items()
        ),
        "Probes": ", ".join(f"{name} {n:,}" for name, n in manifest.get("n_probe", {}).items()),
        "Log-probabilities": "; ".join(
            f"{check['differences']}: {check['n_checked']:,} compared, {check['max_difference']:.2g} nats apart at most"
            for check in manifest.get("collection", {}).get("checks", ())
        ),
        "Commit": codes([manifest["git_commit"]] if manifest.get("git_commit") else ()),
        "Versions": ", ".join(
            f"{name} {version}" for name, version in manifest.get("versions", {}).items()
        ),
        "Inputs": codes(
            f"{name} sha256:{digest[:12]}"
            for name, digest in manifest.get("input_hashes", {}).items()
        ),
    }
    yield listed(rows)
