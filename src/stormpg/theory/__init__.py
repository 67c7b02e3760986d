"""The paper's theory, checked on problems whose gradient is known exactly. All modules expect float64.

Built on `engine` and `studies`. Used by the command `theory`.
"""
