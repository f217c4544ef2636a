"""Shell completion of operation ids and input fields, which earlier commands stored in a cache."""
