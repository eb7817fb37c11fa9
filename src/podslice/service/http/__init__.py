"""HTTP servers and clients within bounds."""
