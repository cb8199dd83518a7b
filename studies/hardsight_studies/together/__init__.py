"""Studies that ask across the papers: hardness by loss, and which scores find label errors."""
