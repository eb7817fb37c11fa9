"""A PodResources client on grpclib, which shares no code with the server: prints two answers as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from google.protobuf.json_format import MessageToDict
from grpclib.client import Channel, UnaryUnaryMethod

from podslice.service.proto import podresources_pb2 as api


async def main(socket: str) -> dict[str, Any]:
    """Return the answers of the server at a socket to List and GetAllocatableResources."""
    async with Channel(path=socket) as channel:

        async def ask(method: str, request: Any, response: Any) -> Any:
            call: Any = UnaryUnaryMethod(channel, f"/v1.PodResourcesLister/{method}", type(request), response)
            return MessageToDict(await call(request, timeout=30), preserving_proto_field_name=True)

        return {
            "list": await ask("List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse),
            "allocatable": await ask(
                "GetAllocatableResources", api.AllocatableResourcesRequest(), api.AllocatableResourcesResponse
            ),
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
