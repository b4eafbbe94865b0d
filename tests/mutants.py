"""Mistakes in lines that a promise to a user hangs on, each with the test that has to see it.

`make test-slow` makes each of them in a copy of the sources and runs its test there, which has to fail. A mutant whose
line is gone is written anew for the line that keeps the promise now, or deleted with the promise; if its test goes,
another that sees it is named here first.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One mistake.

    name      what is wrong with the program
    file      below elo_exp/
    old, new  the exact source text, which is there once, and what stands in its place
    seen_by   the test that fails, as pytest names it below tests/
    """

    name: str
    file: str
    old: str
    new: str
    seen_by: str


MUTANTS = [
    # Money: the most that a request may cost, and the cap
    Mutant(
        name="four bytes a token in the worst case",
        file="api/costs.py",
        old="_BYTES_A_TOKEN = 2.0",
        new="_BYTES_A_TOKEN = 4.0",
        seen_by="test_pricing.py::test_a_worked_example_of_the_cap_for_each_price",
    ),
    Mutant(
        name="the cap leaves the price of cache writes out",
        file="api/costs.py",
        old="max(self.input, self.write(ttl))",
        new="self.input",
        seen_by="test_pricing.py::test_a_worked_example_of_the_cap_for_each_price",
    ),
    Mutant(
        name="what is under way is not held in the budget",
        file="api/costs.py",
        old="room = self.cap - self.spent - self.reserved",
        new="room = self.cap - self.spent",
        seen_by="test_claude.py::test_what_does_not_say_what_it_took_is_held_against_the_cap_at_its_most",
    ),
    Mutant(
        name="a plan may cost the whole cap where some of it is spent",
        file="pipeline/planning.py",
        old="self.dollars <= cap - self.spent_usd",
        new="self.dollars <= cap",
        seen_by="test_planning.py::test_what_is_spent_is_gone_from_the_cap",
    ),
    # Paid once: the guards of claims and ledger
    Mutant(
        name="a single call leaves beside a batch under way",
        file="store/claims.py",
        old='f"WHERE key = ? AND owner = ? AND key NOT IN ({PENDING})"',
        new='"WHERE key = ? AND owner = ?"',
        seen_by="test_claims.py::test_a_call_leaves_once_and_not_beside_a_batch_or_without_the_claim",
    ),
    Mutant(
        name="a single call leaves without the claim",
        file="store/claims.py",
        old='f"WHERE key = ? AND owner = ? AND key NOT IN ({PENDING})",\n'
        "                (dollars, utc_now(), key, self.owner),",
        new='f"WHERE key = ? AND key NOT IN ({PENDING})",\n'
        "                (dollars, utc_now(), key),",
        seen_by="test_claims.py::test_a_call_leaves_once_and_not_beside_a_batch_or_without_the_claim",
    ),
    Mutant(
        name="what is answered is claimed again",
        file="store/claims.py",
        old='"WHERE key NOT IN (SELECT key FROM answers) "\n'
        '                f"AND key NOT IN',
        new='"WHERE TRUE "\n                f"AND key NOT IN',
        seen_by="test_claims.py::test_a_worked_example",
    ),
    Mutant(
        name="what a living process has claimed is taken from it",
        file="store/claims.py",
        old='f"AND key NOT IN (SELECT key FROM claims WHERE {_LIVES})"',
        new='"AND TRUE"',
        seen_by="test_claims.py::test_a_worked_example",
    ),
    Mutant(
        name="losses of a living process are counted",
        file="store/claims.py",
        old='f"AND NOT {_LIVES} AND key IN (SELECT key FROM wanted) RETURNING dollars"',
        new='"AND key IN (SELECT key FROM wanted) RETURNING dollars"',
        seen_by="test_claims.py::test_what_a_dead_process_waited_for_is_a_loss_where_it_is_wanted_again",
    ),
    Mutant(
        name="a loss is forgotten once it is paid again",
        file="store/store.py",
        old='"DELETE FROM losses WHERE key = ? AND why IS NULL", keys',
        new='"DELETE FROM losses WHERE key = ?", keys',
        seen_by="test_claims.py::test_a_call_leaves_once_and_not_beside_a_batch_or_without_the_claim",
    ),
    Mutant(
        name="two doubtful batches may have one size",
        file="store/ledger.py",
        old="for n in range(1, len(names) + 1) if n not in taken",
        new="for n in range(1, len(names) + 1)",
        seen_by="test_ledger.py::test_two_batches_whose_arrival_is_doubtful_differ_in_size",
    ),
    Mutant(
        name="what is in a batch under way enters another",
        file="store/ledger.py",
        old=" WHERE owner = ? EXCEPT {PENDING}",
        new=" WHERE owner = ?",
        seen_by="test_ledger.py::test_what_is_in_a_batch_under_way_enters_no_other",
    ),
    Mutant(
        name="a batch is abandoned that another has taken over",
        file="store/ledger.py",
        old="\"state = 'intended' AND owner = :owner\"",
        new="\"state = 'intended'\"",
        seen_by="test_ledger.py::test_a_process_that_slept_neither_submits_nor_abandons_what_another_has_taken_over",
    ),
    Mutant(
        name="a result that comes twice is counted twice",
        file="store/ledger.py",
        old="nonce = ? AND key = ? AND outcome IS NULL",
        new="nonce = ? AND key = ?",
        seen_by="test_ledger.py::test_a_process_that_slept_neither_submits_nor_abandons_what_another_has_taken_over",
    ),
    Mutant(
        name="the count of lost submissions is never reset",
        file="api/batches.py",
        old="        self._n_lost = 0\n",
        new="",
        seen_by="test_claude.py::test_submissions_that_are_lost_but_not_in_a_row_do_not_stop_a_run",
    ),
    # From verdicts to battles
    Mutant(
        name="the second order's letters are not swapped back",
        file="data/pairing.py",
        old='("b", "a") if verdict.position_swap else ("a", "b")',
        new='("a", "b")',
        seen_by="test_pairs.py::test_two_verdicts_make_one_judgment",
    ),
    Mutant(
        name="one invalid order leaves the other to decide",
        file="data/pairing.py",
        old="    invalid = None in named\n",
        new="    invalid = not any(named)\n    named = [side for side in named if side] or [None]\n",
        seen_by="test_pairs.py::test_two_verdicts_make_one_judgment",
    ),
    Mutant(
        name="an invalid verdict is a tie",
        file="data/battles.py",
        old="for judgment in judgments if not judgment.invalid]",
        new="for judgment in judgments]",
        seen_by="test_battles.py::test_an_invalid_judgment_is_no_battle",
    ),
    Mutant(
        name="a prompt that one entrant has not answered stays for the others",
        file="data/pairing.py",
        old="and all(prompt.prompt_id in answered for answered in responses.values())",
        new="and any(prompt.prompt_id in answered for answered in responses.values())",
        seen_by="test_pairs.py::test_a_prompt_that_lacks_an_answer_or_a_judgment_is_left_out_for_all",
    ),
    # Errors and tests
    Mutant(
        name="every battle is a cluster of its own",
        file="ratings/games.py",
        old="prompts, cluster = numbered(prompt)",
        new="prompts, cluster = numbered(np.arange(len(prompt)))",
        seen_by="test_bradley_terry.py::test_all_battles_on_a_prompt_are_one_observation",
    ),
    Mutant(
        name="as many degrees of freedom as prompts",
        file="ratings/leaderboard.py",
        old="np.maximum(np.asarray(n_prompts) - 1.0, 1.0)",
        new="np.maximum(np.asarray(n_prompts), 1.0)",
        seen_by="test_leaderboard.py::test_an_interval_is_student_s_of_each_model_s_own_prompts",
    ),
    Mutant(
        name="a 95 % interval leaves 5 % on each side",
        file="ratings/leaderboard.py",
        old="special.stdtrit(df, (1 + level) / 2)",
        new="special.stdtrit(df, level)",
        seen_by="test_leaderboard.py::test_an_interval_is_student_s_of_each_model_s_own_prompts",
    ),
    Mutant(
        name="Holm's first step is not multiplied by the number of tests",
        file="analysis/comparisons.py",
        old="np.arange(len(order), 0, -1)",
        new="np.arange(len(order) - 1, -1, -1).clip(1)",
        seen_by="test_comparisons.py::test_statsmodels_adjusts_p_values_alike",
    ),
    Mutant(
        name="an adjusted p may be below one before it",
        file="analysis/comparisons.py",
        old="np.maximum.accumulate(multiplied)",
        new="multiplied",
        seen_by="test_comparisons.py::test_statsmodels_adjusts_p_values_alike",
    ),
    Mutant(
        name="the error of a difference takes ratings as independent",
        file="analysis/comparisons.py",
        old="of_difference = of_sum - 2.0 * covariance",
        new="of_difference = of_sum",
        seen_by="test_comparisons.py::test_a_worked_example_of_differences",
    ),
    Mutant(
        name="opponents are halved in a plan's power",
        file="pipeline/planning.py",
        old="max(1.0, 2 * len(units) / (n_prompts * n_entrants))",
        new="max(1.0, len(units) / (n_prompts * n_entrants))",
        seen_by="test_planning.py::test_a_worked_example_of_power_with_two_opponents_each",
    ),
    Mutant(
        name="the bound of a mean takes no further value as lost",
        file="analysis/bounded.py",
        old="_weighted_means(np.append(x, least))",
        new="_weighted_means(x)",
        seen_by="test_bounded.py::test_zeros_and_ones_have_the_bounds_of_clopper_and_pearson",
    ),
    Mutant(
        name="the bound of a mean is twice as sure as it says",
        file="analysis/bounded.py",
        old="least)), alpha))",
        new="least)), alpha / 2))",
        seen_by="test_bounded.py::test_zeros_and_ones_have_the_bounds_of_clopper_and_pearson",
    ),
    Mutant(
        name="the sandwich takes its own residuals for those of new prompts",
        file="ratings/fit.py",
        old="n / max(n - 1, 1) * bread @ meat @ bread",
        new="bread @ meat @ bread",
        seen_by="test_bradley_terry.py::test_two_models_by_hand",
    ),
    Mutant(
        name="a tie is half a win for one side alone",
        file="ratings/games.py",
        old="self.sums(1.0 - self.score).T",
        new="self.sums(np.floor(1.0 - self.score)).T",
        seen_by="test_bradley_terry.py::test_ties_are_half_wins_and_both_orders_two_games",
    ),
    Mutant(
        name="who never won is rated",
        file="ratings/fit.py",
        old='connection="strong"',
        new='connection="weak"',
        seen_by="test_bradley_terry.py::test_models_without_a_finite_rating_are_flagged_and_the_others_rated_as_if_alone",
    ),
    Mutant(
        name="in Elo nobody loses what another gains",
        file="ratings/elo.py",
        old="            second -= gain\n",
        new="",
        seen_by="test_elo.py::test_two_matches_by_hand",
    ),
    Mutant(
        name="rank sets test each pair as if it were the only one",
        file="analysis/comparisons.py",
        old="return np.where(df < df_of_all, t_quantile(df, level=level), by_draws)",
        new="return t_quantile(df)",
        seen_by="test_comparisons.py::test_a_worked_example_of_ranks",
    ),
    Mutant(
        name="planned looks spend twice their error",
        file="analysis/looks.py",
        old="ndtri(alpha / 4)",
        new="ndtri(alpha / 2)",
        seen_by="test_group_sequential.py::test_boundaries_are_those_of_the_tables",
    ),
    Mutant(
        name="planned looks do not correct for the number of pairs",
        file="analysis/looks.py",
        old="state.resolve(alpha / n_open)",
        new="state.resolve(alpha)",
        seen_by="test_looks.py::test_looks_written_a_second_time_ask_and_resolve_the_same",
    ),
    Mutant(
        name="flips are a share of all judgments",
        file="analysis/judge_quality.py",
        old="n_flips / n_two if n_two else None",
        new="n_flips / n if n_two else None",
        seen_by="test_judge_quality.py::test_a_worked_example",
    ),
    Mutant(
        name="a plan forgets that quality differs between prompts for each opponent",
        file="analysis/power.py",
        old="(k + 1) * _QUALITY",
        new="_QUALITY",
        seen_by="test_power.py::test_a_plan_is_as_much_wider_as_the_design_was_in_simulations",
    ),
    # What the judge is shown, and what is read of its reply
    Mutant(
        name="a reply that was cut off is read",
        file="data/rubrics.py",
        old='    if reply.stop_reason != "end_turn":\n        return {}, ""\n',
        new="",
        seen_by="test_rubrics.py::test_a_judge_may_think_fence_and_talk_but_says_one_thing_at_the_end",
    ),
    Mutant(
        name="an answer may close its block and open another",
        file="data/rubrics.py",
        old=r'return self._tags.sub(r"\\<", text)',
        new="return text",
        seen_by="test_rubrics.py::test_a_text_can_neither_close_its_block_nor_open_another",
    ),
    Mutant(
        name="the shortest part of a name tells the family",
        file="analysis/families.py",
        old="max(parts, key=len)",
        new="min(parts, key=len)",
        seen_by="test_families.py::test_the_longest_part_counts_and_a_whole_name_most",
    ),
    Mutant(
        name="any letters of a name tell the family",
        file="analysis/families.py",
        old='rf"(?<!{letter}){re.escape(part)}(?!{letter})"',
        new="re.escape(part)",
        seen_by="test_families.py::test_a_part_between_anything_but_letters_tells_the_family",
    ),
    # The store: the first answer is every run's
    Mutant(
        name="a later answer replaces the first",
        file="store/store.py",
        old='"INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)"',
        new='"INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)"',
        seen_by="test_store.py::test_the_first_answer_wins_and_every_one_that_was_made_is_counted",
    ),
    # Kin of the judge
    Mutant(
        name="a part of a name is found inside a word",
        file="analysis/families.py",
        old='rf"(?<!{letter}){re.escape(part)}(?!{letter})"',
        new='rf"{re.escape(part)}"',
        seen_by="test_families.py::test_a_part_between_anything_but_letters_tells_the_family",
    ),
    Mutant(
        name="a lead of the judge's family is no reason for caution",
        file="analysis/checks.py",
        old='state = "note" if kin["is_allowed"] or not is_favoured else "caution"',
        new='state = "note"',
        seen_by="test_families.py::test_labelled_pairs_may_show_that_the_judge_has_no_preference_for_its_own",
    ),
    Mutant(
        name="an arena takes it that a judge has no preference for its family",
        file="arena/joint_fit.py",
        old="is_kin.sum() / tau**2 + kin_sd**-2.0",
        new="is_kin.sum() / tau**2 + 1e6",
        seen_by="test_joint_fit.py::test_without_kin_among_the_anchors_a_model_of_the_judge_is_never_reported",
    ),
    Mutant(
        name="a placement on the judge's own scale is reported as any other",
        file="analysis/conclusions/arena.py",
        old='state = "caution" if ordered else "placed"',
        new='state = "placed"',
        seen_by="test_arena_conclusions.py::test_the_first_state_that_applies",
    ),
    # Oracle and arena
    Mutant(
        name="labels calibrate the answers to their own prompts",
        file="oracle/calibration.py",
        old="outside = [labelled.fold != k for",
        new="outside = [labelled.fold >= 0 for",
        seen_by="test_calibration.py::test_a_prompt_is_calibrated_by_the_labels_of_other_folds_alone",
    ),
    Mutant(
        name="no label is added at the lower end of the scale",
        file="oracle/evidence.py",
        old="least=scale.low - level",
        new="least=float(residual.mean())",
        seen_by="test_own_labels.py::test_twenty_of_twenty_right_say_83_to_100_percent",
    ),
    Mutant(
        name="the power of a round of labels is that for one rival",
        file="oracle/estimates.py",
        old="(1.0 - _POWER) / len(rivals)",
        new="(1.0 - _POWER)",
        seen_by="test_labels_to_buy.py::test_the_number_of_labels_by_hand",
    ),
    Mutant(
        name="a policy without labels of its own is passed over",
        file="analysis/conclusions/oracle.py",
        old="    if unknown:\n",
        new="    if unknown and not ranked:\n",
        seen_by="test_labels_to_buy.py::test_a_policy_is_taken_where_it_is_best_near_the_best_or_all_is_labelled",
    ),
    Mutant(
        name="the error of an estimate takes rows for prompts",
        file="oracle/evidence.py",
        old="g / (g - 1) * float(squares.sum())",
        new="float(squares.sum())",
        seen_by="test_estimators.py::test_the_clustered_error_of_a_mean_is_the_one_of_the_textbook",
    ),
    Mutant(
        name="the judge's scale and taste are taken as known",
        file="arena/joint_fit.py",
        old="(given_z + across_z)",
        new="given_z",
        seen_by="test_joint_fit.py::test_far_from_the_anchors_a_rating_is_as_unsure_as_the_judges_scale",
    ),
    # Who took every point, and who is probably the best
    Mutant(
        name="the end of a one-sided interval leaves 5 % beyond it",
        file="analysis/separated.py",
        old="_TAIL = 0.025",
        new="_TAIL = 0.05",
        seen_by="test_separated.py::test_bounds_by_hand",
    ),
    Mutant(
        name="the test of a one-sided pair looks at one side",
        file="analysis/separated.py",
        old="2.0 ** (1 - n)",
        new="2.0 ** (-n)",
        seen_by="test_separated.py::test_one_sided_pairs_are_of_the_family_of_tests",
    ),
    Mutant(
        name="every battle of a one-sided pair counts as a prompt",
        file="analysis/separated.py",
        old="met = np.unique(np.stack([pair, prompt]), axis=1)",
        new="met = np.stack([pair, prompt])",
        seen_by="test_separated.py::test_prompts_are_counted_once_whatever_happens_on_them",
    ),
    Mutant(
        name="battles without a prompt are evidence of a one-sided pair",
        file="analysis/separated.py",
        old="met[1] < len(battles.questions)",
        new="met[1] >= 0",
        seen_by="test_separated.py::test_battles_without_a_prompt_are_no_evidence",
    ),
    Mutant(
        name="one-sided pairs are tested as if each were the only pair",
        file="analysis/comparisons.py",
        old="(pair.p_value or 0.0) <= ALPHA / n_pairs",
        new="(pair.p_value or 0.0) <= ALPHA",
        seen_by="test_separated.py::test_rank_sets_share_their_error_among_all_pairs",
    ),
    Mutant(
        name="rank sets know of no chains of one-sided pairs",
        file="analysis/comparisons.py",
        old="better = closure(better)[",
        new="better = better[",
        seen_by="test_separated.py::test_whom_the_first_is_ahead_of_by_a_chain_and_whom_it_never_met",
    ),
    Mutant(
        name="an unbeaten entrant is over the weakest that it met",
        file="analysis/separated.py",
        old="min(known)[1]",
        new="max(known)[1]",
        seen_by="test_separated.py::test_an_unbeaten_entrant_is_first",
    ),
    Mutant(
        name="a look at which a pair had no error counts as one that did not stop it",
        file="analysis/looks.py",
        old="if not test.one_sided]",
        new="]",
        seen_by="test_looks.py::test_a_pair_that_was_one_sided_at_first_has_the_interval_of_the_looks_after_it",
    ),
    Mutant(
        name="those that cannot be the best enter the chances of those that may",
        file="analysis/shrinkage.py",
        old="models = rated(board, may_be)",
        new="models = rated(board)",
        seen_by="test_shrinkage.py::test_an_outlier_below_has_no_part_in_the_chances_of_those_that_may_be_best",
    ),
    Mutant(
        name="a covariance of few prompts is not steadied",
        file="analysis/shrinkage.py",
        old="steadied(models.covariance, n)",
        new="models.covariance",
        seen_by="test_shrinkage.py::test_few_prompts_leave_an_improbable_certainty_open",
    ),
    Mutant(
        name="equal answers are given a position",
        file="ratings/games.py",
        old="differ = twice & ~battles.equal_answers",
        new="differ = twice",
        seen_by="test_bradley_terry.py::test_who_was_shown_first_is_known_of_different_answers_alone",
    ),
    Mutant(
        name="a judge is paid for equal answers",
        file="experiments/judged.py",
        old="if pair.is_all and pipeline.n_new(",
        new="if not pair.is_all and pipeline.n_new(",
        seen_by="test_equal_answers.py::test_equal_answers_are_refused_before_a_judge_is_paid",
    ),
    # Conclusions
    Mutant(
        name="entrants with the same answers are level",
        file="analysis/conclusions/tournament.py",
        old='elif "same" in names:',
        new="elif False:",
        seen_by="test_conclusions.py::test_entrants_with_the_answers_of_the_first_are_never_level_with_it",
    ),
    Mutant(
        name="a sweep's gap is to the last",
        file="analysis/conclusions/sweep.py",
        old="gap=ratings[0] - ratings[1]",
        new="gap=ratings[0] - ratings[-1]",
        seen_by="test_sweep_conclusions.py::test_the_gap_is_to_the_second_and_not_to_the_last",
    ),
    Mutant(
        name="an unchecked judge counts as passed",
        file="analysis/conclusions/tournament.py",
        old="elif not is_measured and scope.kind not in _NOT_JUDGED:",
        new="elif False:",
        seen_by="test_acceptance.py::test_a_judge_of_whom_nothing_is_known_does_not_make_a_leader",
    ),
    Mutant(
        name="flips without positions are checks enough",
        file="analysis/conclusions/tournament.py",
        old='return {"flips", "first_shown"} <= known',
        new='return "flips" in known',
        seen_by="test_conclusions.py::test_a_judge_is_checked_where_flips_and_first_shown_have_a_value",
    ),
    Mutant(
        name="a reason goes before a test that does not decide",
        file="analysis/conclusions/tournament.py",
        old="elif names & {*UNDECIDED}:",
        new="elif {*UNDECIDED} >= names and names:",
        seen_by="test_conclusions.py::test_more_doubt_never_says_more",
    ),
    Mutant(
        name="a judge of words is a judge of quality",
        file="analysis/conclusions/tournament.py",
        old='elif scope.kind == "words":',
        new='elif scope.kind == "words" and names:',
        seen_by="test_acceptance.py::test_a_judge_that_counts_words_announces_nothing_on_own_prompts",
    ),
    Mutant(
        name="few prompts rank",
        file="analysis/conclusions/tournament.py",
        old="scope.n_prompts < MIN_PROMPTS",
        new="scope.n_prompts < 2",
        seen_by="test_conclusions.py::test_a_state_has_one_sentence",
    ),
    Mutant(
        name="a stratum of a few prompts is a reversal",
        file="analysis/conclusions/tournament.py",
        old="if n < MIN_PROMPTS or first not in rated:",
        new="if first not in rated:",
        seen_by="test_conclusions.py::test_a_stratum_of_20_prompts_on_which_the_first_is_behind_is_a_reason",
    ),
    Mutant(
        name="an invalid verdict of a gate is a tie",
        file="analysis/gate.py",
        old="_SCORES.get(s, unknown)",
        new="_SCORES.get(s, 0.5)",
        seen_by="test_gate.py::test_one_invalid_order_of_two_leaves_half_a_point_open",
    ),
    Mutant(
        name="a gate leaves prompts out that its candidate has not answered",
        file="experiments/gate.py",
        old="dict.fromkeys((*compared, *missing), (0.0, 1.0))",
        new="dict.fromkeys(compared, (0.0, 1.0))",
        seen_by="test_gate.py::test_answers_that_a_candidate_does_not_give_are_not_left_out",
    ),
    Mutant(
        name="a gate passes where one dimension does",
        file="analysis/gate.py",
        old="if all(one.low is not None",
        new="if any(one.low is not None",
        seen_by="test_gate.py::test_every_dimension_has_to_pass_and_one_suffices_to_fail",
    ),
    Mutant(
        name="the points of a bias are doubled",
        file="report/words/judge.py",
        old="return number(400.0 * math.log10",
        new="return number(800.0 * math.log10",
        seen_by="test_audit.py::test_a_bias_in_points_is_the_difference_of_ratings_that_moves_a_share_as_far",
    ),
    Mutant(
        name="a word for no verdict is a tie",
        file="data/battle_files.py",
        old="word: meant and WORDS[meant]",
        new='word: WORDS[meant or "tie"]',
        seen_by="test_battles.py::test_a_files_own_words_for_winners_are_read_as_they_are_said_to_mean",
    ),
    Mutant(
        name="A and B are taken for the sides of columns that end so",
        file="data/battle_files.py",
        old=' - {"a", "b"}',
        new="",
        seen_by="test_battles.py::test_a_word_that_names_no_column_is_left_to_the_user",
    ),
    # Files of answers: a wrong join is worse than none
    Mutant(
        name="of two different answers to one prompt the first is taken",
        file="data/joining.py",
        old="            if row.text != rows[0].text:",
        new="            if False:",
        seen_by="test_joining.py::test_what_cannot_be_joined_stops",
    ),
    Mutant(
        name="of two references to one prompt the first is taken",
        file="data/joining.py",
        old="if folded(str(row.reference)) != folded(str(given[0].reference)):",
        new="if False:",
        seen_by="test_joining.py::test_what_cannot_be_joined_stops",
    ),
    Mutant(
        name="an id that stands for two prompts joins one of them",
        file="data/joining.py",
        old='if row.prompt is None and len(texts_of.get(row.id or "", ())) > 1:',
        new="if False:",
        seen_by="test_joining.py::test_what_cannot_be_joined_stops",
    ),
    Mutant(
        name="answers to no prompt of the bank go without a word",
        file="data/joining.py",
        old="        if strays:",
        new="        if False:",
        seen_by="test_joining.py::test_with_a_bank_its_rows_are_the_prompts_and_strays_are_named",
    ),
    Mutant(
        name="an empty answer is a failed request",
        file="data/joining.py",
        old="rows = [row for row in self.rows_to(prompt) if row.text is not None]",
        new="rows = [row for row in self.rows_to(prompt) if row.text]",
        seen_by="test_joining.py::test_two_files_are_joined_by_the_text_of_their_prompts",
    ),
    Mutant(
        name="what a gate's candidate did not answer is left out",
        file="experiments/gate.py",
        old="        answered = set(self._joined.answered[BASELINE])",
        new="        answered = {p.prompt_id for p in self._joined.shared}",
        seen_by="test_own_answers.py::test_a_gate_counts_what_the_candidate_lacks_and_the_baseline_has",
    ),
    # Studies: who judges, and what it would cost
    Mutant(
        name="the prices of a run without a judge are those of single messages",
        file="experiments/judged.py",
        old="{name: plan.dollars for name, plan in priced.items()}",
        new="{name: 2 * plan.dollars for name, plan in priced.items()}",
        seen_by="test_studies.py::test_without_a_judge_a_run_says_what_three_would_cost_and_stops",
    ),
    Mutant(
        name="words that are counted give a headline",
        file="report/artifacts.py",
        old="if dimension.conclusion and dimension.conclusion.scope.is_baseline:",
        new="if not dimension:",
        seen_by="test_studies.py::test_counting_words_is_a_baseline_that_finds_nothing",
    ),
    Mutant(
        name="own prompts are judged by the physician of the medical study",
        file="../conf/study/own.yaml",
        old="override /rubric: [preference]",
        new="override /rubric: [clinical_utility]",
        seen_by="test_studies.py::test_own_prompts_are_judged_by_no_physician",
    ),
]
