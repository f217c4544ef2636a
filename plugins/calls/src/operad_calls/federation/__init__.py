"""Federation: operations of peers as operations of this registry."""
