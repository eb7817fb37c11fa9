"""The sources of pods that the settings name. The source nearest to what runs comes first."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.api_server.apiserver import ApiServer, ApiSource
from podslice.agent.kubelet.kubelet import HTTPKubelet, KubeletSource
from podslice.agent.kubelet.podsapi import PodsApiSource
from podslice.agent.kubelet.podsclient import GRPCPodsApi
from podslice.agent.kubelet.sources import ManifestSource, PodSource, Sources
from podslice.agent.settings import SourceSettings

Trouble = Callable[[str, str], None]


class ConfiguredSources:
    """Makes the configured sources. `api`, `api_source`: None without an API server. Raises `InputError` for a
    configuration that cannot be used."""

    def __init__(self, sources: SourceSettings, node: str, *, api: ApiServer | None, trouble: Trouble) -> None:
        self.api = api
        self._settings = sources
        self.api_source = None if self.api is None else ApiSource(self.api, node, trouble=trouble)
        self._manifests = ManifestSource(Path(sources.manifests), node) if sources.manifests else None
        self._pods_api = _pods_api(sources, trouble)
        self._kubelet = _kubelet(sources, node)
        self._kubelet_source: KubeletSource | None = None
        if self._kubelet is not None and sources.kubelet is not None:
            self._kubelet_source = KubeletSource(self._kubelet, every=sources.kubelet.every_seconds, trouble=trouble)

    def in_order(self) -> list[PodSource]:
        """Return the sources in the order in which they are asked; the first that knows a pod counts."""
        # The kubelet acts on what it serves. A manifest may have changed since it was read, and the API server may be
        # ahead.
        known: tuple[PodSource | None, ...] = (self._pods_api, self._manifests, self.api_source, self._kubelet_source)
        return [source for source in known if source is not None]

    def combine(self) -> Sources:
        """Return all sources as one, with the settings' waits."""
        return Sources(self.in_order(), wait=self._settings.wait_seconds, annotation=self._settings.annotation_counts)

    def loops(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """Yield the loops that keep the sources current, with their names."""
        if self.api_source is not None:
            yield "apiServer", self.api_source.run
        if self._kubelet_source is not None:
            yield "kubelet", self._kubelet_source.run
        if self._pods_api is not None:
            yield "podsAPI", self._pods_api.run
            yield "podsAPI questions", self._pods_api.answer

    async def close(self) -> None:
        """Close the connections to API server and kubelet."""
        for client in (self.api, self._kubelet):
            if isinstance(client, HTTPApiServer | HTTPKubelet):
                await client.close()


def _pods_api(sources: SourceSettings, trouble: Trouble) -> PodsApiSource | None:
    if sources.pods_api_off:
        return None
    kubelet = GRPCPodsApi(Path(sources.pods_api_socket))
    return PodsApiSource(kubelet, required=sources.pods_api_required, trouble=trouble)


def _kubelet(sources: SourceSettings, node: str) -> HTTPKubelet | None:
    if sources.kubelet is None:
        return None
    address = sources.kubelet.address or os.environ.get("NODE_IP", "") or "127.0.0.1"
    return HTTPKubelet(sources.kubelet, node, address)
