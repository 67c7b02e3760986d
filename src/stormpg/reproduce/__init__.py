"""The paper's experiments (§7): its claims as data, the quantities they are about, robustness, variance, and the reproduction.

Built on `studies`. Used by the command `reproduce`.
"""
