"""Policy values from cheap scores: data, arithmetic of the estimators, gates and results."""
