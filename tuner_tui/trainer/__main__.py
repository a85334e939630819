"""Starts the job: loads this folder as the package `tuner_trainer` and runs it.

With `trace-memory` in place of a configuration it says instead what memory the job would take, see `trace_memory`; with
`started-memory` what its Python takes before there is a model, see `started_memory`.

Python puts a folder that it runs on `sys.path`; there, files named `data.py` or `metrics.py` would hide modules of the
same name from every library. So the folder leaves the path and becomes a package of its own name.
"""

import sys
from importlib import import_module, util
from pathlib import Path

PACKAGE = "tuner_trainer"
PROBES = {"trace-memory": "tracer", "started-memory": "import_footprint"}


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
    probe = PROBES.get(" ".join(sys.argv[1:]))
    if probe is not None:
        sys.exit(import_module(f"{PACKAGE}.memory_tracer.{probe}").main())
    sys.exit(import_module(f"{PACKAGE}.main").main(sys.argv[1:]))
