"""One module per training library. Each imports its library; smdl itself imports none of them."""
