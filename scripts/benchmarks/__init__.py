"""The measurements of `scripts/benchmark.py`, one module per command. Nothing here imports torch at the top, so
that the process that starts the measurements stays small and does not count toward their memory."""
