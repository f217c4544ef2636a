"""operad without an event loop: the registry and the call map with blocking methods.

All objects share one event loop in a background thread. They can be used from any thread, including a thread that
runs its own loop (a notebook). Objects that are open when the process ends are closed. After a fork, objects that
were opened before the fork can be used in the parent process only.
"""

from operad.sync.calls import PendingRequestMap
from operad.sync.registry import OperationRegistry
from operad.sync.streams import Subscription

__all__ = ["OperationRegistry", "PendingRequestMap", "Subscription"]
