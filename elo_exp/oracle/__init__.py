"""Policy values from cheap scores: the estimators' arithmetic, its gates, and what is written and drawn of it."""
