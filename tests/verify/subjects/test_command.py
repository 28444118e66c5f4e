from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.subjects.activation import LogProbe
from swiftsure.verify.subjects.base import Case
from swiftsure.verify.subjects.command import CommandOptions, CommandSubject, split_command
from verify.subjects.programs import WRITE, command, run_program

MIB = 1 << 20


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_that_ends_well_ran_and_its_output_is_read(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "target.write_text(source.read_text() + '!')")
    assert (trial.status, trial.reason) == ("ran", None)
    assert trial.outputs == {"output": "abc!"}
    assert trial.wall_s is not None
    assert 0 < trial.wall_s < 60
    assert trial.peak_bytes is not None
    assert trial.peak_bytes > MIB


def test_an_exit_code_is_a_failure_with_the_last_words(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "print('one'); sys.exit('two is wrong')")
    assert trial.status == "failed"
    assert trial.reason == "exit code 1; last words: two is wrong"


def test_a_signal_is_named(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "os.kill(os.getpid(), 11)")
    assert trial.status == "failed"
    assert "signal 11 (SIGSEGV)" in str(trial.reason)


def test_a_program_that_writes_nothing_failed(tmp_path: Path) -> None:
    assert run_program(tmp_path, "").reason == "output: the program wrote nothing to {output}"


def test_output_may_be_a_folder_that_the_program_makes(tmp_path: Path) -> None:
    body = "target.mkdir(); import numpy as np; np.save(target / 'b.npy', np.arange(3)); (target / 'a.txt').write_text('x')"
    trial = run_program(tmp_path, body)
    assert list(trial.outputs) == ["a", "b"]
    assert np.array_equal(trial.outputs["b"], [0, 1, 2])  # readable though the file is gone


def test_output_folder_is_there_when_the_command_names_a_file_in_it(tmp_path: Path) -> None:
    trial = run_program(tmp_path, WRITE, places="{input} {output}/answer.txt")
    assert trial.outputs == {"answer": "done"}


def test_output_may_have_a_suffix(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "import numpy as np; np.save(target, np.float32([1, 2]))", places="{input} {output}.npy")
    assert np.array_equal(trial.outputs["output"], np.float32([1, 2]))


def test_a_suffix_that_numpy_adds_is_found(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "import numpy as np; np.save(target, np.float32([1, 2]))")
    assert np.array_equal(trial.outputs["output"], np.float32([1, 2]))


def test_two_outputs_side_by_side_are_refused(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "target.write_text('x'); Path(str(target) + '.txt').write_text('y')")
    assert trial.reason == "output: the program wrote output, output.txt; one file or folder is expected"


def test_a_case_without_a_file_has_its_request_written(tmp_path: Path) -> None:
    subject = CommandSubject(command(tmp_path, "target.write_text(json.loads(source.read_text())['prompt'])"))
    subject.start()
    try:
        assert subject.run(Case(id="a", request={"prompt": "größer"})).outputs == {"output": "größer"}
    finally:
        subject.close()


def test_no_shell_ever_sees_the_command(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "target.write_text(' '.join(sys.argv[3:]))", places="{input} {output} '$HOME; exit' `id` {\"a\":1} *")
    assert trial.outputs == {"output": "$HOME; exit `id` {a:1} *"}


def test_the_environment_is_added_to_ours(tmp_path: Path) -> None:
    body = "target.write_text(os.environ['RECIPE'] + str('PATH' in os.environ))"
    assert run_program(tmp_path, body, environment={"RECIPE": "x"}).outputs == {"output": "xTrue"}


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "must name a program"),
        ("python base.py", "must have {input}"),
        ("python base.py {input}", "must have {output}"),
        ("python 'base.py {input} {output}", "cannot be split into words: No closing quotation"),
    ],
)
def test_a_command_that_cannot_work_is_a_usage_error(template: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        split_command(template)


def test_a_program_that_is_not_there_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="there is no program 'no-such-program'"):
        CommandSubject("no-such-program {input} {output}").start()


def test_a_limit_that_no_program_could_keep_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"memory_limit_bytes must be at least 16,777,216 \(16 MiB\), got 1"):
        CommandOptions(memory_limit_bytes=1)
    with pytest.raises(UsageError, match="time_limit_s must be above 0, got 0"):
        CommandOptions(time_limit_s=0)


def test_the_time_limit_ends_the_program_and_everything_that_it_started(tmp_path: Path) -> None:
    body = (
        "import subprocess\n"
        "a = subprocess.Popen(['sleep', '600'])\n"
        "b = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"Path({str(tmp_path / 'pids')!r}).write_text(f'{{a.pid}} {{b.pid}}')\n"
        "time.sleep(600)\n"
    )
    trial = run_program(tmp_path, body, time_limit_s=2.0)
    assert (trial.status, trial.reason) == ("timed_out", "ended after 2 s, the time limit")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_a_daemon_that_is_left_behind_is_ended_and_noted(tmp_path: Path) -> None:
    body = (
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        Path({str(tmp_path / 'pids')!r}).write_text(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        f"while not Path({str(tmp_path / 'pids')!r}).exists(): time.sleep(0.01)\n" + WRITE
    )
    trial = run_program(tmp_path, body)
    assert trial.status == "ran"
    assert trial.notes == ("the program left 1 processes behind, which were ended",)
    assert not alive(int((tmp_path / "pids").read_text()))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_a_parent_that_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    pids = tmp_path / "pids"
    template = command(tmp_path, f"Path({str(pids)!r}).write_text(str(os.getpid())); time.sleep(600)")
    source = f"""
from swiftsure.verify.subjects.command import CommandSubject
from swiftsure.verify.subjects.base import Case
subject = CommandSubject({template!r})
subject.start()
subject.run(Case(id="a"))
"""
    parent = subprocess.Popen([sys.executable, "-c", source], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: pids.exists() and pids.read_text() != "")
        program = int(pids.read_text())
        os.kill(parent.pid, number)
        parent.wait(60)
        wait_until(lambda: not alive(program))
    finally:
        parent.kill()
        parent.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not come to pass within a minute")


@pytest.mark.parametrize("how", ["bytearray(256 << 20)", "__import__('numpy').ones(32 << 20)"])
def test_an_allocation_beyond_the_memory_limit_is_refused_by_the_kernel(tmp_path: Path, how: str) -> None:
    trial = run_program(tmp_path, f"x = {how}\n" + WRITE, memory_limit_bytes=192 * MIB)
    assert trial.status == "out_of_memory"
    assert "under a limit of 201,326,592 bytes" in str(trial.reason)


def test_processes_that_only_together_exceed_the_limit_are_ended(tmp_path: Path) -> None:
    body = (
        "import subprocess\n"
        "code = 'import time; x = bytearray(b\"x\") * (60 << 20); time.sleep(600)'\n"
        "all = [subprocess.Popen([sys.executable, '-c', code]) for _ in range(3)]\n"
        "time.sleep(600)\n"
    )
    trial = run_program(tmp_path, body, memory_limit_bytes=128 * MIB, time_limit_s=120)
    assert trial.status == "out_of_memory"
    assert "bytes held by its processes together under a limit of" in str(trial.reason)
    assert (trial.peak_bytes or 0) > 128 * MIB


def test_a_program_within_the_limit_runs(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "x = bytearray(b'x') * (32 << 20)\n" + WRITE, memory_limit_bytes=256 * MIB)
    assert trial.status == "ran"
    assert 32 * MIB < (trial.peak_bytes or 0) < 256 * MIB


def test_peak_memory_is_the_program_s_own_and_not_that_of_this_process(tmp_path: Path) -> None:
    ballast = bytearray(b"x") * (300 * MIB)
    trial = run_program(tmp_path, WRITE)
    assert (trial.peak_bytes or 0) < 100 * MIB
    assert len(ballast) > 0


def test_peak_memory_adds_up_children(tmp_path: Path) -> None:
    body = (
        "import subprocess\n"
        "code = 'x = bytearray(b\"x\") * (80 << 20); print(1, flush=True); input()'\n"
        "all = [subprocess.Popen([sys.executable, '-c', code], stdin=-1, stdout=-1) for _ in range(2)]\n"
        "for one in all: one.stdout.readline()\n"
        "time.sleep(1)\n"
        "for one in all: one.communicate(b'\\n')\n" + WRITE
    )
    trial = run_program(tmp_path, body)
    assert trial.status == "ran"
    assert (trial.peak_bytes or 0) > 160 * MIB


def test_a_flood_of_output_is_kept_at_its_ends(tmp_path: Path) -> None:
    body = "print('first')\nfor i in range(20000): print('x' * 100)\nprint('last')\n" + WRITE
    source = tmp_path / "case.txt"
    source.write_text("abc")
    subject = CommandSubject(command(tmp_path, body), CommandOptions(log_bytes=10_000))
    subject.start()
    try:
        trial = subject.run(Case(id="a", path=source))
        text = trial.logs["stdout"].read_text()
        assert text.startswith("first")
        assert text.endswith("last\n")
        assert len(text) < 11_000
        assert any("in the middle of stdout were not kept" in note for note in trial.notes)
    finally:
        subject.close()


def test_phases_come_from_lines_and_the_rest_is_named(tmp_path: Path) -> None:
    body = "print('PHASE name=forward s=0.01'); print('PHASE name=forward s=0.02', file=sys.stderr); time.sleep(0.05)\n" + WRITE
    trial = run_program(tmp_path, body)
    assert trial.phases_s["forward"] == pytest.approx(0.03)
    assert sum(trial.phases_s.values()) == pytest.approx(trial.wall_s)
    assert list(trial.phases_s) == ["forward", "other"]


def test_phases_come_from_a_file_that_is_no_output(tmp_path: Path) -> None:
    body = "target.mkdir(); (target / 'phases.json').write_text('{\"load\": 0.001}'); (target / 'a.txt').write_text('x')"
    trial = run_program(tmp_path, body)
    assert list(trial.outputs) == ["a"]
    assert trial.phases_s["load"] == 0.001


def test_phases_that_exceed_the_whole_are_left_out_with_a_note(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "print('PHASE name=forward s=1e6')\n" + WRITE)
    assert trial.status == "ran"
    assert trial.phases_s == {}
    assert "left out" in trial.notes[0]


def test_phases_that_are_no_seconds_fail_the_trial(tmp_path: Path) -> None:
    body = "target.mkdir(); (target / 'phases.json').write_text('{\"load\": -1}'); (target / 'a.txt').write_text('x')"
    assert run_program(tmp_path, body).reason == "output: phase load must be seconds of at least 0, got -1"


def test_an_active_line_activates(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "print('ACTIVE mode=fast kernel=blocked', file=sys.stderr)\n" + WRITE)
    assert trial.activation is not None
    assert (trial.activation.state, trial.activation.evidence) == ("active", "ACTIVE mode=fast kernel=blocked")


def test_a_not_active_line_outweighs_an_active_one_though_the_program_ends_well(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "print('ACTIVE mode=fast'); print('NOT ACTIVE mode=fast reason=no_avx2')\n" + WRITE)
    assert trial.status == "ran"
    assert trial.activation is not None
    assert (trial.activation.state, trial.activation.reason) == ("not_active", "no_avx2")


def test_exit_3_is_not_active_and_refused(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "print('no such unit'); sys.exit(3)")
    assert (trial.status, trial.reason) == ("refused", "exit code 3: no such unit")
    assert trial.activation is not None
    assert trial.activation.state == "not_active"


def test_a_refused_input_is_refused_with_its_reason(tmp_path: Path) -> None:
    trial = run_program(tmp_path, "print('REFUSED reason=more than 4,096 residues'); sys.exit(1)")
    assert (trial.status, trial.reason) == ("refused", "more than 4,096 residues")


@pytest.mark.parametrize(
    ("said", "probe", "state"),
    [
        ("using kernel blocked", LogProbe(active=r"^using kernel \w+$"), "active"),
        ("using nothing", LogProbe(active=r"^using kernel"), "not_active"),
        ("falling back to numpy", LogProbe(not_active="falling back"), "not_active"),
        ("all well", LogProbe(not_active="falling back"), "active"),
        ("using kernel x; falling back", LogProbe(active="using kernel", not_active="falling back"), "not_active"),
        ("anything", LogProbe(), "unknown"),
    ],
)
def test_a_pattern_of_the_user_s_decides_activation(tmp_path: Path, said: str, probe: LogProbe, state: str) -> None:
    trial = run_program(tmp_path, f"print({said!r})\n" + WRITE, probe=probe)
    assert trial.activation is not None
    assert trial.activation.state == state


def test_a_bad_pattern_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"'\(' is not a regular expression"):
        LogProbe(active="(")


def test_start_can_learn_of_activation_from_a_first_run(tmp_path: Path) -> None:
    options = CommandOptions(probe_case=Case(id="probe"))
    subject = CommandSubject(command(tmp_path, "print('NOT ACTIVE mode=fast reason=cold')\n" + WRITE), options)
    try:
        assert subject.start().state == "not_active"
    finally:
        subject.close()


def test_pins_hold_the_digest_of_the_program_and_of_its_script(tmp_path: Path) -> None:
    subject = CommandSubject(command(tmp_path, WRITE), CommandOptions(memory_limit_bytes=64 * MIB))
    subject.start()
    try:
        pins = subject.pins()
        assert str(tmp_path / "program.py") in pins["files"]
        assert all(digest.startswith("sha256:") for digest in pins["files"].values())
        assert pins["memory_limit"]["bytes"] == 64 * MIB
        assert pins["memory_limit"]["by"].startswith(("RLIMIT_DATA", "cgroup v2"))
    finally:
        subject.close()


def test_pins_hold_the_commit_of_the_script_and_whether_it_was_changed_since(tmp_path: Path) -> None:
    template = command(tmp_path, WRITE)
    assert CommandSubject(template).pins()["commit"] is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "program.py"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert CommandSubject(template).pins()["commit"] == head
    command(tmp_path, "pass")
    assert CommandSubject(template).pins()["commit"] == f"{head}-dirty"


def test_logs_and_outputs_stay_in_a_folder_that_is_named(tmp_path: Path) -> None:
    run_program(tmp_path, "print('hello')\n" + WRITE, folder=tmp_path / "run", keep_outputs=True)
    place = tmp_path / "run" / "00001-case_1_x"
    assert sorted(path.name for path in place.iterdir()) == ["output", "stderr.txt", "stdout.txt"]  # no job file with the environment
    assert (place / "stdout.txt").read_text() == "hello\n"


def test_a_folder_that_holds_earlier_runs_keeps_them(tmp_path: Path) -> None:
    for _ in range(2):
        run_program(tmp_path, "print('hello')\n" + WRITE, folder=tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["00001-case_1_x", "00002-case_1_x"]
