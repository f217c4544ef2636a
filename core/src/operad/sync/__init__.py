"""operad without an event loop: the registry and the call map with plain methods.

One event loop runs for all of them in a background thread. They can be used from any thread, including one that
runs a loop itself (a notebook). Objects that are open when the process ends are closed; after a fork, objects that
were opened before belong to the parent.
"""

from operad.sync.calls import PendingRequestMap
from operad.sync.registry import OperationRegistry
from operad.sync.streams import Subscription

__all__ = ["OperationRegistry", "PendingRequestMap", "Subscription"]
