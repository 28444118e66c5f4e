"""``hf:`` names, through huggingface_hub itself and a hub on this machine.

Each request is made by a process of its own: the package reads HF_ENDPOINT and HF_HOME when it is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_hub import LocalHub, hub
from swiftsure.errors import ModelError, UsageError
from swiftsure.models.catalogue import resolve
from tiny_models import TinyModel, TinySpec

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

C1, C2 = "c0ffee" * 6 + "c0ff", "beef" * 10
BIG = hashlib.shake_256(b"one").digest(300_000)
SHA256 = hashlib.sha256(BIG).hexdigest()
SMALL = b"GGUF and too small to be stored apart"

PROGRAM = """
import json, sys
from swiftsure.errors import SwiftsureError
from swiftsure.models.catalogue import resolve, settle_licence
seen = []
try:
    if "licence" in sys.argv[2:]:
        licence = settle_licence(sys.argv[1])
        print(json.dumps(licence and [licence.name, licence.url]))
        sys.exit()
    f = resolve(sys.argv[1], offline="offline" in sys.argv[2:], progress=lambda done, total: seen.append((done, total)))
    print(json.dumps({"name": f.name, "path": str(f.path), "sha256": f.sha256, "source": f.source, "version": f.version,
                      "licence": f.licence, "files": f.file_sha256 and dict(f.file_sha256), "seen": seen,
                      "notes": f.notes}))
except SwiftsureError as e:
    print(json.dumps({"error": type(e).__name__, "message": str(e), "code": e.exit_code}))
"""


class World:
    """A hub, and processes that ask it."""

    def __init__(self, server: LocalHub, folder: Path) -> None:
        self.hub = server
        self.home, self.hf_home = folder / "home", folder / "hf"
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            "HF_ENDPOINT": server.url,
            "HF_HOME": str(self.hf_home),
            "SWIFTSURE_HOME": str(self.home),
            "HF_HUB_DISABLE_XET": "1",
            "PYTHONWARNINGS": "ignore",
        }

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", PROGRAM, *words], env=self.env | env, stdout=subprocess.PIPE, text=True)

    def ask(self, *words: str, **env: str) -> dict[str, Any]:
        process = self.start(*words, **env)
        answer: dict[str, Any] = json.loads(process.communicate(timeout=120)[0])
        return answer

    def refused(self, *words: str, **env: str) -> tuple[str, str]:
        answer = self.ask(*words, **env)
        assert "error" in answer, f"not refused: {answer}"
        assert answer["code"] == 2
        assert "\n" not in answer["message"]
        return answer["error"], answer["message"]

    def stored(self) -> list[str]:
        """Ranges that were asked of large files."""
        return [line.split()[2] for line in self.hub.log if line.startswith("GET /stored/")]

    def blobs(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in self.hf_home.glob("hub/models--*/blobs/*")}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with hub() as server:
        server.put("org/one", C1, {"model.gguf": BIG, "README.md": b"hello"}, card={"license": "mit"})
        yield World(server, tmp_path)


def test_a_file_is_fetched_pinned_and_then_used_offline(world: World) -> None:
    answer = world.ask("hf:org/one")
    assert (answer["name"], answer["sha256"], answer["source"], answer["version"]) == ("hf:org/one/model.gguf", SHA256, "hf:org/one", C1)
    assert answer["licence"] == "mit"
    assert Path(answer["path"]).read_bytes() == BIG
    assert answer["seen"][-1] == [len(BIG), len(BIG)]
    before = len(world.hub.log)
    for form in ("hf:org/one", "hf:org/one/model.gguf", f"hf:org/one@{C1}"):
        assert world.ask(form, "offline")["sha256"] == SHA256
        assert world.ask(form, HF_HUB_OFFLINE="1")["sha256"] == SHA256
    for form in ("hf:org/two", "hf:org/one/absent.gguf", "hf:org/one@v2"):
        kind, message = world.refused(form, "offline")
        assert (kind, "offline was asked for" in message) == ("ModelNotFoundError", True)
        assert "HF_HUB_OFFLINE is set" in world.refused(form, HF_HUB_OFFLINE="1")[1]
    assert len(world.hub.log) == before


def test_a_name_without_a_revision_says_which_branch_and_commit_it_came_to_mean(world: World) -> None:
    told = [f"hf:org/one names no revision: branch main is used, now commit {C1}; pin it with hf:org/one@{C1}"]
    assert world.ask("hf:org/one")["notes"] == told
    assert world.ask("hf:org/one", "offline")["notes"] == told
    assert world.ask(f"hf:org/one@{C1}")["notes"] == []


def test_the_licence_that_a_card_names_is_told_before_the_first_fetch_alone(world: World) -> None:
    assert world.ask("hf:org/one", "licence") == ["mit", "as hf:org/one says"]
    assert not world.stored()
    world.ask("hf:org/one")
    assert world.ask("hf:org/one", "licence") is None
    assert world.ask("hf:org/absent", "licence") is None  # the fetch itself says that there is none


def test_the_files_lie_in_the_hubs_own_cache_and_another_programs_are_used(world: World) -> None:
    program = "from huggingface_hub import hf_hub_download; print(hf_hub_download('org/one', 'model.gguf'))"
    ran = subprocess.run([sys.executable, "-c", program], env=world.env, capture_output=True, text=True, check=True)
    fetched = world.stored()
    assert world.ask("hf:org/one")["path"] == ran.stdout.strip()
    assert world.stored() == fetched


def test_a_commit_named_in_full_is_asked_about_once(world: World) -> None:
    world.ask(f"hf:org/one@{C1}")
    before = len(world.hub.log)
    assert world.ask(f"hf:org/one@{C1}")["sha256"] == SHA256
    assert len(world.hub.log) == before


def test_a_branch_is_followed_and_a_commit_stays(world: World) -> None:
    assert world.ask("hf:org/one")["version"] == C1
    world.hub.put("org/one", C2, {"model.gguf": BIG[::-1]})
    moved = world.ask("hf:org/one")
    assert (moved["version"], moved["sha256"]) == (C2, hashlib.sha256(BIG[::-1]).hexdigest())
    assert world.ask(f"hf:org/one@{C1}")["sha256"] == SHA256
    assert world.ask("hf:org/one", "offline")["version"] == C2


def test_a_connection_that_breaks_is_resumed(world: World) -> None:
    world.hub.cut_after = [100_000, 50_000]
    assert Path(world.ask("hf:org/one")["path"]).read_bytes() == BIG
    assert world.stored() == ["-", "bytes=100000-", "bytes=150000-"]


def test_a_process_that_is_ended_on_the_way_leaves_what_the_next_goes_on_from(world: World) -> None:
    world.hub.cut_after = [100_000] + [0] * 99
    process = world.start("hf:org/one")
    while len(world.stored()) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    world.hub.cut_after, tried = [], len(world.stored())
    assert Path(world.ask("hf:org/one")["path"]).read_bytes() == BIG
    assert world.stored()[tried:] == ["bytes=100000-"]
    assert world.blobs() == {SHA256: len(BIG)}


def test_processes_that_want_it_at_once_fetch_it_once(world: World) -> None:
    both = [world.start("hf:org/one") for _ in range(3)]
    assert {json.loads(process.communicate()[0])["sha256"] for process in both} == {SHA256}
    assert world.stored() == ["-"]


def test_other_bytes_than_the_hub_states_are_refused_and_not_kept(world: World) -> None:
    bad = BIG[:-1] + b"!"
    world.hub.put("org/bad", C1, {"model.gguf": bad})
    world.hub.claims[bad] = "0" * 64
    kind, message = world.refused("hf:org/bad")
    assert (kind, f"hf:org/bad: model.gguf: SHA-256 must be {'0' * 64} as the hub states, got " in message) == ("DigestError", True)
    assert world.blobs() == {}


def test_a_file_that_changed_under_the_same_commit_is_refused(world: World) -> None:
    world.ask("hf:org/one")
    world.hub.put("org/one", C1, {"model.gguf": BIG[::-1]})
    kind, message = world.refused("hf:org/one")
    assert (kind, f"which was {SHA256} under the same commit" in message) == ("DigestError", True)
    shutil.rmtree(world.hf_home)
    assert world.refused("hf:org/one")[0] == "DigestError", "what it was is known without the file"
    assert world.refused(f"hf:org/one@{C1}")[0] == "DigestError"


def test_a_small_file_that_changed_under_the_same_commit_is_refused(world: World) -> None:
    world.hub.put("org/small", C1, {"model.gguf": SMALL})
    world.ask("hf:org/small")
    shutil.rmtree(world.hf_home)
    world.hub.put("org/small", C1, {"model.gguf": SMALL[::-1]})
    kind, message = world.refused("hf:org/small")
    assert kind == "DigestError"
    assert f"model.gguf: SHA-256 was {hashlib.sha256(SMALL).hexdigest()} when it was first fetched, now it is" in message


def test_a_file_that_changed_here_is_refused_at_the_next_start(world: World) -> None:
    path = Path(world.ask("hf:org/one")["path"])
    path.resolve().write_bytes(BIG[:-1] + b"!")
    for words in (["hf:org/one"], ["hf:org/one", "offline"]):
        assert world.refused(*words)[0] == "DigestError"


def test_without_the_hub_what_is_cached_serves_and_says_so(world: World) -> None:
    world.ask("hf:org/one")
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    answer = world.ask("hf:org/one", **nowhere)
    assert (answer["sha256"], answer["source"]) == (SHA256, "hf:org/one (hub not reached: the commit of last time)")
    world.hub.status = 503
    assert world.ask("hf:org/one")["version"] == C1
    assert "the hub cannot be reached" in world.refused("hf:org/other", **nowhere)[1]


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("hf:org/two", "ModelNotFoundError", "say which file, as hf:org/two/FILE: a.gguf, b.gguf"),
        ("hf:org/none", "UnsupportedModelError", "holds no GGUF file and no model.safetensors or model.safetensors.index.json"),
        ("hf:org/noconfig", "UnsupportedModelError", "no config.json that says what they are"),
        ("hf:org/one/absent.gguf", "ModelNotFoundError", "the repository has no file absent.gguf"),
        ("hf:org/one@v9", "ModelNotFoundError", "the repository has no such revision"),
        ("hf:org/absent", "ModelNotFoundError", "no such repository on the hub, or it needs a login: Invalid username or password."),
        ("hf:org/pickles", "UnsupportedModelError", "are Python pickles (pytorch_model.bin), and a pickle executes code when loaded"),
        ("hf:org/pickles/pytorch_model.bin", "UnsupportedModelError", "a pickle executes code when loaded; they are never fetched"),
        ("hf:org/pickles/model.PT", "UnsupportedModelError", "a pickle executes code when loaded"),
        ("hf:org/one/model.safetensors", "UnsupportedModelError", "name hf:org/one"),
        ("hf:org/one/README.md", "UnsupportedModelError", "only .gguf files are models by themselves"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(world: World, name: str, kind: str, message: str) -> None:
    world.hub.put("org/two", C1, {"a.gguf": BIG, "b.gguf": SMALL})
    world.hub.put("org/none", C1, {"README.md": b"nothing"})
    world.hub.put("org/noconfig", C1, {"model.safetensors": BIG})
    world.hub.put("org/pickles", C1, {"pytorch_model.bin": BIG, "config.json": b"{}"})
    assert world.refused(name)[0] == kind
    assert message in world.refused(name)[1]
    assert world.stored() == []


def test_a_gated_repository_is_refused_in_the_hubs_own_words(world: World) -> None:
    world.hub.gated.add("org/one")
    kind, message = world.refused("hf:org/one")
    assert kind == "ModelError"
    assert "restricted. You must have access to it and be authenticated to access it. Please log in." in message
    assert "HF_TOKEN" in message
    kind, message = world.refused("hf:org/one", HF_TOKEN="hf_secret")
    assert "you are not in the authorized list" in message
    assert "hf_secret" not in message


def test_a_server_that_sends_more_than_was_stated_is_not_listened_to(world: World) -> None:
    world.hub.more = bytes(50_000_000)
    kind, message = world.refused("hf:org/one")
    assert (kind, message) == ("DigestError", "hf:org/one: model.gguf: it must have 300,000 bytes as stated, and the server sends more")
    assert world.blobs() == {}
    world.hub.more = b""
    assert Path(world.ask("hf:org/one")["path"]).read_bytes() == BIG


def test_a_model_that_the_disk_has_no_room_for_is_refused_before_it_is_fetched(world: World) -> None:
    world.hub.listed = {"size": 10**18}
    kind, message = world.refused("hf:org/one")
    assert kind == "ModelError"
    assert "hf:org/one: 1,000,000,000,000.0 MB are still to be fetched, and " in message
    assert message.endswith("; HF_HOME or HF_HUB_CACHE names a cache elsewhere")
    assert world.stored() == []


def test_a_disk_that_fills_up_is_named_and_what_was_fetched_is_gone_on_from(world: World) -> None:
    """A limit of file sizes stands for the disk: both end in an error of the system while bytes are written."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))" + PROGRAM
    ran = subprocess.run([sys.executable, "-c", limited, "hf:org/one"], env=world.env, capture_output=True, text=True, check=True)
    answer = json.loads(ran.stdout)
    assert (answer["error"], answer["message"]) == ("ModelError", "hf:org/one: model.gguf cannot be fetched: File too large")
    assert world.blobs() == {f"{SHA256}.part": 100_000}
    assert Path(world.ask("hf:org/one")["path"]).read_bytes() == BIG
    assert world.stored() == ["-", "bytes=100000-"]


def test_a_cache_that_cannot_be_written_is_named(world: World) -> None:
    world.hf_home.write_text("a file where the folder would be")
    kind, message = world.refused("hf:org/one")
    assert kind == "ModelError"
    assert str(world.hf_home) in message
    assert "Errno" not in message


@pytest.mark.parametrize(
    "lie",
    [
        {"size": "many"},
        {"size": -5},
        {"size": None},
        {"rfilename": None},
        {"rfilename": 7},
        {"lfs": {"sha256": ["x"], "size": 1, "pointerSize": 1}},
        {"lfs": {"sha256": "../../../evil", "size": 1, "pointerSize": 1}},
        {"lfs": {}},
        {"lfs": "x"},
    ],
)
def test_a_list_that_lies_ends_in_a_sentence_or_in_the_right_bytes(world: World, lie: dict[str, Any]) -> None:
    world.hub.listed = lie
    answer = world.ask("hf:org/one")
    if "error" in answer:
        assert answer["message"].startswith("hf:org/one: ")
        assert answer["code"] == 2
    else:
        assert Path(answer["path"]).read_bytes() == BIG


def test_the_token_goes_to_the_hub_alone(world: World) -> None:
    world.ask("hf:org/one", HF_TOKEN="hf_secret")
    assert any(path.startswith("/org/one/resolve/") for path in world.hub.logins)
    assert not any(path.startswith("/stored/") for path in world.hub.logins)


def test_a_busy_hub_is_quoted(world: World) -> None:
    world.hub.status = 403
    assert "We had to rate limit you." in world.refused("hf:org/one")[1]


class TestFolder:
    """Repositories in the transformers library's format."""

    @pytest.fixture
    def files(self) -> dict[str, bytes]:
        shards = {f"model-0000{i}-of-00002.safetensors": hashlib.shake_256(bytes([i])).digest(40_000 + i) for i in (1, 2)}
        index = {"weight_map": {f"t{i}": name for i, name in enumerate(shards)}}
        return {
            "config.json": b'{"model_type": "llama"}',
            "tokenizer.json": b"{}" * 9000,
            "tokenizer_config.json": b"{}",
            "model.safetensors.index.json": json.dumps(index).encode(),
            **shards,
            "consolidated.safetensors": bytes(50_000),
            "pytorch_model.bin": b"\x80\x04" * 30_000,
            "README.md": b"# a model",
            "original/params.json": b"{}",
        }

    def test_the_files_that_make_a_model_are_fetched_and_no_others(self, world: World, files: dict[str, bytes]) -> None:
        world.hub.put("org/folder", C1, files, card={"license": "apache-2.0"})
        answer = world.ask("hf:org/folder")
        wanted = sorted(name for name in files if (name.endswith(".json") and "/" not in name) or name.startswith("model-"))
        assert sorted(answer["files"]) == wanted
        assert sorted(os.listdir(answer["path"])) == wanted
        assert answer["files"] == {name: hashlib.sha256(files[name]).hexdigest() for name in wanted}
        assert (answer["name"], answer["version"], answer["licence"]) == ("hf:org/folder", C1, "apache-2.0")
        before = len(world.hub.log)
        assert world.ask("hf:org/folder", "offline")["sha256"] == answer["sha256"]
        assert world.ask(f"hf:org/folder@{C1}")["sha256"] == answer["sha256"]
        assert len(world.hub.log) == before

    def test_a_broken_fetch_goes_on_with_the_file_it_was_at(self, world: World, files: dict[str, bytes]) -> None:
        world.hub.put("org/folder", C1, files)
        large = 3  # tokenizer.json and two shards
        world.hub.cut_after = [10**6, 10_000]
        world.ask("hf:org/folder")
        assert world.stored() == ["-", "-", "bytes=10000-", "-"][: large + 1]

    def test_a_shard_that_goes_missing_is_fetched_again(self, world: World, files: dict[str, bytes]) -> None:
        world.hub.put("org/folder", C1, files)
        path = Path(world.ask("hf:org/folder")["path"]) / "model-00002-of-00002.safetensors"
        path.resolve().unlink()
        path.unlink()
        assert "is not in the cache" in world.refused("hf:org/folder", "offline")[1]
        for form in (f"hf:org/folder@{C1}", "hf:org/folder"):
            assert len(world.ask(form)["files"]) == 6

    @pytest.mark.parametrize("shard", ["../evil.safetensors", "absent.safetensors", "pytorch_model.bin"])
    def test_an_index_that_names_other_files_is_refused(self, world: World, files: dict[str, bytes], shard: str) -> None:
        index = json.dumps({"weight_map": {"t": shard}}).encode()
        world.hub.put("org/folder", C1, {**files, "model.safetensors.index.json": index})
        kind, message = world.refused("hf:org/folder")
        assert (kind, f"names {shard!r}" in message) == ("ModelFileError", True)
        assert world.stored() == []

    def test_names_that_leave_the_folder_are_not_seen(self, world: World) -> None:
        world.hub.put("org/evil", C1, {"../../escape.gguf": BIG, "/abs.gguf": BIG})
        assert world.refused("hf:org/evil")[0] == "UnsupportedModelError"
        assert world.stored() == []


def test_a_fetched_model_runs(world: World, tmp_path: Path) -> None:
    path = TinyModel(TinySpec(seed=3)).write_gguf(tmp_path / "tiny.gguf")
    world.hub.put("org/tiny", C1, {"tiny.gguf": path.read_bytes()})
    program = "import sys; from swiftsure.cli import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", program, "run", f"hf:org/tiny@{C1}", "-p", "hello", "-n", "4"], env=world.env, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "model=hf:org/tiny/tiny.gguf" in ran.stderr


def test_an_absent_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=r"pip install 'swiftsure\[hub\]'"):
        resolve("hf:org/one")


@pytest.mark.parametrize("name", ["hf:", "hf:org", "hf:org/one@", "hf:a/b@c@d", "hf:org/one/"])
def test_a_malformed_name_states_the_form(name: str) -> None:
    with pytest.raises(UsageError, match="hf:org/name"):
        resolve(name)
