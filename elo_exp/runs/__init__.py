"""Run folders: manifest.json, which a run writes, and finished runs, read back as data."""
