"""What every part may use."""
