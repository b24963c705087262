#!/usr/bin/env bash
# The whole idea in ten minutes: train three models on the built-in data, compare them, print the table and the report's path.
# Arguments are overrides for `seq2seq compare`: ./scripts/quickstart.sh models=[rnn,bahdanau]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
install_into "${VENV:-.venv}" .
exec seq2seq compare experiment=quickstart "$@"
