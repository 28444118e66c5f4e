"""The example agent as a reader would run it: sub-tasks to the small model of a server with two, over one WebSocket."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from serve.conftest import running_server
from swiftsure.serve.settings import ModelSettings, ServeSettings
from tiny_models import TinyModel, TinySpec

AGENT = Path(__file__).parents[2] / "examples" / "server" / "sub_tasks.py"
PARAGRAPHS = 11


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> ServeSettings:
    folder = tmp_path_factory.mktemp("both")
    models = []
    for name, mode, seed in (("big", "exact", 1), ("small", "default", 2)):
        path = TinyModel(TinySpec(context=2048, seed=seed)).write_gguf(folder / f"{name}.gguf")
        models.append(ModelSettings(name=name, source=str(path), mode=mode, load={"threads": 1, "cache": False}))
    return ServeSettings(models=tuple(models), port=0, drain_s=1.0)


def metric(url: str, name: str, **labels: str) -> float:
    """Summed over all samples that have these labels."""
    found = 0.0
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        if line.startswith(f"swiftsure_{name}{{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            found += float(line.rsplit(" ", 1)[1])
    return found


def run(url: str, *files: Path, small: str = "small") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(AGENT), "Who pays?", *map(str, files), "--url", f"{url}/v1", "--passage", "40", "--small", small]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


def test_small_model_reads_every_passage_and_big_one_answers_once(both: ServeSettings, tmp_path: Path) -> None:
    minutes = tmp_path / "minutes.txt"
    minutes.write_text("\n\n".join(f"Item {number}: the bridge of the year {1900 + number}." for number in range(PARAGRAPHS)))
    with running_server(both) as server:
        done = run(server.url, minutes)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
        found = re.search(rf"^{PARAGRAPHS} passages: (\d+) help, (\d+) were cut off$", done.stderr, re.M)
        assert found is not None, done.stderr
        assert int(found[1]) + int(found[2]) <= PARAGRAPHS
        assert re.search(r"^small: [1-9]\d* tokens in .* s; big: [1-9]\d* tokens in .* s$", done.stderr, re.M)
        assert metric(server.url, "requests_total", model="small", api="responses") == PARAGRAPHS
        assert metric(server.url, "requests_total", model="big", api="chat_completions") == 1
        assert metric(server.url, "requests_total", model="big") == 1
        assert {model.facts.mode for model in server.service.models} == {"exact", "default"}


def test_a_model_that_is_not_served_ends_the_agent_with_the_reason(both: ServeSettings, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One passage.")
    with running_server(both) as server:
        done = run(server.url, text, small="smaller")
    assert done.returncode == 1
    assert "no model 'smaller' is served here; served: big, small" in done.stderr
