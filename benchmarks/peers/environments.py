"""A Python environment for each peer: given, found in the cache folder, or built there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.contract import Environment
from benchmarks.peers.process import PeerError


def python_for(name: str, environment: Environment | None, given: Mapping[str, Path], *, cache: Path) -> Path:
    """The Python that has the peer. Builds an environment under ``cache`` on first use, which can take minutes."""
    if name in given:
        path = given[name]
        python = path / "bin" / "python" if path.is_dir() else path
        if not python.is_file():
            raise PeerError(f"{name}: no Python at {python}")
        return python.absolute()
    if environment is None:
        return Path(sys.executable)
    folder = cache / f"{name}-{_key(environment)}"
    python = folder / "bin" / "python"
    done = folder / "complete"
    if not done.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"building {', '.join(environment.requirements)} in {folder} (minutes)", file=sys.stderr)
        _run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(python), "-m", "pip"]
        _run([*pip, "install", "--quiet", *environment.requirements], {**os.environ, **environment.build})
        if environment.remove:
            _run([*pip, "uninstall", "--quiet", "--yes", *environment.remove])
        done.touch()
    return python


def _key(environment: Environment) -> str:
    """Changes with pins, build settings and Python version, so that an old environment is never mistaken for the wanted one."""
    facts = [sys.version_info[:2], environment.requirements, sorted(environment.build.items()), environment.remove]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def _run(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise PeerError(f"{' '.join(command)} ended with status {done.returncode}:\n{tail}")
