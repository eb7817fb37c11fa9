"""Options and tables with which commands allocate claims of devices."""
