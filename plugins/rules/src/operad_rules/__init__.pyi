# Written by tools/references.py from the table in __init__.py.

from operad_rules.first_results import FirstResults as FirstResults
from operad_rules.first_results import MemoryResults as MemoryResults
from operad_rules.first_results import ResultStore as ResultStore
from operad_rules.rule import Rule as Rule
from operad_rules.rules import Rules as Rules
from operad_rules.rules import add_rules as add_rules

__all__ = [
    "FirstResults",
    "MemoryResults",
    "ResultStore",
    "Rule",
    "Rules",
    "add_rules",
]
