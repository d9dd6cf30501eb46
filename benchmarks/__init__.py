"""Every claim of speed, made where it can be repeated.

`compare` runs `scenarios` against `peers`, side by side; the modules that are run by themselves measure adsum alone.
"""
