"""Starts the job: loads this folder as the package `tuner_trainer` and runs it.

With `trace-memory` in place of a configuration it reports the memory that the job would take (memory_tracer.tracer),
with `started-memory` that of its Python before a model exists (memory_tracer.import_footprint), with `measure-data` how
long the samples of a data set are (data.length_probe).

Python puts the folder of a script on `sys.path`, where modules such as `data` would hide those of libraries. So the
folder is removed from the path and loaded as a package with a name of its own.
"""

import sys
from importlib import import_module, util
from pathlib import Path

PACKAGE = "tuner_trainer"
PROBES = {
    "trace-memory": "memory_tracer.tracer",
    "started-memory": "memory_tracer.import_footprint",
    "measure-data": "data.length_probe",
}


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
        sys.exit(import_module(f"{PACKAGE}.{probe}").main())
    sys.exit(import_module(f"{PACKAGE}.main").main(sys.argv[1:]))
