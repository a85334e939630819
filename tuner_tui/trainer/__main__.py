"""Starts the job: loads this folder as the package `tuner_trainer` and runs it.

With the name of a question in place of a file, such as `trace-memory`, it answers that (`PROBES` in main.py).

Python puts the folder of a script on `sys.path`, where modules such as `data` would hide those of libraries. So the
folder is removed from the path and loaded as a package with a name of its own.
"""

import sys
from importlib import import_module, util
from pathlib import Path

PACKAGE = "tuner_trainer"


def load_package() -> None:
    """Make `tuner_trainer` importable without this folder or its parents on `sys.path`."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    spec = util.spec_from_file_location(PACKAGE, here / "__init__.py", submodule_search_locations=[str(here)])
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":  # a worker process that re-imports the main module must not train again
    load_package()
    sys.exit(import_module(f"{PACKAGE}.main").main(sys.argv[1:]))
