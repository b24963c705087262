#!/usr/bin/env bash
# Run the whole test suite: makes .venv (or $VENV), installs the package with its development extras, lints, types, tests.
# Arguments go to pytest: ./scripts/test.sh tests/search -k beam
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
install_into "${VENV:-.venv}" ".[dev]"
# The page's tests drive Chromium, which no Python package brings.
if ! { command -v chromium && command -v chromedriver; } >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >&2 ||
        echo "warning: Chromium could not be installed; tests/serving/test_page.py will fail" >&2
fi
ruff check .
ruff format --check .
mypy
# Two files at a time, one thread each: small tensors gain nothing from more.
export OMP_NUM_THREADS=1
exec python -m pytest --numprocesses 2 --dist loadfile "$@"
