"""Sources of candidates: what each batch is chosen from, and when it is scored. One file per source."""
