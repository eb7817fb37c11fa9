"""Asks the PodResources API in the guest, N times at once, and prints one answer, an error if there is one, as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict

from podslice.wire.proto import podresources_pb2 as api

_METHODS: dict[str, Any] = {
    "List": (api.ListPodResourcesRequest, api.ListPodResourcesResponse),
    "Get": (api.GetPodResourcesRequest, api.GetPodResourcesResponse),
    "GetAllocatableResources": (api.AllocatableResourcesRequest, api.AllocatableResourcesResponse),
}


def main(socket: str, method: str, fields: str, times: str) -> None:
    request, response = _METHODS[method]
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        call = channel.unary_unary(
            f"/v1.PodResourcesLister/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            for _ in range(int(times)):
                answer = MessageToDict(
                    call(request(**json.loads(fields)), timeout=30), preserving_proto_field_name=True
                )
        except grpc.RpcError as error:
            answer = {"error": error.code().name, "details": error.details()}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
