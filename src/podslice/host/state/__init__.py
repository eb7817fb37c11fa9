"""State files on disk: written before anybody hears of a decision, whole at any kill."""
