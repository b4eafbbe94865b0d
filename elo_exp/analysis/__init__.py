"""What battles say: comparisons, win rates, agreement, transitivity and judge bias."""
