"""Rows in files: arrays, tables, folders of shards."""
