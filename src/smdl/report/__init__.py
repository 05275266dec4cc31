"""Reports: the results of an experiment or a run as one page, pictures and tables. Nothing here imports torch."""
