"""Where what commands print is kept: beside the report, a folder for each side and in it one for each run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

FOLDER = "logs"
_RUN = re.compile(r"[0-9]{5}-.*")


def log_folders(report: Path) -> tuple[Path, Path]:
    """The folders of baseline and candidate. Runs of an earlier verification in the same report folder are removed, nothing else is."""
    folders = (report / FOLDER / "baseline", report / FOLDER / "candidate")
    for folder in folders:
        for run in folder.iterdir() if folder.is_dir() else ():
            if _RUN.fullmatch(run.name) and run.is_dir() and not run.is_symlink():
                shutil.rmtree(run, ignore_errors=True)
    return folders
