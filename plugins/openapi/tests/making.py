"""What the tests of this folder share: documents and parts of them, and the operations that they become."""

import json

from operad_openapi import HTTPServiceConfig, from_openapi, from_openapi_file
from plugins.openapi.tests.data import JSON, NOWHERE, TEXT


def answers(schema, media=JSON):
    """Responses of one kind."""
    return {"200": {"description": "ok", "content": {media: {"schema": schema}}}}


JSON_OK = answers({})
EVENTS_OK = answers({"type": "object"}, "text/event-stream")


def api(paths, version="3.1.0", **more):
    """A document of ``{"get /path": operation}``."""
    document = {"openapi": version, "info": {"title": "t", "version": "1"}, "paths": {}, **more}
    if version == "2.0":
        document["swagger"] = document.pop("openapi")
    for route, operation in paths.items():
        method, path = route.split(" ", 1)
        item = document["paths"].setdefault(path, {})
        item[method] = {"responses": JSON_OK, **operation}
    return document


def large(document):
    """The document with a description that makes its JSON 256 KiB: no more is needed to treat it as a large one."""
    found = {**document, "info": {**document["info"], "description": ""}}
    found["info"]["description"] = "x" * (256 * 1024 - len(json.dumps(found)))
    return found


def parameter(name, location="query", schema=None, **more):
    return {"name": name, "in": location, "schema": schema or TEXT, **more}


def path_parameter(name, schema=None):
    return parameter(name, "path", schema, required=True)


def body(schema, *, required=True, media=JSON, **more):
    return {"requestBody": {"required": required, "content": {media: {"schema": schema, **more}}}}


def fields(*required, **properties):
    """The schema of an object."""
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def config(**options):
    return HTTPServiceConfig(**{"namespace": "api", "base_url": NOWHERE, **options})


def made(document, **options):
    """The operations of a document, whose server is nowhere."""
    return from_openapi(document, config(**options))


async def read(path, **options):
    """The operations of the document in a file, whose server is nowhere."""
    return await from_openapi_file(path, config(**options))
