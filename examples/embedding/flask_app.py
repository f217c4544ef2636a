# /// script
# requires-python = ">=3.11"
# dependencies = ["operad", "flask"]
# ///
"""operad in Flask, without async views: one registry for the process, used by all threads.

    flask --app flask_app run

Under gunicorn leave `preload_app` off, or open the registry in `post_fork`: connections belong to the process that
opened them. Guide: docs/sync.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from flask import Flask, Response, jsonify, request

from operad import CallError, Identity, OperationContext, operation
from operad.sync import OperationRegistry


@operation(namespace="shop", type="query")
async def price(item: str, amount: int = 1) -> float:
    """Return the price of an amount of an item."""
    await asyncio.sleep(0.01)  # imagine a database
    return 9.5 * amount


@operation(namespace="shop")
async def countdown(start: int) -> AsyncIterator[int]:
    """Count down to one."""
    for number in range(start, 0, -1):
        yield number


registry = OperationRegistry()  # or OperationRegistry.from_config("operad.toml").open(): APIs, MCP servers, …
registry.register(price)
registry.register(countdown)

app = Flask(__name__)
STATUS = {"OPERATION_NOT_FOUND": 404, "ACCESS_DENIED": 403, "VALIDATION_ERROR": 422, "TIMEOUT": 504}


@app.errorhandler(CallError)
def failed(error: CallError) -> tuple[Response, int]:
    """Return the error of any operation as JSON."""
    return jsonify(error.to_wire()), STATUS.get(error.code, 500)


@app.post("/<path:operation_id>")
def execute(operation_id: str) -> Response:
    """Call an operation as the user of this request."""
    user = request.headers.get("X-User")  # take it from your session
    context = OperationContext(identity=Identity(user) if user else None)
    return jsonify(registry.execute(operation_id, request.get_json(), context, timeout=10).data)


@app.get("/price/<item>")
def price_of(item: str) -> str:
    """Call with types: mypy and pyright know that the result is a number."""
    return f"{registry.call(price, item=item):.2f}"


@app.get("/countdown/<int:start>")
def lines(start: int) -> Response:
    """Stream the numbers. The stream ends if the client disconnects."""

    def numbers() -> Iterator[str]:
        with registry.stream(countdown, start=start) as stream:
            for number in stream:
                yield f"{number}\n"

    return Response(numbers(), mimetype="text/plain")


if __name__ == "__main__":
    client = app.test_client()
    print(client.get("/price/tea").text)
    print(client.post("/shop.price", json={"item": "tea", "amount": 2}).text.strip())
    print(client.post("/shop.price", json={"item": 3}).status_code)
    print(client.get("/countdown/3").text.split())
