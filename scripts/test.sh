#!/usr/bin/env bash
# Run the whole test suite: makes .venv (or $VENV), installs the package with its development extras, lints, types, tests.
# Arguments go to pytest: ./scripts/test.sh tests/search -k beam
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
install_into "${VENV:-.venv}" ".[dev]"
ruff check .
ruff format --check .
mypy
exec python -m pytest "$@"
