"""Every claim of speed, made where it can be repeated."""
