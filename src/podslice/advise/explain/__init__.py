"""Why a decision came out as it did, and what would change it. Everything here is derived; it decides nothing."""
