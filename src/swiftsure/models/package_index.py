"""Which package index to ask, and whom to trust: what pip or uv is set up with on this machine.

Read in the order in which those tools let one setting override another: environment first, then configuration files.
"""

from __future__ import annotations

import configparser
import os
import ssl
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

DEFAULT_INDEX = "https://pypi.org/simple"


def index_urls(env: Mapping[str, str] = os.environ) -> list[str]:
    """Base addresses of the simple index, main one first. Only http and https: others are left to pip itself."""
    config = _pip_config(env)
    uv = _uv_config(env)
    main = (
        env.get("PIP_INDEX_URL")
        or env.get("UV_DEFAULT_INDEX")
        or env.get("UV_INDEX_URL")
        or config.get("index-url")
        or uv.get("index-url")
        or DEFAULT_INDEX
    )
    extra = [
        *env.get("PIP_EXTRA_INDEX_URL", "").split(),
        *env.get("UV_INDEX", "").split(),
        *env.get("UV_EXTRA_INDEX_URL", "").split(),
        *config.get("extra-index-url", "").split(),
    ]
    urls = [_without_name(url).rstrip("/") for url in (main, *extra)]
    return [url for url in dict.fromkeys(urls) if urlsplit(url).scheme in ("http", "https")]


def trust(env: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """Certificates as pip would take them, else the system's and the interpreter's own."""
    rest = (env.get(name) for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"))
    for name in (env.get("PIP_CERT"), _pip_config(env).get("cert"), *rest):
        if name and Path(name).is_file():
            return ssl.create_default_context(cafile=name)
    return ssl.create_default_context()


def redact(url: str) -> str:
    """The address without user and password, fit for a message."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _without_name(url: str) -> str:
    """uv lets an index be written ``name=https://...``."""
    name, sep, rest = url.partition("=")
    return rest if sep and "/" not in name else url


def _pip_config(env: Mapping[str, str]) -> dict[str, str]:
    """Options of pip's ``[global]`` and ``[download]`` sections; later files override earlier ones."""
    found: dict[str, str] = {}
    for path in _pip_files(env):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip itself would refuse the file; asking the default index is still right
        for section in ("global", "download"):
            if parser.has_section(section):
                found |= dict(parser.items(section))
    return found


def _pip_files(env: Mapping[str, str]) -> Iterator[Path]:
    named = env.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    user = Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    for folder in reversed((env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield Path.home() / ".pip" / "pip.conf"
    yield user / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def _uv_config(env: Mapping[str, str]) -> dict[str, str]:
    user = Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    found: dict[str, str] = {}
    for path in (Path("/etc/uv/uv.toml"), user / "uv" / "uv.toml", Path(env.get("UV_CONFIG_FILE") or os.devnull)):
        try:
            config = tomllib.loads(path.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            continue
        pip = config.get("pip")
        for table in (pip if isinstance(pip, dict) else {}, config):
            if isinstance(table.get("index-url"), str):
                found["index-url"] = table["index-url"]
        for index in config.get("index", []):
            if isinstance(index, dict) and index.get("default") and isinstance(index.get("url"), str):
                found["index-url"] = index["url"]
    return found
