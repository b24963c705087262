"""What `scripts/benchmark.py` measures, one module a command. Nothing here imports torch at the top: what starts the
measurements stays small, so that their memory is their own."""
