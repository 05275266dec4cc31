"""Maximisers: the plain loops that say what is right, and the fast ones held to them."""
