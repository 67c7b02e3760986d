"""Tuning with Optuna: search spaces, objectives, packs of trials, successive halving, the search, its storage and its results.

Built on `studies`. Called by the command `tune`.
"""
