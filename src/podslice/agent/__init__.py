"""The node agent: one owner of state; everything else sends it messages."""
