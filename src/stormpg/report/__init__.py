"""Presentation of results: the HTML page, figures, tables and terminal output.

It shows the data of `studies`, `theory`, `tune` and `bench`, and computes nothing itself.
"""
