"""Whatever the OpenAPI page allows, and much that it does not, never makes the server fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from serve.conftest import RunningServer


def test_schemathesis_finds_no_server_error(server: RunningServer, tmp_path: Path) -> None:
    command = (
        "import sys; from schemathesis.cli import schemathesis; sys.argv[0] = 'schemathesis'; schemathesis()",
        *("run", f"{server.url}/openapi.json", "--checks", "not_a_server_error", "--phases", "fuzzing", "--max-examples", "12"),
        *("--seed", "1", "--no-color", "--suppress-health-check", "all", "--request-timeout", "30"),
    )
    result = subprocess.run([sys.executable, "-c", *command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert "/v1/chat/completions" in result.stdout
    assert "passed" in result.stdout
