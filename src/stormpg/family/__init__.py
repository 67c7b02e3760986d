"""The family of STORM-PG in one comparison: all successors on the same tasks, with the same budgets, seeds and protocols.

| module    | content                                                                            |
|-----------|------------------------------------------------------------------------------------|
| tasks     | the tasks, their budgets, and the returns between which scores are normalised      |
| rows      | the algorithms, in the order of the tables                                         |
| authors   | the settings that authors published                                                |
| cells     | the runs of one algorithm on one task                                              |
| scores    | scores, gains over a reference and tolerance of settings, with intervals           |
| claims    | what the authors claim, as inequalities                                            |
| suite     | everything together, and its report                                                |

Built on `studies`. Used by the command `compare --suite family`.
"""
