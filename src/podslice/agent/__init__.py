"""The node agent: one owner of the node's state; everything else sends it messages."""
