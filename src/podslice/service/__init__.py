"""Parts that long-running programs share: watches, back-off, tokens, supervision."""
