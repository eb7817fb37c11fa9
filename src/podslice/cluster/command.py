"""`podslice cluster`: the service beside a kube-scheduler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from podslice.cli.group import CommandGroup
from podslice.cluster_view.commands.service import fit, fragmentation, pending
from podslice.extras import need_modules
from podslice.render.ansi import echo

if TYPE_CHECKING:
    from podslice.cluster.log_lines import LogLevel

_NEEDED = ("google.protobuf", "grpc", "prometheus_client", "lightkube", "numpy")
_AGENT = "system:serviceaccount:podslice:podslice-agent"


@click.group(cls=CommandGroup, invoke_without_command=True, subcommand_metavar="[COMMAND [ARGS]...]")
@click.option("--address", metavar="HOST:PORT", default="127.0.0.1:9098", show_default=True,
              help="Address of the extender, for kube-scheduler.")  # fmt: skip
@click.option(
    "--journal-address", metavar="HOST:PORT", default="", help="Address for the agents' streams; empty for none."
)
@click.option("--metrics-address", metavar="HOST:PORT", default="127.0.0.1:9099", show_default=True,
              help="Address of metrics, /healthz and /readyz; empty for none.")  # fmt: skip
@click.option("--page-address", metavar="HOST:PORT", default="",
              help="Address of the page, also for `kubectl podslice pending`; empty for none.")  # fmt: skip
@click.option("--page-token-file", metavar="FILE", default="",
              help="The token that requests for the page need; required beyond the loopback.")  # fmt: skip
@click.option("--tls-cert", metavar="FILE", default="", help="Certificate of the listeners beyond the loopback.")
@click.option("--tls-key", metavar="FILE", default="", help="Its key.")
@click.option("--client-ca", metavar="FILE", default="",
              help="Authority of kube-scheduler's certificate, beyond the loopback.")  # fmt: skip
@click.option("--scheduler-name", "schedulers", metavar="NAME", multiple=True, default=("podslice",), show_default=True,
              help="schedulerName of the pods to nominate ahead.")  # fmt: skip
@click.option("--agent", "agents", metavar="USER", multiple=True, default=(_AGENT,), show_default=True,
              help="Service account of agents, whose tokens are accepted.")  # fmt: skip
@click.option("--compatible", "versions", metavar="VERSION", multiple=True,
              help="A further version of agents that decides as this one.")  # fmt: skip
@click.option("--plan", type=click.Choice(["compare", "honour"]), default="compare", show_default=True,
              help="What agents do with plans: as `cluster.plan` of their settings.")  # fmt: skip
@click.option("--advise/--no-advise", default=False, show_default=True,
              help="Leave the choice among proven nodes to the scheduler; pods are not nominated.")  # fmt: skip
@click.option("--nominate/--no-nominate", default=True, help="Choose nodes before the scheduler asks.")
@click.option("--ahead", type=click.IntRange(1, 100_000), default=512, show_default=True,
              help="Most pods that are nominated and not bound yet.")  # fmt: skip
@click.option("--evict/--no-evict", default=False, show_default=True,
              help="Evict pods of lower priority for one that only topology keeps out.")  # fmt: skip
@click.option("--wake/--no-wake", default=True,
              help="Have refused pods tried again once there is room that only nodes' journals show.")  # fmt: skip
@click.option("--lease", metavar="NAMESPACE/NAME", default="",
              help="Lease of the scheduler's leader election; log and metrics say whether it leads.")  # fmt: skip
@click.option("--check-config", is_flag=True,
              help="Check options, certificates, addresses and rights at the API server, and exit.")  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.pass_context
def cluster(
    ctx: click.Context,
    /,
    *,
    address: str,
    journal_address: str,
    metrics_address: str,
    page_address: str,
    page_token_file: str,
    tls_cert: str,
    tls_key: str,
    client_ca: str,
    schedulers: tuple[str, ...],
    agents: tuple[str, ...],
    versions: tuple[str, ...],
    plan: str,
    advise: bool,
    nominate: bool,
    ahead: int,
    evict: bool,
    wake: bool,
    lease: str,
    check_config: bool,
    log_level: LogLevel,
) -> None:
    """Answer a kube-scheduler's extender calls with every node's exact model (docs/cluster-scheduler.md). With COMMAND:
    ask a service that runs.

    \b
    Examples:
      podslice cluster --check-config
      podslice cluster --journal-address 0.0.0.0:9097 --tls-cert tls.crt --tls-key tls.key
      podslice cluster --page-address 127.0.0.1:9101
      podslice cluster pending --url http://127.0.0.1:9101

    Exit codes: 0 stopped or configuration good, 2 bad configuration.
    """
    if ctx.invoked_subcommand is not None:
        return
    need_modules("the service", _NEEDED, extras="agent,cluster")
    from podslice.cluster.checks import check_all
    from podslice.cluster.running import ClusterOptions, check, run_cluster
    from podslice.cluster.service import ServiceSettings
    from podslice.service.certificates import CertificateFiles

    options = ClusterOptions(
        address,
        journal_address,
        metrics_address,
        page_address,
        page_token_file,
        CertificateFiles(tls_cert, tls_key, client_ca),
        agents,
        versions,
        ServiceSettings(
            frozenset(schedulers),
            "honour" if plan == "honour" else "compare",
            advise=advise,
            nominate=nominate and not advise,
            ahead=ahead,
            evict=evict,
            wake=wake,
        ),
        lease,
    )
    if check_config:
        for line in asyncio.run(check_all(options, check(options))):
            echo(line)
        echo(f"good; kube-scheduler asks at {address}")
        return
    asyncio.run(run_cluster(options, log_level=log_level))


for one in (pending, fit, fragmentation):
    cluster.add_command(one)
