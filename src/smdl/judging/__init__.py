"""Methods compared with the user's own training function."""
