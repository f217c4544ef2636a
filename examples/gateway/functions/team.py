"""Functions of the gateway itself."""

from __future__ import annotations

from operad import OperationContext, operation


@operation(namespace="team", type="query")
async def digest(context: OperationContext) -> str:
    """Return one sentence about the notes of the team, for the user who calls."""
    user = (await context.env.notes.whoami()).data["user"]
    notes = (await context.env.notes.search()).data
    return f"{user}: {len(notes)} notes, the last one by {notes[-1]['owner']}"
