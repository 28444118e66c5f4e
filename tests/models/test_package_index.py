"""Which package index is asked: the one that pip or uv is set up with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swiftsure.models import package_index

HOME_CONFIG = (
    "[global]\nindex-url = https://config.example/simple/\nextra-index-url =\n  https://one.example/simple\n  file:///opt/wheels\n"
)


@pytest.mark.parametrize(
    ("env", "urls"),
    [
        ({}, ["https://config.example/simple", "https://one.example/simple"]),
        ({"PIP_INDEX_URL": "https://env.example/simple/"}, ["https://env.example/simple", "https://one.example/simple"]),
        ({"UV_DEFAULT_INDEX": "mine=https://uv.example/simple"}, ["https://uv.example/simple", "https://one.example/simple"]),
        ({"UV_INDEX_URL": "https://old.example/simple?a=b"}, ["https://old.example/simple?a=b", "https://one.example/simple"]),
        ({"PIP_CONFIG_FILE": os.devnull}, ["https://pypi.org/simple"]),
        (
            {"PIP_CONFIG_FILE": os.devnull, "UV_INDEX": "https://a.example https://b.example"},
            ["https://pypi.org/simple", "https://a.example", "https://b.example"],
        ),
    ],
)
def test_index_is_the_one_that_pip_or_uv_is_set_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], urls: list[str]
) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text(HOME_CONFIG)
    monkeypatch.setattr(package_index, "_pip_files", lambda env: [] if env.get("PIP_CONFIG_FILE") else [tmp_path / "pip" / "pip.conf"])
    monkeypatch.setattr(package_index, "_uv_config", lambda env: {})
    assert package_index.index_urls(env) == urls


def test_uv_configuration_is_read(tmp_path: Path) -> None:
    config = tmp_path / "uv.toml"
    env = {"UV_CONFIG_FILE": str(config), "PIP_CONFIG_FILE": os.devnull, "XDG_CONFIG_HOME": str(tmp_path / "none")}
    config.write_text('[[index]]\nurl = "https://uv.example/simple"\ndefault = true\n')
    assert package_index.index_urls(env)[0] == "https://uv.example/simple"
    config.write_text('index-url = "https://old.example/simple"\n')
    assert package_index.index_urls(env)[0] == "https://old.example/simple"
    config.write_text("not = [toml")
    assert package_index.index_urls(env)[0] == "https://pypi.org/simple"
