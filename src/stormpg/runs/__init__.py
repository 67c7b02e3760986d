"""A training run and what it leaves: training in blocks, the table, the result, its folder, checkpoints and logs.

Built on `engine`. Called by `train`, `agent`, `studies` and the command.
"""
