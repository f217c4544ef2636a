"""operad without an event loop: the registry and the call map with plain methods.

One event loop runs in the background for all of them, in a thread of its own: they can be used from any thread,
also from one that runs a loop itself (a notebook). What is open when the process ends is closed; after a fork,
what was opened before belongs to the parent.
"""

from operad.sync.calls import PendingRequestMap
from operad.sync.registry import OperationRegistry
from operad.sync.streams import Subscription

__all__ = ["OperationRegistry", "PendingRequestMap", "Subscription"]
