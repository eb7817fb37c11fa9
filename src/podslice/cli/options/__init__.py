"""The options that several commands have, and what they name."""
