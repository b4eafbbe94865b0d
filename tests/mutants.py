"""Mistakes in lines that a promise to a user hangs on, each with the test that has to see it.

`make test-slow` makes each of them in a copy of the sources and runs its test there, which has to fail. A mutant whose
line is gone is written anew for the line that keeps the promise now, or deleted with the promise; if its test goes,
another that sees it is named here first.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.changes import Change, Text, file_of


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One mistake.

    name     what is wrong with the program
    where    the function, class or constant that it is in, as `tests/changes.py` has it
    change   what makes the mistake there; it names nothing that is named in the function alone
    seen_by  the test that fails, as pytest names it below tests/
    """

    name: str
    where: str
    change: Change | Text
    seen_by: str

    @property
    def file(self) -> Path:
        """The file that the mistake is in, from the root of the repository."""
        return file_of(self.where)

    def mistaken(self, source: str) -> str:
        """Return a source of the file with the mistake in it. Raises AddressError where it fits in none or several places."""
        return self.change.edited(source, self.where)


MUTANTS = [
    # Money: the most that a request may cost, and the cap
    Mutant(
        name="four bytes a token in the worst case",
        where="api/costs:_MIN_BYTES_PER_TOKEN",
        change=Change("2.0", "4.0"),
        seen_by="test_pricing.py::test_a_worked_example_of_the_cap_for_each_price",
    ),
    Mutant(
        name="the cap leaves the price of cache writes out",
        where="api/costs:Prices.max_cost",
        change=Change("max(A, B)", "A"),
        seen_by="test_pricing.py::test_a_worked_example_of_the_cap_for_each_price",
    ),
    Mutant(
        name="what is under way is not held in the budget",
        where="api/costs:Budget.count_affordable",
        change=Change("self.A - self.B - self.C", "self.A - self.B"),
        seen_by="test_claude.py::test_what_does_not_say_what_it_took_is_held_against_the_cap_at_its_most",
    ),
    Mutant(
        name="a plan may cost the whole cap where some of it is spent",
        where="pipeline/planning:Plan.fits",
        change=Change("A - B", "A"),
        seen_by="test_planning.py::test_what_is_spent_is_gone_from_the_cap",
    ),
    # Processes of many machines
    Mutant(
        name="a process that connects again at once is taken for dead",
        where="store/claims:Claims._is_dead",
        change=Change("A - B >= (C if D else E)", "D or A - B >= E"),
        seen_by="test_claims.py::test_a_process_elsewhere_is_dead_when_its_connection_has_been_gone_for_half_a_minute",
    ),
    Mutant(
        name="a time in which the server was away makes everybody dead",
        where="store/claims:Claims._is_dead",
        change=Change("A is not None and B - C > D", "False"),
        seen_by="test_claims.py::test_a_process_elsewhere_is_dead_when_its_connection_has_been_gone_for_half_a_minute",
    ),
    Mutant(
        name="the lock of a process is gone for good with its connection",
        where="store/claims:Claims._keep_alive",
        change=Change("A.hold_lock(B)", "N > 1 or A.hold_lock(B)", given="N % C == 0"),
        seen_by="test_claims.py::test_a_process_takes_its_lock_again_when_the_server_was_started_anew",
    ),
    Mutant(
        name="a store in which somebody is at work is copied",
        where="store/copying:copy_store",
        change=Change("F(S)", "pass", given="S.A == T.A"),
        seen_by="test_store_actions.py::test_what_is_no_copy_of_a_whole_store_is_refused",
    ),
    # A server that goes away
    Mutant(
        name="a server that is away is sent all requests",
        where="api/outages:ServerWatch.may_send",
        change=Change("A.B is None and time.monotonic() >= A.C", "True"),
        seen_by="test_outages.py::test_one_request_at_a_time_asks_whether_the_server_is_back",
    ),
    Mutant(
        name="requests use up their attempts while the server is away",
        where="api/outages:ServerWatch.note_failure",
        change=Change("not A and not B", "True"),
        seen_by="test_outages.py::test_one_request_at_a_time_asks_whether_the_server_is_back",
    ),
    Mutant(
        name="a server is waited for ten times as long",
        where="api/outages:ServerWatch.__init__",
        change=Change("60.0", "600.0"),
        seen_by="test_outages.py::test_one_that_stays_away_ends_the_run_in_a_line_and_the_same_command_goes_on",
    ),
    Mutant(
        name="a request that fails alone is taken for a server that is away",
        where="api/outages:ServerWatch.send",
        change=Change("A and B and not C", "A and B"),
        seen_by="test_outages.py::test_a_request_that_fails_alone_at_a_server_that_is_there_is_given_up",
    ),
    Mutant(
        name="every refusal of a rate limit is met with all requests at once",
        where="api/outages:ServerWatch.note_failure",
        change=Change("not (A or B) and C", "not B and C"),
        seen_by="test_outages.py::test_all_who_ask_a_server_wait_together",
    ),
    Mutant(
        name="a poisonous request asks alone whether the server is back",
        where="api/job_queue:JobQueue.find_probe",
        change=Change("self.A and all(...)", "False"),
        seen_by="test_refusals.py::test_one_poisonous_request_delays_no_other",
    ),
    Mutant(
        name="a date in Retry-After is ignored",
        where="api/transport:read_retry_after",
        change=Change("if A is None:\n    return None", "return None"),
        seen_by="test_openai_api.py::test_how_long_to_wait_is_what_the_server_asks",
    ),
    # Signals
    Mutant(
        name="a signal that is ignored at the start is handled",
        where="interrupts:_install_handlers",
        change=Change("A or B in (None, C)", "A or B is None"),
        seen_by="test_interrupts.py::test_a_signal_that_is_ignored_at_the_start_stays_ignored",
    ),
    Mutant(
        name="SIGTERM breaks off a submission that is on its way",
        where="interrupts:_receive",
        change=Change(
            "not A.B",
            "N != signal.SIGINT",
            given='N == getattr(signal, "SIGHUP", None)',
        ),
        seen_by="test_interrupts.py::test_a_signal_lets_a_batch_be_submitted_and_the_same_command_collects_it",
    ),
    # Several judges: one cap, and no interval that does not cover
    Mutant(
        name="each of several judges has a cap of its own",
        where="experiments/judge_choice:share_budget",
        change=Change("A.budget = B", "A.budget = Budget(B.cap)"),
        seen_by="test_several_judges.py::test_several_judges_pay_from_one_budget",
    ),
    Mutant(
        name="the first of several judges is paid though the sum does not fit",
        where="experiments/tournament:Tournament.conclude",
        change=Change("A.check(B)", "A"),
        seen_by="test_several_judges.py::test_one_cap_holds_for_both_and_is_looked_at_before_either_is_paid",
    ),
    Mutant(
        name="files call judges with one model alike",
        where="experiments/judge_choice:list_unique_judge_names",
        change=Change("A[B] == 1", "True"),
        seen_by="test_several_judges.py::test_files_tell_judges_with_one_model_apart_and_the_store_does_not_name_them",
    ),
    Mutant(
        name="a stored audit that none wrote is met when all is paid",
        where="experiments/judging_plan:JudgingPlan._check_access",
        change=Change("A.check_audits(B)", "pass"),
        seen_by="test_audit.py::test_a_stored_audit_that_none_wrote_is_refused_before_anybody_answers",
    ),
    Mutant(
        name="a row for each order is taken for a repeated verdict",
        where="analysis/verdict_sources:find_repeats",
        change=Change("np.where(A, 2, B)", "np.where(A, 2, 2)"),
        seen_by="test_judges_on_file.py::test_a_verdict_is_repeated_on_the_same_answers_in_the_same_order",
    ),
    Mutant(
        name="words that one of several judges compares are taken for a language model's taste",
        where="judges/__init__:guess_judge_kind",
        change=Change('A.partition(" (")[0]', "A"),
        seen_by="test_several_judges.py::test_words_are_words_whatever_the_judge_is_called",
    ),
    Mutant(
        name="the first of several audited judges is paid though the sum does not fit",
        where="experiments/audit:Audit._check_judges",
        change=Change("A.check(B)", "A"),
        seen_by="test_several_audits.py::test_one_cap_holds_for_all_before_any_is_paid",
    ),
    Mutant(
        name="a judge that cannot be audited hides the others",
        where="experiments/audit:Audit.run",
        change=Change("A[B] = C\ncontinue", "raise"),
        seen_by="test_several_audits.py::test_a_judge_that_says_nothing_hides_no_other_and_is_asked_again_alone",
    ),
    Mutant(
        name="an audit that lacks a judge ends as a whole one",
        where="experiments/audit:Audit.run",
        change=Change("2 if A else 0", "0"),
        seen_by="test_several_audits.py::test_a_judge_that_says_nothing_hides_no_other_and_is_asked_again_alone",
    ),
    Mutant(
        name="votes of judges that err together count as independent ones",
        where="analysis/effective_votes:_compute_votes",
        change=Change("(A - 1) * B", "B"),
        seen_by="test_effective_votes.py::test_a_known_rho_is_recovered",
    ),
    Mutant(
        name="several comparisons of a prompt count as independent in the votes of judges",
        where="analysis/effective_votes:effective_votes",
        change=Change(
            "np.unique(np.array(A, dtype=str), return_inverse=True)",
            "np.array(A), np.arange(N)",
            given="N, M = B.shape",
        ),
        seen_by="test_effective_votes.py::test_comparisons_of_a_prompt_are_one_observation",
    ),
    Mutant(
        name="texts of one of several judges leave the machine",
        where="trackers/__init__:GuardedRun.log",
        change=Change('A.rpartition("/")[2] not in B', "A not in B"),
        seen_by="test_trackers.py::test_without_texts_no_verdicts_of_several_judges_are_logged",
    ),
    Mutant(
        name="a judge that gives no probabilities is paid again by each rerun",
        where="pipeline/watching:ReplyGuard.check",
        change=Change("if A: self.F(A)", "if False: self.F(A)"),
        seen_by="test_probabilities.py::test_a_model_that_gives_no_probabilities_is_refused_at_its_first_answer",
    ),
    Mutant(
        name="three judges of three entrants have a joint board",
        where="analysis/judge_panel:_MIN_DF",
        change=Change("4", "2"),
        seen_by="test_several_judges.py::test_too_few_judges_have_no_interval_together",
    ),
    Mutant(
        name="a joint board knows of no taste",
        where="analysis/judge_panel:JudgePanelFit.estimates",
        change=Change("np.maximum(A * B - C, 0.0) / D", "0.0 * A"),
        seen_by="test_several_judges.py::test_a_fourth_judge_narrows_what_judges_add_and_prompts_what_prompts_do",
    ),
    Mutant(
        name="verdicts of several judges on file are pooled unasked",
        where="experiments/battle_source:BattleSource.separate_parties",
        change=Change("self.A is None and B", "self.A is not None and B"),
        seen_by="test_judges_on_file.py::test_two_judges_have_a_board_each_and_no_interval_together",
    ),
    Mutant(
        name="people who vote are a draw of a judge's taste",
        where="analysis/conclusions/judges_conclusion:sum_up_judges",
        change=Change("for A, B in C.items() if A not in D", "for A, B in C.items()"),
        seen_by="test_judges_on_file.py::test_people_are_beside_the_judges_and_no_draw_of_their_taste",
    ),
    Mutant(
        name="each of many voters is a judge",
        where="analysis/verdict_sources:are_judges",
        change=Change("A <= B", "A"),
        seen_by="test_judges_on_file.py::test_who_judged_much_is_a_judge_and_many_who_judged_little_are_one_population",
    ),
    Mutant(
        name="a judge whose name is a path writes outside of the run",
        where="experiments/__init__:judge_folder",
        change=Change('A / "judges" / F(B)', 'A / "judges" / B'),
        seen_by="test_judges_on_file.py::test_a_judge_whose_name_is_a_path_has_a_folder_inside",
    ),
    # Sampling: the law of a token, and what its noise depends on
    Mutant(
        name="every step of an answer has the noise of the first",
        where="models/races:uniforms",
        change=Change("[0, A, 0, 0]", "[0, 0, 0, 0]"),
        seen_by="test_races.py::test_draws_and_steps_of_a_prompt_are_independent",
    ),
    Mutant(
        name="a rejected draft is replaced by a draw from the product",
        where="models/multihead:step",
        change=Change("F(A[B], C[B])", "A[B]"),
        seen_by="test_multihead.py::test_tokens_are_distributed_as_the_target",
    ),
    Mutant(
        name="sampled answers of before races are taken for answers of now",
        where="entrants/huggingface:HuggingFaceEntrant.version",
        change=Change("1 if A else 2", "1"),
        seen_by="test_cache_keys.py::test_what_an_earlier_version_has_stored_is_found",
    ),
    # Paid once: the guards of claims and ledger
    Mutant(
        name="a single call leaves beside a batch under way",
        where="store/claims:Claims.record_call.mark_sent",
        change=Text(" AND NOT {}", ""),
        seen_by="test_claims.py::test_a_call_leaves_once_and_not_beside_a_batch_or_without_the_claim",
    ),
    Mutant(
        name="a single call leaves without the claim",
        where="store/claims:Claims.record_call.mark_sent",
        change=Text("AND owner = ?", "AND owner || ? != ''"),
        seen_by="test_claims.py::test_a_call_leaves_once_and_not_beside_a_batch_or_without_the_claim",
    ),
    Mutant(
        name="what is answered is claimed again",
        where="store/claims:Claims._claim_keys",
        change=Text(
            "NOT EXISTS (SELECT 1 FROM answers WHERE answers.key = wanted.key)", "TRUE"
        ),
        seen_by="test_claims.py::test_a_worked_example",
    ),
    Mutant(
        name="what a living process has claimed is taken from it",
        where="store/claims:Claims._claim_keys",
        change=Text("AND key NOT IN (SELECT key FROM claims WHERE {}) ", "AND TRUE "),
        seen_by="test_claims.py::test_a_worked_example",
    ),
    Mutant(
        name="losses of a living process are counted",
        where="store/claims:Claims._count_losses",
        change=Text("AND NOT {} ", ""),
        seen_by="test_claims.py::test_what_a_dead_process_waited_for_is_a_loss_where_it_is_wanted_again",
    ),
    Mutant(
        name="a loss is forgotten once it is paid again",
        where="store/answer_store:_end_calls",
        change=Text("key = ? AND why IS NULL", "key = ?"),
        seen_by="test_claims.py::test_a_call_leaves_once_and_not_beside_a_batch_or_without_the_claim",
    ),
    Mutant(
        name="two doubtful batches may have one size",
        where="store/batch_rows:find_free_size",
        change=Change("for A in range(1, B) if A not in C", "for A in range(1, B)"),
        seen_by="test_ledger.py::test_two_batches_whose_arrival_is_doubtful_differ_in_size",
    ),
    Mutant(
        name="what is in a batch under way enters another",
        where="store/batch_rows:read_claimed_keys",
        change=Text(" EXCEPT {}", ""),
        seen_by="test_ledger.py::test_what_is_in_a_batch_under_way_enters_no_other",
    ),
    Mutant(
        name="a batch is abandoned that another has taken over",
        where="store/ledger:Ledger.abandon",
        change=Text("AND owner = ?", "AND owner || ? != ''"),
        seen_by="test_ledger.py::test_a_process_that_slept_neither_submits_nor_abandons_what_another_has_taken_over",
    ),
    Mutant(
        name="a result that comes twice is counted twice",
        where="store/ledger:Ledger.record_results",
        change=Text("WHERE nonce = ? AND outcome IS NULL", "WHERE nonce = ?"),
        seen_by="test_ledger.py::test_a_process_that_slept_neither_submits_nor_abandons_what_another_has_taken_over",
    ),
    Mutant(
        name="the count of lost submissions is never reset",
        where="api/open_batches:OpenBatches.mark_submitted",
        change=Change("self.A = 0", "pass"),
        seen_by="test_claude.py::test_submissions_that_are_lost_but_not_in_a_row_do_not_stop_a_run",
    ),
    Mutant(
        name="a batch that was refused late stays charged",
        where="store/ledger:Ledger.mark_refused.mark_refused",
        change=Change("F(A, B, 0.0)", "pass"),
        seen_by="test_openai_batches.py::test_a_batch_for_which_there_is_no_room_waits_until_one_of_ours_has_ended",
    ),
    Mutant(
        name="a request that was not run is taken for one whose row is missing",
        where="api/openai_batches:batch_in",
        change=Change('A if B == "completed" else C', "A"),
        seen_by="test_openai_batches.py::test_a_batch_that_was_cancelled_counts_what_was_run_alone",
    ),
    Mutant(
        name="a spoilt row of an expired batch was not run",
        where="api/batch_results:BatchResults.collect",
        change=Change('", and ".join(filter(None, [A, B]))', "A"),
        seen_by="test_result_lines.py::test_a_spoilt_row_of_an_expired_batch_is_not_taken_for_one_that_was_not_run",
    ),
    Mutant(
        name="rows before a cut are dropped",
        where="api/batch_results:BatchResults._read_results",
        change=Change("except A as B:\n    C = B", "except A as B:\n    raise"),
        seen_by="test_result_lines.py::test_what_came_before_a_cut_is_stored",
    ),
    Mutant(
        name="any key's list denies a submission",
        where="api/submission_search:SubmissionSearch.explain_account_problem",
        change=Change("A == B or C", "A"),
        seen_by="test_accounts.py::test_a_rotated_key_finds_what_arrived_and_denies_nothing",
    ),
    Mutant(
        name="a list that does not reach back denies a submission",
        where="api/submission_search:SubmissionSearch.recover",
        change=Change("not A", "A is None", given="B, A = self.F(C)"),
        seen_by="test_accounts.py::test_a_list_that_does_not_reach_back_denies_nothing",
    ),
    Mutant(
        name="a run does not look for what its store has lost",
        where="api/batches:Batcher._check_server_batches",
        change=Change("self.recover()", "pass"),
        seen_by="test_recover.py::test_a_copy_that_is_brought_back_pays_for_nothing_twice",
    ),
    Mutant(
        name="paid answers stay in the journal",
        where="store/answer_store:Store.write",
        change=Change("self.A.checkpoint()", "pass"),
        seen_by="test_recover.py::test_law_without_its_journal_a_store_has_lost_one_commit_at_most",
    ),
    Mutant(
        name="a short output file is taken for whole",
        where="api/openai_batches:OpenAiBatches.results",
        change=Change('A or B < C["completed"]', "A"),
        seen_by="test_result_lines.py::test_a_spoilt_row_of_an_expired_batch_is_not_taken_for_one_that_was_not_run",
    ),
    Mutant(
        name="what a server writes to its cache by itself is not reckoned with",
        where="api/costs:AutomaticCache.max_cost",
        change=Change("replace(self, input=A)", "self"),
        seen_by="test_openai_batches.py::test_the_most_that_a_request_may_cost_has_all_of_it_written_to_the_cache",
    ),
    Mutant(
        name="batches are sent where nothing proves whose one is",
        where="judges/openai:OpenAiJudge.__post_init__",
        change=Change('self.A == "batches" and B', "False"),
        seen_by="test_openai_batches.py::test_together_is_refused_in_batches_since_nothing_proves_whose_one_is",
    ),
    Mutant(
        name="a run folder goes on without the command that is printed for it",
        where="store/caps:reserve_charge",
        change=Change("A.B and A.C", "False"),
        seen_by="test_caps.py::test_the_store_names_the_command_that_goes_on_with_what_a_run_has_left",
    ),
    Mutant(
        name="thoughts, which stand beside an answer, are not billed",
        where="api/gemini_answers:message_in",
        change=Change(
            '("candidatesTokenCount", "thoughtsTokenCount")',
            '("candidatesTokenCount",)',
        ),
        seen_by="test_gemini.py::test_thoughts_stand_beside_an_answer_and_are_billed_as_output",
    ),
    Mutant(
        name="a list without an order ends a search at the newest batch",
        where="api/gemini:GeminiApi.is_ordered",
        change=Change("False", "True"),
        seen_by="test_gemini.py::test_a_batch_whose_answer_is_lost_is_found_by_its_name_in_shuffled_pages",
    ),
    # From verdicts to battles
    Mutant(
        name="the second order's letters are not swapped back",
        where="data/pairing:unswap_verdict",
        change=Change('("b", "a") if A else ("a", "b")', '("a", "b")'),
        seen_by="test_pairs.py::test_two_verdicts_make_one_judgment",
    ),
    Mutant(
        name="one invalid order leaves the other to decide",
        where="data/pairing:reconcile",
        change=Change(
            "A = None in B",
            "A = not any(B)\nB = [side for side in B if side] or [None]",
        ),
        seen_by="test_pairs.py::test_two_verdicts_make_one_judgment",
    ),
    Mutant(
        name="an invalid verdict is a tie",
        where="data/battles:battles_from_judgments",
        change=Change("for A in B if not A.C", "for A in B"),
        seen_by="test_battles.py::test_an_invalid_judgment_is_no_battle",
    ),
    Mutant(
        name="a prompt that one entrant has not answered takes comparisons from the others",
        where="data/pairing:_compare_on_prompt",
        change=Change(
            "A in S and B in S and C", "len(S) == len(D) and C", given="list(D)"
        ),
        seen_by="test_pairs.py::test_an_entrant_that_lacks_an_answer_takes_no_comparison_from_the_others",
    ),
    Mutant(
        name="what the leader lacks counts for it",
        where="analysis/missing_answers:_assume_points",
        change=Change("(A, B) if C > 0 else (B, A)", "(A, B) if C < 0 else (B, A)"),
        seen_by="test_missing_answers.py::test_a_recorded_failure_of_the_rival_is_its_loss_and_nobody_knows_of_a_blank_cell",
    ),
    Mutant(
        name="what is missing counts for a shift",
        where="analysis/rating_changes:retest_with_missing",
        change=Change("[-A.B, A.B]", "[A.B, -A.B]"),
        seen_by="test_shifts.py::test_missing_results_count_against_a_shift_whichever_run_lacks_them",
    ),
    Mutant(
        name="a blank order takes nothing from the leader",
        where="analysis/missing_answers:count_against",
        change=Change("if A: B = F(B, ..., **...)", "if not A: B = F(B, ..., **...)"),
        seen_by="test_missing_answers.py::test_losses_whose_second_order_is_blank_count_as_in_both",
    ),
    Mutant(
        name="what the rival lacks is its loss, whether or not it has failed",
        where="analysis/missing_answers:points_against",
        change=Change("A not in B", "C in B", given="0.5 if C in B else 1.0"),
        seen_by="test_missing_answers.py::test_a_recorded_failure_of_the_rival_is_its_loss_and_nobody_knows_of_a_blank_cell",
    ),
    Mutant(
        name="no lost prompt is added to bounded points",
        where="analysis/bounded_tests:chance_of_mean_below_zero",
        change=Change(
            "np.append(np.asarray(A, dtype=np.float64), B)",
            "np.append(np.asarray(A, dtype=np.float64), B / 9)",
        ),
        seen_by="test_bounded_tests.py::test_by_hand_a_little_better_on_all_prompts_is_no_lead",
    ),
    Mutant(
        name="a lead needs one of two tests",
        where="analysis/comparisons:_test_pairs",
        change=Change("np.fmax", "np.fmin"),
        seen_by="test_bounded_tests.py::test_by_hand_a_little_better_on_all_prompts_is_no_lead",
    ),
    # Errors and tests
    Mutant(
        name="every battle is a cluster of its own",
        where="ratings/games:make_games",
        change=Change("A, B = F(C)", "A, B = F(np.arange(len(C)))"),
        seen_by="test_bradley_terry.py::test_all_battles_on_a_prompt_are_one_observation",
    ),
    Mutant(
        name="prompts that are counted move a rating together",
        where="ratings/games:Games.weight_for_squares",
        change=Change("A * B * np.sqrt(C)", "A * B * C"),
        seen_by="test_counts.py::test_by_hand_three_prompts_alike_are_three_clusters",
    ),
    Mutant(
        name="prompts that are counted are one",
        where="ratings/games:Games.n_clusters",
        change=Change("len(A) if B is None else C", "len(A) if B is None else len(A)"),
        seen_by="test_counts.py::test_by_hand_three_prompts_alike_are_three_clusters",
    ),
    Mutant(
        name="battles on one prompt are prompts of their own where they are counted",
        where="ratings/games:make_games",
        change=Change("A[B[C]] = D[C]", "A[B] = D"),
        seen_by="test_counts.py::test_by_hand_three_battles_on_one_prompt_are_one_cluster",
    ),
    Mutant(
        name="counts without questions are said to be of independent prompts",
        where="data/battle_files:read_with_missing",
        change=Change('any(A.columns.has("question_id") for A in B)', "True"),
        seen_by="test_counts.py::test_without_a_column_of_questions_nobody_knows_whether_battles_share_one",
    ),
    Mutant(
        name="as many degrees of freedom as prompts",
        where="ratings/leaderboard:degrees_of_freedom",
        change=Change("np.asarray(A) - 1.0", "np.asarray(A)"),
        seen_by="test_leaderboard.py::test_an_interval_is_student_s_of_each_model_s_own_prompts",
    ),
    Mutant(
        name="a 95% interval leaves 5% on each side",
        where="ratings/leaderboard:t_quantile",
        change=Change("(1 + A) / 2", "A"),
        seen_by="test_leaderboard.py::test_an_interval_is_student_s_of_each_model_s_own_prompts",
    ),
    Mutant(
        name="Holm's first step is not multiplied by the number of tests",
        where="analysis/comparisons:adjust_by_holm",
        change=Change(
            "np.arange(len(A), 0, -1)", "np.arange(len(A) - 1, -1, -1).clip(1)"
        ),
        seen_by="test_comparisons.py::test_statsmodels_adjusts_p_values_alike",
    ),
    Mutant(
        name="an adjusted p may be below one before it",
        where="analysis/comparisons:adjust_by_holm",
        change=Change("np.maximum.accumulate(A)", "A"),
        seen_by="test_comparisons.py::test_statsmodels_adjusts_p_values_alike",
    ),
    Mutant(
        name="the error of a difference takes ratings as independent",
        where="analysis/comparisons:rank_rated_models",
        change=Change("A - 2.0 * B", "A"),
        seen_by="test_comparisons.py::test_a_worked_example_of_differences",
    ),
    Mutant(
        name="opponents are halved in a plan's power",
        where="pipeline/planning:make_plan",
        change=Change("2 * len(A)", "len(A)"),
        seen_by="test_planning.py::test_a_worked_example_of_power_with_two_opponents_each",
    ),
    Mutant(
        name="the bound of a mean takes no further value as lost",
        where="analysis/bounded_means:lower_bound",
        change=Change("np.append(A, B)", "A"),
        seen_by="test_bounded.py::test_zeros_and_ones_have_the_bounds_of_clopper_and_pearson",
    ),
    Mutant(
        name="the bound of a mean is twice as sure as it says",
        where="analysis/bounded_means:lower_bound",
        change=Change("np.quantile(A, B)", "np.quantile(A, B / 2)"),
        seen_by="test_bounded.py::test_zeros_and_ones_have_the_bounds_of_clopper_and_pearson",
    ),
    Mutant(
        name="the sandwich takes its own residuals for those of new prompts",
        where="ratings/fit:sandwich",
        change=Change("A / max(A - 1, 1) * B", "B"),
        seen_by="test_bradley_terry.py::test_two_models_by_hand",
    ),
    Mutant(
        name="a tie is half a win for one side alone",
        where="ratings/games:Games.wins",
        change=Change("1.0 - A", "np.floor(1.0 - A)"),
        seen_by="test_bradley_terry.py::test_ties_are_half_wins_and_both_orders_two_games",
    ),
    Mutant(
        name="who never won is rated",
        where="ratings/fit:find_strongest_component",
        change=Change('"strong"', '"weak"'),
        seen_by="test_bradley_terry.py::test_models_without_a_finite_rating_are_flagged_and_the_others_rated_as_if_alone",
    ),
    Mutant(
        name="in Elo nobody loses what another gains",
        where="ratings/elo:play",
        change=Change("A += B\nC -= B", "A += B"),
        seen_by="test_elo.py::test_two_matches_by_hand",
    ),
    Mutant(
        name="rank sets test each pair as if it were the only one",
        where="analysis/comparisons:_compute_critical_t",
        change=Change("np.where(A < B, F(A, level=C), D)", "F(A)"),
        seen_by="test_comparisons.py::test_a_worked_example_of_ranks",
    ),
    Mutant(
        name="planned looks spend twice their error",
        where="analysis/sequential_tests:alpha_spent",
        change=Change("A / 4", "A / 2"),
        seen_by="test_group_sequential.py::test_boundaries_are_those_of_the_tables",
    ),
    Mutant(
        name="planned looks do not correct for the number of pairs",
        where="analysis/sequential_tests:plan_next_wave",
        change=Change("A.resolve(B / C)", "A.resolve(B)"),
        seen_by="test_looks.py::test_looks_written_a_second_time_ask_and_resolve_the_same",
    ),
    Mutant(
        name="flips are a share of all judgments",
        where="analysis/judge_quality:judge_quality",
        change=Change(
            "A / B if B else None",
            "A / N if B else None",
            given="N, B = len(C), sum(...)",
        ),
        seen_by="test_judge_quality.py::test_a_worked_example",
    ),
    Mutant(
        name="a plan forgets that quality differs between prompts for each opponent",
        where="analysis/power:assumed_sigma",
        change=Change("(A + 1) * B", "B"),
        seen_by="test_power.py::test_a_plan_is_as_much_wider_as_the_design_was_in_simulations",
    ),
    # What the judge is shown, and what is read of its reply
    Mutant(
        name="a reply that was cut off is read",
        where="data/rubrics:read_reply",
        change=Change('if A.stop_reason != "end_turn":\n    return {}, ""', "pass"),
        seen_by="test_rubrics.py::test_a_judge_may_think_fence_and_talk_but_says_one_thing_at_the_end",
    ),
    Mutant(
        name="an answer may close its block and open another",
        where="data/rubrics:Instructions._escape_tags",
        change=Change("A.sub(B, C)", "C"),
        seen_by="test_rubrics.py::test_a_text_can_neither_close_its_block_nor_open_another",
    ),
    Mutant(
        name="the shortest part of a name tells the family",
        where="analysis/families:find_family",
        change=Change("max(A, key=len)", "min(A, key=len)"),
        seen_by="test_families.py::test_the_longest_part_counts_and_a_whole_name_most",
    ),
    Mutant(
        name="any letters of a name tell the family",
        where="analysis/families:_contains_part",
        change=Change('f"(?<!{A}){B}(?!{A})"', "B"),
        seen_by="test_families.py::test_a_part_between_anything_but_letters_tells_the_family",
    ),
    # The store: the first answer is every run's
    Mutant(
        name="a later answer replaces the first",
        where="store/answer_store:_insert_answers",
        change=Text(
            "ON CONFLICT DO NOTHING",
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        ),
        seen_by="test_store.py::test_the_first_answer_wins_and_every_one_that_was_made_is_counted",
    ),
    Mutant(
        name="answers that a full disk did not take are asked for again",
        where="store/claims:Claims.take",
        change=Change("self.A.F()", "pass"),
        seen_by="test_unsaved_answers.py::test_a_process_that_waits_takes_in_what_another_one_could_not_keep",
    ),
    # What leaves the process
    Mutant(
        name="files hold secrets",
        where="masking:current_mask",
        change=Change("A and not B", "False"),
        seen_by="test_secrets.py::test_files_hold_no_secret_and_can_be_read",
    ),
    # The store of many machines: written once, whatever becomes of the connection
    Mutant(
        name="a server that lacks acknowledged commits is believed",
        where="store/session_commits:SessionCommits.rewrite_lost",
        change=Change("not self.A", "True"),
        seen_by="test_postgres.py::test_a_server_that_lacks_acknowledged_commits_is_given_them_again",
    ),
    Mutant(
        name="a transaction that was lost at its commit is always run again",
        where="store/session_commits:SessionCommits.is_last_committed",
        change=Change("A == self.B", "False"),
        seen_by="test_postgres.py::test_a_connection_that_is_lost_at_a_commit_writes_once",
    ),
    Mutant(
        name="a transaction that was lost at its commit is taken for written",
        where="store/session_commits:SessionCommits.is_last_committed",
        change=Change("A == self.B", "True"),
        seen_by="test_postgres.py::test_a_connection_that_is_lost_at_a_commit_writes_once",
    ),
    Mutant(
        name="writers of PostgreSQL do not wait for each other",
        where="store/postgres_connection:begin_writing",
        change=Text("SELECT pg_advisory_xact_lock({}); ", ""),
        seen_by="test_store.py::test_a_writer_waits_for_the_one_before_it",
    ),
    Mutant(
        name="tables are made beside those of another program",
        where="store/postgres_schema:is_store",
        change=Change("not A", "True"),
        seen_by="test_postgres.py::test_what_is_no_store_is_refused_in_one_line_and_left_alone",
    ),
    Mutant(
        name="a password among the parameters of a URL is published",
        where="store/database:check_url",
        change=Change('("password", "secret")', '("no such",)'),
        seen_by="test_postgres.py::test_a_setting_that_is_no_url_or_holds_a_password_is_refused",
    ),
    # Nothing is paid for rubbish
    Mutant(
        name="no reply is read before others are paid for",
        where="pipeline/watching:ReplyGuard.alone",
        change=Change("A if len(A) < len(B) else []", "[]"),
        seen_by="test_canary.py::test_a_judge_that_says_nothing_is_paid_for_twenty_replies_a_rubric",
    ),
    Mutant(
        name="a canary that holds nothing is passed over in batches",
        where="pipeline/paying:_pay_in_batches.raise_stop_error",
        change=Change("if A: raise A[0]", "return"),
        seen_by="test_canary.py::test_every_row_of_a_batch_is_stored_before_it_stops_a_run",
    ),
    Mutant(
        name="a batch is left in the middle of its rows",
        where="pipeline/paying:_pay_in_batches.watch_answers",
        change=Change("A.append(B)", "raise B"),
        seen_by="test_canary.py::test_every_row_of_a_batch_is_stored_before_it_stops_a_run",
    ),
    Mutant(
        name="replies after the canary are not watched",
        where="pipeline/watching:ReplyGuard.see",
        change=Change("len(A) == B", "len(A) > B"),
        seen_by="test_canary.py::test_replies_that_hold_nothing_later_on_stop_a_run",
    ),
    Mutant(
        name="the same command pays a third canary",
        where="pipeline/judging:get_replies",
        change=Change("A.check()", "pass"),
        seen_by="test_canary.py::test_the_same_command_tries_once_more_and_another_setting_asks_anew",
    ),
    Mutant(
        name="a mended server is never asked again",
        where="pipeline/watching:ReplyGuard.__init__",
        change=Change("A and B.F(C)", "False"),
        seen_by="test_canary.py::test_a_server_that_was_mended_is_asked_on_by_the_same_command",
    ),
    Mutant(
        name="an entrant that answers nothing is asked to the end",
        where="pipeline/generating:_FirstAnswers.see",
        change=Change("A and all(...)", "False"),
        seen_by="test_canary.py::test_an_entrant_that_answers_nothing_is_stopped_after_twenty_answers",
    ),
    # Kin of the judge
    Mutant(
        name="a part of a name is found inside a word",
        where="analysis/families:_contains_part",
        change=Change('f"(?<!{A}){B}(?!{A})"', 'f"{B}"'),
        seen_by="test_families.py::test_a_part_between_anything_but_letters_tells_the_family",
    ),
    Mutant(
        name="a lead of the judge's family is no reason for caution",
        where="analysis/checks/kin_check:_Kin.measure",
        change=Change("A and not B and not C", "False and not B and not C"),
        seen_by="test_families.py::test_labelled_pairs_may_show_that_the_judge_has_no_preference_for_its_own",
    ),
    Mutant(
        name="an arena takes it that a judge has no preference for its family",
        where="arena/joint_fit:fit_jointly.laplace",
        change=Change("A.sum() / B**2 + C**-2.0", "A.sum() / B**2 + 1e6"),
        seen_by="test_joint_fit.py::test_without_kin_among_the_anchors_a_model_of_the_judge_is_never_reported",
    ),
    Mutant(
        name="a placement on the judge's own scale is reported as any other",
        where="analysis/conclusions/arena_conclusion:conclude",
        change=Change('"caution" if A else "placed"', '"placed"'),
        seen_by="test_arena_conclusions.py::test_the_first_state_that_applies",
    ),
    # Oracle and arena
    Mutant(
        name="labels calibrate the answers to their own prompts",
        where="oracle/calibration:fit_calibration",
        change=Change("A != B", "A >= 0"),
        seen_by="test_calibration.py::test_a_prompt_is_calibrated_by_the_labels_of_other_folds_alone",
    ),
    Mutant(
        name="no label is added at the lower end of the scale",
        where="oracle/label_means:average_residuals",
        change=Change("A * (B.low - C - D)", "0.0"),
        seen_by="test_own_labels.py::test_twenty_of_twenty_right_say_83_to_100_percent",
    ),
    Mutant(
        name="labels that are all alike on both sides leave a difference without an error",
        where="oracle/estimates:subtract_estimates",
        change=Change(
            "F(..., **..., labels=A, **...)", "F(..., **..., labels=None, **...)"
        ),
        seen_by="test_labels_to_buy.py::test_policies_with_equal_answers_and_labels_may_still_differ",
    ),
    Mutant(
        name="labels of low scores alone are taken for a random sample",
        where="oracle/label_sampling:check_label_sample",
        change=Change("A if B < C else D", "D"),
        seen_by="test_own_labels.py::test_labels_at_low_scores_alone_are_refused",
    ),
    Mutant(
        name="the power of a round of labels is that for one rival",
        where="oracle/estimates:count_labels_for_choice",
        change=Change("1.0 - (1.0 - A) / len(B)", "1.0 - (1.0 - A)"),
        seen_by="test_labels_to_buy.py::test_the_number_of_labels_by_hand",
    ),
    Mutant(
        name="a policy without labels of its own is passed over",
        where="analysis/conclusions/oracle_conclusion:conclude_choice",
        change=Change(
            'if A: return replace(B, state="unknown")',
            'if A and not C: return replace(B, state="unknown")',
            given="if not C: return B",
        ),
        seen_by="test_labels_to_buy.py::test_a_policy_is_taken_where_it_is_best_near_the_best_or_all_is_labelled",
    ),
    Mutant(
        name="the error of an estimate takes rows for prompts",
        where="oracle/evidence:compute_clustered_error",
        change=Change("A / (A - 1) * B", "B"),
        seen_by="test_estimators.py::test_the_clustered_error_of_a_mean_is_the_one_of_the_textbook",
    ),
    Mutant(
        name="the judge's scale and taste are taken as known",
        where="arena/joint_fit:fit_jointly",
        change=Change("A @ (B + C) @ A.T", "A @ B @ A.T"),
        seen_by="test_joint_fit.py::test_far_from_the_anchors_a_rating_is_as_unsure_as_the_judges_scale",
    ),
    # Who took every point, and who is probably the best
    Mutant(
        name="the end of a one-sided interval leaves 5% beyond it",
        where="analysis/complete_separation:_ALPHA_PER_TAIL",
        change=Change("0.025", "0.05"),
        seen_by="test_separated.py::test_bounds_by_hand",
    ),
    Mutant(
        name="the test of a one-sided pair looks at one side",
        where="analysis/complete_separation:find_one_sided_pairs",
        change=Change("2.0 ** (1 - A)", "2.0 ** (-A)"),
        seen_by="test_separated.py::test_one_sided_pairs_are_of_the_family_of_tests",
    ),
    Mutant(
        name="every battle of a one-sided pair counts as a prompt",
        where="analysis/complete_separation:find_one_sided_pairs",
        change=Change("np.unique(A, axis=1)", "A"),
        seen_by="test_separated.py::test_prompts_are_counted_once_whatever_happens_on_them",
    ),
    Mutant(
        name="battles without a prompt are evidence of a one-sided pair",
        where="analysis/complete_separation:find_one_sided_pairs",
        change=Change("A | (B[C] < D)", "A | (C >= 0)"),
        seen_by="test_separated.py::test_battles_without_a_prompt_are_no_evidence",
    ),
    Mutant(
        name="one-sided pairs are tested as if each were the only pair",
        where="analysis/comparisons:add_ranks",
        change=Change("A <= B / C", "A <= B"),
        seen_by="test_separated.py::test_rank_sets_share_their_error_among_all_pairs",
    ),
    Mutant(
        name="rank sets know of no chains of one-sided pairs",
        where="analysis/comparisons:add_ranks",
        change=Change("F(A)[np.ix_(B, B)]", "A[np.ix_(B, B)]"),
        seen_by="test_separated.py::test_whom_the_first_is_ahead_of_by_a_chain_and_whom_it_never_met",
    ),
    Mutant(
        name="an unbeaten entrant is over the weakest that it met",
        where="analysis/complete_separation:_find_lower_ends",
        change=Change("min(A)[1]", "max(A)[1]"),
        seen_by="test_separated.py::test_an_unbeaten_entrant_is_first",
    ),
    Mutant(
        name="a look at which a pair had no error counts as one that did not stop it",
        where="analysis/sequential_tests:_DimensionState.list_resolved",
        change=Change("for A, B, C in D if not C.E", "for A, B, C in D"),
        seen_by="test_looks.py::test_a_pair_that_was_one_sided_at_first_has_the_interval_of_the_looks_after_it",
    ),
    Mutant(
        name="those that cannot be the best enter the chances of those that may",
        where="analysis/shrinkage:add_p_best",
        change=Change("A = F(B, C)", "A = F(B)"),
        seen_by="test_shrinkage.py::test_an_outlier_below_has_no_part_in_the_chances_of_those_that_may_be_best",
    ),
    Mutant(
        name="a covariance of few prompts is not steadied",
        where="analysis/shrinkage:_estimate_chances",
        change=Change("A @ F(B, C) @ D", "A @ B @ D"),
        seen_by="test_shrinkage.py::test_few_prompts_leave_an_improbable_certainty_open",
    ),
    Mutant(
        name="equal answers are given a position",
        where="ratings/games:make_games",
        change=Change("A & ~B", "A"),
        seen_by="test_bradley_terry.py::test_who_was_shown_first_is_known_of_different_answers_alone",
    ),
    Mutant(
        name="a judge is paid for equal answers",
        where="experiments/judge_run:JudgeRun.pays_for_equal_answers",
        change=Change("A > 0", "A < 0"),
        seen_by="test_equal_answers.py::test_equal_answers_are_refused_before_a_judge_is_paid",
    ),
    # Conclusions
    Mutant(
        name="entrants with the same answers are level",
        where="analysis/conclusions/tournament_conclusion:conclude",
        change=Change('"same" in A', "False"),
        seen_by="test_conclusions.py::test_entrants_with_the_answers_of_the_first_are_never_level_with_it",
    ),
    Mutant(
        name="a sweep's gap is to the last",
        where="analysis/conclusions/sweep_conclusion:find_job_lead",
        change=Change("A[0] - A[1]", "A[0] - A[-1]"),
        seen_by="test_sweep_conclusions.py::test_the_gap_is_to_the_second_and_not_to_the_last",
    ),
    Mutant(
        name="an unchecked judge counts as passed",
        where="analysis/conclusions/tournament_conclusion:conclude",
        change=Change("not A and B not in C", "False"),
        seen_by="test_acceptance.py::test_a_judge_of_whom_nothing_is_known_does_not_make_a_leader",
    ),
    Mutant(
        name="flips without positions are checks enough",
        where="analysis/conclusions/tournament_conclusion:is_measured",
        change=Change("A <= B", "A & B"),
        seen_by="test_conclusions.py::test_a_judge_is_checked_where_flips_and_first_shown_have_a_value",
    ),
    Mutant(
        name="a check that failed stands against no lead",
        where="analysis/conclusions/tournament_conclusion:failed_check_reasons",
        change=Change("A.blocks(LEADS)", "False"),
        seen_by="test_checks.py::test_a_check_that_is_added_in_one_file_is_shown_everywhere",
    ),
    Mutant(
        name="a judge that compares nothing has a result",
        where="analysis/conclusions/tournament_conclusion:no_result_reasons",
        change=Change("A.definition.B and A.state == FAILED", "False"),
        seen_by="test_check_worlds.py::test_a_judge_with_one_verdict_has_no_result",
    ),
    Mutant(
        name="a reason goes before a test that does not decide",
        where="analysis/conclusions/tournament_conclusion:conclude",
        change=Change(
            'if A & {*B}: C = "undecided"\nelse: ...',
            'if {*B} >= A and A: C = "undecided"\nelse: ...',
        ),
        seen_by="test_conclusions.py::test_more_doubt_never_says_more",
    ),
    Mutant(
        name="a judge of words is a judge of quality",
        where="analysis/conclusions/tournament_conclusion:conclude",
        change=Change(
            'A.kind == "words"', 'A.kind == "words" and B', given='"same" in B'
        ),
        seen_by="test_conclusions.py::test_a_state_has_one_sentence",
    ),
    Mutant(
        name="few prompts rank",
        where="analysis/conclusions/tournament_conclusion:conclude",
        change=Change("A is None or A < B", "A is None or A < 2"),
        seen_by="test_conclusions.py::test_a_state_has_one_sentence",
    ),
    Mutant(
        name="a stratum of a few prompts is a reversal",
        where="analysis/stratum_reversals:rivals_ahead",
        change=Change("A is None or B < C", "A is None or B < 2"),
        seen_by="test_strata.py::test_a_reversal_on_fewer_than_20_prompts_is_not_tested",
    ),
    Mutant(
        name="an invalid verdict of a gate is a tie",
        where="analysis/noninferiority:point_range",
        change=Change("A if B is None else B", "0.5 if B is None else B"),
        seen_by="test_gate.py::test_one_invalid_order_of_two_leaves_half_a_point_open",
    ),
    Mutant(
        name="a gate leaves prompts out that its candidate has not answered",
        where="experiments/gate_measurement:GateMeasurement.score_slots",
        change=Change("A[B] = C if D else None", "pass"),
        seen_by="test_gate.py::test_answers_that_a_candidate_does_not_give_are_not_left_out",
    ),
    Mutant(
        name="a gate passes without a control",
        where="analysis/checks/control_check:GATE_CHECK",
        change=Change("(A, B, NOT_DONE)", "(A, B)"),
        seen_by="test_gate.py::test_a_pass_takes_a_control_that_the_judge_passed",
    ),
    Mutant(
        name="a flip hides nothing in a gate",
        where="analysis/noninferiority:_count_least_points",
        change=Change("A - B * (max(C) - min(C))", "A"),
        seen_by="test_gate.py::test_orders_that_disagree_count_as_much_as_the_margin_leaves",
    ),
    Mutant(
        name="an empty answer of a gate's candidate counts as the judge says",
        where="experiments/gate_measurement:GateMeasurement.score_slots",
        change=Change("dataclasses.replace(A, is_lost=True)", "A"),
        seen_by="test_gate.py::test_an_empty_answer_is_lost_whatever_the_judge_says",
    ),
    Mutant(
        name="the control of a gate is judged in one order",
        where="data/pairing:choose_orders",
        change=Change("A or B or C", "A or B"),
        seen_by="test_degrading.py::test_a_control_is_judged_in_both_orders_once",
    ),
    Mutant(
        name="a gate passes where one dimension does",
        where="analysis/noninferiority:decide_gate",
        change=Change("all", "any"),
        seen_by="test_gate.py::test_every_dimension_has_to_pass_and_one_suffices_to_fail",
    ),
    Mutant(
        name="the points of a bias are doubled",
        where="report/sentences/check_sentences:effect_to_points",
        change=Change("400.0", "800.0"),
        seen_by="test_audit.py::test_a_bias_in_points_is_the_difference_of_ratings_that_moves_a_share_as_far",
    ),
    Mutant(
        name="a word for no verdict is a tie",
        where="data/battle_row_parser:list_winner_words",
        change=Change("A and B[A]", 'B[A or "tie"]'),
        seen_by="test_battles.py::test_a_files_own_words_for_winners_are_read_as_they_are_said_to_mean",
    ),
    Mutant(
        name="A and B are taken for the sides of columns that end so",
        where="data/winner_words:_split_name",
        change=Change('A - {"a", "b"}', "A"),
        seen_by="test_battles.py::test_a_word_that_names_no_column_is_left_to_the_user",
    ),
    Mutant(
        name="a small file may unpack without end",
        where="files:check_unpacked",
        change=Change("A > B", "False"),
        seen_by="test_limits.py::test_a_bomb_of_three_gigabytes_ends_in_one_line",
    ),
    Mutant(
        name="characters that reorder a page reach it as they are",
        where="report/page:_make_printable",
        change=Change("A if B else C", "C"),
        seen_by="test_battles.py::test_on_console_and_page_no_name_reorders_what_is_beside_it",
    ),
    Mutant(
        name="an imported row is not looked at field by field",
        where="store/admin:_parse_exported_row",
        change=Change("A.validate_json(B, strict=True)", "A.validate_json(B)"),
        seen_by="test_store_actions.py::test_a_row_that_is_no_exported_answer_is_named_and_nothing_is_brought_in",
    ),
    Mutant(
        name="an error of ours is hidden by the line that it becomes",
        where="files:report_read_errors.read_or_raise",
        change=Change("raise A from B", "raise A from None"),
        seen_by="test_files.py::test_what_a_reader_has_not_looked_for_is_one_line_that_keeps_its_cause",
    ),
    # Files of answers: a wrong join is worse than none
    Mutant(
        name="of two different answers to one prompt the first is taken",
        where="data/answer_joins:AnswerSet.find_answer",
        change=Change("(A.B, A.C) != (D.B, D.C)", "False"),
        seen_by="test_joining.py::test_what_cannot_be_joined_stops",
    ),
    Mutant(
        name="of two references to one prompt the first is taken",
        where="data/answer_joins:_find_reference",
        change=Change("F(str(A)) != F(str(B))", "False"),
        seen_by="test_joining.py::test_what_cannot_be_joined_stops",
    ),
    Mutant(
        name="an id that stands for two prompts joins one of them",
        where="data/answer_joins:_collect_prompts",
        change=Change("A is None and len(B) > 1", "False"),
        seen_by="test_joining.py::test_what_cannot_be_joined_stops",
    ),
    Mutant(
        name="answers to no prompt of the bank go without a word",
        where="data/answer_joins:JoinedAnswers._warn_of_oddities",
        change=Change(
            "if A: ...",
            "if False: ...",
            given="A = [B for B in C if D and id(B) not in E]",
        ),
        seen_by="test_joining.py::test_with_a_bank_its_rows_are_the_prompts_and_strays_are_named",
    ),
    Mutant(
        name="an empty answer is a failed request",
        where="data/answer_joins:AnswerSet.find_answer",
        change=Change("A.text is not None and B and C", "A.text and B and C"),
        seen_by="test_joining.py::test_two_files_are_joined_by_the_text_of_their_prompts",
    ),
    Mutant(
        name="what a gate's candidate did not answer is left out",
        where="experiments/prompt_source:PromptSource.load_all",
        change=Change("[A for A in B.prompts if C]", "list(B.shared)"),
        seen_by="test_own_answers.py::test_a_gate_counts_what_the_candidate_lacks_and_the_baseline_has",
    ),
    # Weights & Biases: one run a job
    Mutant(
        name="another K in the folder goes on with the run of the first",
        where="runs/manifest:_run_id",
        change=Change('f"{A}-{F(B)[:8]}"', 'f"{A}-{F(sorted(B))[:8]}"'),
        seen_by="test_tracked_identity.py::test_an_id_is_that_of_the_folder_and_of_the_settings_that_matter",
    ),
    Mutant(
        name="a sweep that is continued has another group",
        where="launching/hydra_callback:_choose_group",
        change=Change("(A := F(B))", "(A := F(B)) and not B"),
        seen_by="test_tracked_identity.py::test_a_run_keeps_the_token_of_its_folder_and_its_id_goes_to_the_tracker",
    ),
    # Studies: who judges, and what it would cost
    Mutant(
        name="the prices of a run without a judge are those of single messages",
        where="experiments/judge_choice:require_judge",
        change=Change("A.dollars", "2 * A.dollars"),
        seen_by="test_studies.py::test_without_a_judge_a_run_says_what_each_would_cost_and_stops",
    ),
    Mutant(
        name="words that are counted give a headline",
        where="report/artifacts:measure_lead",
        change=Change("A.B and A.B.C.D", "not A"),
        seen_by="test_studies.py::test_counting_words_is_a_baseline_that_finds_nothing",
    ),
    Mutant(
        name="own prompts are judged by the physician of the medical study",
        where="conf/study/own.yaml",
        change=Text(
            "override /rubric: [preference]", "override /rubric: [clinical_utility]"
        ),
        seen_by="test_studies.py::test_own_prompts_are_judged_by_no_physician",
    ),
    # Draws
    Mutant(
        name="more draws buy what more prompts do",
        where="analysis/variance:Variance.of_mean",
        change=Change("(A + B / C) / D", "(A + B) / (C * D)"),
        seen_by="test_variance.py::test_prompts_buy_more_than_draws_and_draws_alone_end_at_a_floor",
    ),
    Mutant(
        name="the judge's noise counts as that of draws",
        where="analysis/variance:split_variance",
        change=Change("A - B / 2.0", "A"),
        seen_by="test_variance.py::test_a_worked_example",
    ),
    Mutant(
        name="draws are prompts to the errors of a rating",
        where="data/battles:_to_battle",
        change=Change("A.prompt_id", 'f"{A.prompt_id} {A.draw_a} {A.draw_b}"'),
        seen_by="test_draws.py::test_more_draws_later_pay_for_the_new_ones_alone",
    ),
    Mutant(
        name="who does not vary is paid for every draw",
        where="pipeline/generating:_list_askable",
        change=Change("[A for A in B if A.C < D]", "list(B)"),
        seen_by="test_draws.py::test_only_entrants_that_vary_are_asked_again",
    ),
    Mutant(
        name="two judges are compared across draws",
        where="analysis/agreement:comparison_codes",
        change=Change("((A * B * B + C) * D + E) * D + F", "(A * B * B + C) * D * D"),
        seen_by="test_draws.py::test_two_judges_are_compared_on_the_same_draw",
    ),
    Mutant(
        name="k draws are taken with replacement",
        where="analysis/mean_scores:_chance_that_all_are_right",
        change=Change(
            "np.maximum(A - B, 0.0), C - B", "np.maximum(A + 0 * B, 0.0), C + 0 * B"
        ),
        seen_by="test_scores.py::test_pass_rates_by_hand",
    ),
    Mutant(
        name="an item with fewer draws than k has a pass rate",
        where="analysis/mean_scores:_refuse_few_draws",
        change=Change("A < B", "A < 0"),
        seen_by="test_scores.py::test_pass_rates_need_k_draws_of_zeros_and_ones",
    ),
    # What leaves this machine
    Mutant(
        name="a table of verdicts goes to a tracker without texts",
        where="trackers/__init__:GuardedRun.log",
        change=Change("for A, B in C.items() if D not in E", "for A, B in C.items()"),
        seen_by="test_own_tracker.py::test_a_tracker_without_texts_is_given_none",
    ),
    Mutant(
        name="files with texts go to a tracker without them",
        where="trackers/__init__:GuardedRun.log_files",
        change=Change("A if self.B else C", "A"),
        seen_by="test_own_tracker.py::test_a_tracker_without_texts_is_given_none",
    ),
    Mutant(
        name="copies of what is uploaded stay in the user's home",
        where="trackers/wandb:WandbTracker.open_here",
        change=Change('("WANDB_DATA_DIR", "WANDB_CACHE_DIR")', '("WANDB_CACHE_DIR",)'),
        seen_by="test_trackers.py::test_copies_for_the_upload_are_in_the_run_folder_and_not_in_the_home",
    ),
    Mutant(
        name="a URL with a password is a setting like others",
        where="launching/composing:_refuse_passwords",
        change=Change("isinstance(A, str) and B", "isinstance(A, bytes)"),
        seen_by="test_trackers.py::test_a_word_for_the_mode_or_a_password_is_refused_in_a_line_before_anything",
    ),
    Mutant(
        name="a tracker that fails ends the run",
        where="trackers/__init__:GuardedRun._survive_errors",
        change=Change("except Exception as A: ...", "except ArithmeticError as A: ..."),
        seen_by="test_own_tracker.py::test_a_tracker_that_fails_is_a_warning_and_the_run_goes_on",
    ),
    # Conversations: a turn is paid once, and no text opens a block of the judge's
    Mutant(
        name="a turn is asked without the answers before it",
        where="data/conversations:insert_answers",
        change=Change("A += B[C.index(D)]", "pass"),
        seen_by="test_turns.py::test_each_turn_is_asked_after_the_entrants_own_answers",
    ),
    Mutant(
        name="a conversation that lacks a turn is judged as far as it goes",
        where="pipeline/conversing:converse",
        change=Change("for A in B if not F(A, C)", "for A in B if C[A.slot]"),
        seen_by="test_turns.py::test_a_conversation_that_lacks_a_turn_is_dropped_whole",
    ),
    Mutant(
        name="an entrant of texts is asked a conversation",
        where="pipeline/conversing:list_first_turns",
        change=Change("not A.turns", "False"),
        seen_by="test_turns.py::test_an_entrant_from_elsewhere_is_asked_texts_and_no_conversation",
    ),
    Mutant(
        name="a text opens a turn",
        where="data/conversations:escape_tags",
        change=Change("A.sub", "lambda _, text: text"),
        seen_by="test_conversations.py::test_four_hundred_payloads_in_an_answer_open_and_close_nothing",
    ),
    Mutant(
        name="a plain answer stands beside a conversation as it is",
        where="data/pairing:_compare_on_prompt",
        change=Change("not A or None in B", "not A"),
        seen_by="test_shown.py::test_no_plain_answer_can_pretend_to_be_a_conversation",
    ),
    Mutant(
        name="style counts what the user says",
        where="data/conversations:own_words",
        change=Change("not A.B", "True"),
        seen_by="test_shown.py::test_style_counts_an_entrants_own_words_alone",
    ),
    # Later fields: what is stored stays found, and a draw is another answer
    Mutant(
        name="a field that came later is written where it says nothing",
        where="records:Record.to_dict",
        change=Change("A.B not in self.C or D", "True"),
        seen_by="test_messages.py::test_a_row_without_later_fields_has_the_columns_it_always_had",
    ),
    Mutant(
        name="a second draw takes the first one's answer",
        where="pipeline/generating:answer_key",
        change=Change("A + [B] * (B > 0)", "A"),
        seen_by="test_turns.py::test_two_draws_of_one_request_are_two_answers",
    ),
    Mutant(
        name="every draw in one order shows the same entrant first",
        where="data/pairing:choose_orders",
        change=Change("A + max(B, C)", "A + B + C"),
        seen_by="test_messages.py::test_law_draws_that_are_judged_in_one_order_take_turns_in_being_shown_first",
    ),
    # People's labels: whose they are, and what they say of a judge
    Mutant(
        name="an id does not say which answer was shown first",
        where="data/labels:Key.label_id",
        change=Change("self.F(A, B, C, D)", "self.F(A, B, *sorted([C, D]))"),
        seen_by="test_people.py::test_an_id_names_both_the_comparison_and_the_answer_shown_first_to_who_has_the_key",
    ),
    Mutant(
        name="labels of another run's page are read",
        where="data/labels:read_labels",
        change=Change("A.B != C.B", "not A.B"),
        seen_by="test_people.py::test_labels_of_other_pages_and_comparisons_are_refused",
    ),
    Mutant(
        name="a contradicted lead is confirmed",
        where="analysis/conclusions/labels_conclusion:conclude_lead",
        change=Change('"confirmed" if A else "contradicted"', '"confirmed"'),
        seen_by="test_people.py::test_a_lead_is_confirmed_contradicted_or_open",
    ),
    Mutant(
        name="labels that agree by chance make claims",
        where="experiments/label_evidence:LabelEvidence.agreement",
        change=Change("A is None or A <= 0", "A is None"),
        seen_by="test_people.py::test_annotators_who_agree_no_more_than_by_chance_are_refused",
    ),
    Mutant(
        name="any file that a manifest names as a rubric is put on the page",
        where="experiments/label_evidence:LabelledRun.read_rubric",
        change=Change("A.is_file() and B", "A.is_file()"),
        seen_by="test_people.py::test_a_changed_rubric_is_not_shown_as_what_the_judge_went_by",
    ),
    # Logs and trajectories: nobody is compared on another question, or by what is no answer
    Mutant(
        name="logs of two tasks are compared sample by sample",
        where="data/recorded_work:matches_prompt",
        change=Change("A[: len(B)] == B", "True"),
        seen_by="test_trajectories.py::test_logs_of_two_tasks_are_not_paired",
    ),
    Mutant(
        name="a second epoch takes the place of the first",
        where="data/answers/inspect_ai:_read_fields",
        change=Change("A - 1", "0"),
        seen_by="test_trajectories.py::test_an_epoch_is_a_draw",
    ),
    Mutant(
        name="a sample that ended in an error is judged",
        where="data/inspect_log:Sample.is_void",
        change=Change('A.get("error") or B', "B"),
        seen_by="test_trajectories.py::test_a_sample_that_ended_in_an_error_is_missing",
    ),
    Mutant(
        name="what an agent puts before the question is part of its answer",
        where="data/recorded_work:split_question",
        change=Change('A.role == "assistant"', 'A.role != "user"'),
        seen_by="test_trajectories.py::test_rows_of_messages_are_read_alike",
    ),
    Mutant(
        name="a part of a log is unpacked whatever its size",
        where="data/inspect_log:_read_part",
        change=Change("A > B", "False"),
        seen_by="test_inspect_log.py::test_a_part_that_unpacks_to_more_than_a_log_has_is_not_unpacked",
    ),
    # Verdicts from probabilities
    Mutant(
        name="a share is that of the response shown first, in both orders",
        where="data/battles:_mean_share",
        change=Change("1.0 - A if B else A", "A"),
        seen_by="test_probabilities.py::test_a_battles_score_is_the_mean_of_both_orders_and_labels_stay_beside_it",
    ),
    Mutant(
        name="labels with a tenth of the probability make a verdict",
        where="api/first_token:_MIN_NAMES_MASS",
        change=Change("0.5", "0.1"),
        seen_by="test_probabilities.py::test_less_than_half_of_the_probability_on_the_labels_is_no_verdict",
    ),
    Mutant(
        name="all queries go to a model that thinks where one token is asked for",
        where="pipeline/watching:ReplyGuard._check_probabilities",
        change=Change("A.get(B.stop_reason)", "A.get(B.key)"),
        seen_by="test_probabilities.py::test_a_model_that_gives_no_probabilities_is_refused_at_its_first_answer",
    ),
    # Scores of single answers
    Mutant(
        name="the mean of fewer criteria is a score",
        where="data/single_answers:list_item_scores",
        change=Change("A == B", "True"),
        seen_by="test_scored_tournament.py::test_answers_whose_criteria_differ_have_no_score",
    ),
    Mutant(
        name="equal scores are equal within a margin of points",
        where="analysis/conclusions/tournament_conclusion:_test_equivalence",
        change=Change('A == "points"', "True"),
        seen_by="test_scored_tournament.py::test_equal_scores_are_no_proof_that_entrants_are_equal",
    ),
    Mutant(
        name="scores are paid for where the cap does not hold the pairs as well",
        where="experiments/tournament:Tournament.conclude",
        change=Change("not self.is_single or self.scoring", "not self.is_single"),
        seen_by="test_scored_tournament.py::test_a_budget_that_holds_one_of_both_pays_for_neither",
    ),
]
