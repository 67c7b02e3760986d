"""What people look at: the page, figures, tables, and the terminal.

It shows data that `studies`, `theory`, `tune` and `bench` have made, and computes nothing.
"""
