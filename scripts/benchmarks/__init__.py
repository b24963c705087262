"""The measurements of `scripts/benchmark.py`, one module per command. Nothing here imports torch at the top: what
starts the measurements stays small, so that their memory is their own."""
