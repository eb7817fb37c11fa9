"""State files on disk: written before a decision is announced, complete at any kill."""
