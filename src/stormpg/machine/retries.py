"""How often failed work is retried, on Ray and elsewhere."""

CONNECTIONS = 3  # attempts to connect to a Ray cluster
ROLLOUTS = 3  # retries of a part of a batch after the Ray actor that played it died
CRASHES = 5  # crashes of a process or a machine after which the part of a study that it worked on counts as failed
PARTS = 2  # attempts for a part of a study that raises an error
