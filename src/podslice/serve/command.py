"""`podslice serve`: a local page with the node live, where pods can be tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from podslice.cli.options.node import node_options, start_node
from podslice.cli.options.running import running_options
from podslice.cli.output import print_warnings
from podslice.draw.command import stamps
from podslice.render.ansi import echo

if TYPE_CHECKING:
    from podslice.serve.app import ShownNode


@click.command()
@node_options
@running_options
@click.option(
    "--address", default="127.0.0.1", show_default=True, help="Address to listen on; any but loopback needs --token."
)
@click.option("--port", default=8036, show_default=True, type=click.IntRange(0, 65535), help="0: any free one.")
@click.option("--token", default="", envvar="PODSLICE_TOKEN", help="Token that requests must carry (/?token=…).")
def serve(address: str, port: int, token: str, **options: Any) -> None:
    """Serve a page that shows the machine and the pods of a state directory live, and answers a dropped pod with
    verdict, picture and fixes. Nothing on the node is changed. Stops with Ctrl-C.

    \b
    Examples:
      podslice serve --state /var/lib/kubelet --config /var/lib/kubelet/config.yaml
      podslice serve --pods running.yaml --machine epyc-9654-nps4 --config kubelet.yaml
    """
    from podslice.api.manifests.pipeline import ReadOptions
    from podslice.serve.app import App, ShownNode
    from podslice.service.http.page_server import PageServer, check_binding

    check_binding(address, token)
    # Errors in the options end the command here, not at the first request.
    fixed = start_node(**options)
    print_warnings(fixed.warnings)
    directory = options["state_path"]
    reading = ReadOptions(options["replicas"], options["validate"], options["strict"])

    def make() -> ShownNode:
        started = start_node(**options)
        return ShownNode(started.node, started.provenance)

    app = App(
        # Without a state directory nothing changes, so the node is built once.
        make if directory else lambda: ShownNode(fixed.node, fixed.provenance),
        lambda: stamps(directory) if directory else "fixed",
        token=token,
        reading=reading,
    )
    with PageServer(address, port, app) as server:
        echo(f"podslice: {server.url}{'?token=…' if token else ''} (Ctrl-C stops)", err=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            echo("podslice: stopped", err=True)
