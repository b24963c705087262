#!/usr/bin/env bash
# Lint, check types and run the tests, after creating .venv (or $VENV) and installing the package with its dev extra.
# Arguments go to pytest:
#   ./scripts/test.sh                      everything
#   ./scripts/test.sh -m "not slow"        about two minutes on two cores
#   ./scripts/test.sh tests/search -k beam
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
install_into "${VENV:-.venv}" ".[dev]"
# The tests marked `browser` drive Chromium, which is not a Python package; it is installed while types are checked.
if ! { command -v chromium && command -v chromedriver; } >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver ||
        echo "warning: Chromium could not be installed; the tests marked browser will be skipped"; } >&2 &
fi
ruff check .
ruff format --check .
mypy
wait
# Two files at a time with one thread each, since small tensors gain nothing from more threads.
export OMP_NUM_THREADS=1
exec python -m pytest --numprocesses 2 --dist loadfile "$@"
