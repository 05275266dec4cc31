"""smdl select: choose rows of files, in parts that fit one selection, on one machine or on Ray."""
