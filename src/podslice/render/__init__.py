"""Pictures and tables: terminal, SVG, HTML."""
