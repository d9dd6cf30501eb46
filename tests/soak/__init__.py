"""A soak: real processes under a random schedule of faults, each writing down what it did and saw, and a check of that.

`schedule` says what goes wrong and when (pure), `world` is what it is done to, `faults` does it, `settling` waits until
all agree again, `drive` does one schedule from the start to the check, `python -m tests.soak` does many. `service`,
`watcher` and `observer` are the processes; `recording` is what they write with. `validator`, with `history`, `story`
and `sight`, reads what was written and judges it; these four import nothing of the product.
"""
