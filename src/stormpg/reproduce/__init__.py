"""The paper's experiments (§7): its claims as data, what they measure, robustness, variance, and the reproduction of all of it.

Built on `studies`. Called by the command `reproduce`.
"""
