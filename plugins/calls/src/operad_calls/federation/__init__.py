"""Operations of peers as operations of this registry."""
