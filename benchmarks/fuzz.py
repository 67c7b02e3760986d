"""Ten thousand broken configuration and saved files: no traceback, no hang, no file outside the folder.

python -m benchmarks.fuzz [CASES]
"""

import sys

import pytest
from hypothesis import HealthCheck, settings


def main() -> None:
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    many = settings(max_examples=cases // 4, deadline=None, suppress_health_check=list(HealthCheck))
    settings.register_profile("many", many)
    import tests.test_hostile as hostile

    for name in (
        "test_config_with_anything_in_it",
        "test_any_bytes_for_a_config",
        "test_any_byte_of_a_saved_policy",
        "test_any_toml",
    ):
        test = getattr(hostile, name)
        test._hypothesis_internal_use_settings = many
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", hostile.__file__, "-k", "anything or any_"]))


if __name__ == "__main__":
    main()
