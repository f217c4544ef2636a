"""The conversion of failed RPCs to `CallError`."""

from __future__ import annotations

import grpc

from operad import CallError, ErrorCode
from operad_grpc.envelopes import readable

_CODES = {
    grpc.StatusCode.UNAVAILABLE: ErrorCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.TIMEOUT,
    grpc.StatusCode.CANCELLED: ErrorCode.ABORTED,
}


def call_error(error: grpc.aio.AioRpcError, method: str) -> CallError:
    """Return the error of a call, with the status of the RPC in its details."""
    status = error.code()
    details = {
        "grpcStatus": status.name,
        "grpcCode": status.value[0],
        "method": method,
        "trailingMetadata": readable(error.trailing_metadata()),
    }
    message = error.details() or status.name
    return CallError(_CODES.get(status, ErrorCode.EXECUTION_ERROR), f"{method}: {message}", details)
