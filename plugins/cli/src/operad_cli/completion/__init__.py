"""Shell completion: ids and fields of operations, remembered when a command saw them."""
