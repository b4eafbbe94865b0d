"""Pure functions from battles and verdicts to ratings, intervals, comparisons and diagnoses."""
