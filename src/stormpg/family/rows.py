"""The algorithms of the comparison, in the order of its tables."""

from stormpg.algorithms import DEFAULT

STORM = "storm-pg"
PAPER = ("gpomdp", "svrpg", "srvr-pg", STORM)
SUCCESSORS = (
    *("is-mbpg", "is-mbpg-star", "ha-mbpg", "bgpo", "vr-bgpo"),
    *("hapg", "sharp", "harpg", "n-harpg", "n-pg-igt"),
    *("page-pg", "hspga", "prox-hspga", "tsivr-pg"),
    *("def-storm-pg", "def-svrpg", "def-srvr-pg", "def-page-pg"),
    *("storm-plus", "meta-storm", "mars-pg", "rt-pg", "pois", "srvr-npg", "storm-npg"),
)
ROWS = (*PAPER, *SUCCESSORS, DEFAULT)
REFERENCES = (STORM, DEFAULT)  # what the others are compared with
