"""How conclusions are said: plain functions from values to sentences, which console, page, files and trackers share."""
