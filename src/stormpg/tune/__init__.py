"""Tuning on Optuna: spaces, objectives, packs of trials of one shape, the search, its report."""
