"""Text as Go writes and reads it: JSON, dumps, checksums."""
