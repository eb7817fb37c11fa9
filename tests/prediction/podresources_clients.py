"""PodResources clients of other makers, where they are installed: grpc-js (PODSLICE_GRPC_JS names a folder after
`npm install --prefix FOLDER @grpc/grpc-js @grpc/proto-loader`) and grpclib (`pip install grpclib`)."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from podslice.service.proto import podresources_pb2

_HERE = Path(__file__).parent
_PROTO = Path(podresources_pb2.__file__).with_name("podresources.proto")
ABSENT = "needs grpc-js or grpclib (docs/development/README.md, A real kubelet)"


def clients() -> dict[str, list[str]]:
    """Commands by name; each takes a socket."""
    found = {}
    node, modules = shutil.which("node"), os.environ.get("PODSLICE_GRPC_JS")
    if node and modules:
        found["grpc-js"] = [node, str(_HERE / "podresources_client.js"), str(_PROTO)]
    if importlib.util.find_spec("grpclib"):
        found["grpclib"] = [sys.executable, str(_HERE / "podresources_client.py")]
    return found


def answers(command: list[str], socket: Path) -> Any:
    """Return the answers of the server at a socket to this client's List and GetAllocatableResources."""
    modules = str(Path(os.environ.get("PODSLICE_GRPC_JS", ""), "node_modules"))
    done = subprocess.run(
        [*command, str(socket)], env={**os.environ, "NODE_PATH": modules}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
