"""The theory on problems whose gradient is known exactly. Everything here is meant for float64.

Built on `engine` and `studies`. Called by the command `theory`.
"""
