# Sourced by the scripts: finds Python 3.10 or later, makes a virtual environment and installs the package into it.

install_into() { # install_into FOLDER REQUIREMENT
    local folder=$1 requirement=$2 python
    if [ ! -x "$folder/bin/python" ]; then
        python=$(find_python) || { echo "error: Python 3.10 or later is needed (set PYTHON=/path/to/python3)" >&2; exit 2; }
        "$python" -m venv "$folder"
    fi
    # shellcheck disable=SC1091
    source "$folder/bin/activate"
    python -m pip install --quiet --disable-pip-version-check --no-compile --editable "$requirement" >&2
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.10; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}
