"""Pure functions from battles and leaderboards to comparisons, win rates, agreement and judge diagnostics."""
