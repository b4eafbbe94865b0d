"""What is read: the files, the console table and the pages of a run and of a sweep."""
