"""An interpreter that has torch and transformers imported already: importing them takes longer than most of what is asked of it.

``warm_python.py SERVER_SOCKET`` imports them and answers one request at a time: a script and its arguments, the environment, the folder and
the two outputs, for which it forks a process that runs the script as ``python SCRIPT ARGUMENT...`` would. What runs in one is gone with it.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

MISSING = 4  # exit code when a library is missing

# Started like an interpreter. It passes all of it on and ends as the script ended.
CLIENT = """#!{python} -IS
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({path!r})
    arguments = [argument for argument in sys.argv[1:] if argument != "-I"]
    message = json.dumps({{"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}}).encode()
    socket.send_fds(server, [len(message).to_bytes(8, "little")], [1, 2])
    server.sendall(message)
    sys.exit(int(server.makefile().read() or 1))
"""


def write_client(path: Path, server: Path) -> Path:
    """An executable file that stands for the interpreter behind ``server``."""
    path.write_text(CLIENT.format(python=sys.executable, path=str(server)))
    path.chmod(0o755)
    return path


def main(path: str) -> int:
    try:
        for name in ("accelerate", "gguf", "torch"):
            importlib.import_module(name)
        import transformers
        import transformers.modeling_utils
    except ImportError as error:
        print(error, file=sys.stderr)
        return MISSING
    assert transformers.AutoModelForCausalLM  # loads what the name stands for
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                answer(connection)


def answer(connection: socket.socket) -> None:
    size, outputs, _, _ = socket.recv_fds(connection, 8, 2)
    request = json.loads(connection.makefile("rb").read(int.from_bytes(size, "little")))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(outputs[0], 1)
            os.dup2(outputs[1], 2)
            code = run(request)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    for output in outputs:
        os.close(output)
    _, status = os.waitpid(child, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def run(request: dict[str, Any]) -> int:
    """The exit code of the script. An error is printed as the interpreter prints it."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
