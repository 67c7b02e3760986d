"""Tuning on Optuna: spaces, objectives, packs of trials of one shape, halving, the search, its storage and its outcome.

Built on `studies`. Called by the command `tune`.
"""
