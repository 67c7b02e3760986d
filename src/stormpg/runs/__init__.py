"""Training runs and their output: training in blocks, the table, the result, the run folder, checkpoints and logs.

Built on `engine`. Used by `train`, `agent`, `studies` and the command line.
"""
