"""Settings files: values survive a write and a read unchanged."""

import pytest

from stormpg.runs.options import read_toml, write_toml


@pytest.mark.parametrize("name", ["plain", 'with "quotes"', "C:\\new\\runs", "two\nlines", "ξ = 1 # no comment"])
def test_settings_come_back(tmp_path, name):
    """Any text is preserved, and floats are preserved to the last bit."""
    settings = {"env": name, "seeds": 3, "eta": 1e-05, "alpha": 0.1 + 0.2, "normalise": True, "hidden": [64, 32]}
    write_toml(tmp_path / "settings.toml", settings)
    assert read_toml(tmp_path / "settings.toml") == settings
