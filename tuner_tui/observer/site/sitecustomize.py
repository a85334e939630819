"""Python imports this at start-up because its folder leads PYTHONPATH. Installs the observer, then runs the user's own.

Without `TUNER_RUN_DIR` nothing is installed. Whatever goes wrong in the observer, the process starts without it.
"""

import os
import sys


def _install_observer() -> None:
    try:
        import _tuner_observer  # type: ignore[import-not-found]  # found by the folder that leads sys.path

        _tuner_observer.install()
    except Exception:  # noqa: BLE001 - the training must start whatever happens here
        return


def _run_next_sitecustomize() -> None:
    """Run the `sitecustomize` that this one hides; its errors are the user's and are shown by `site` as ever."""
    # Under their own names: these are loaded already, `importlib.machinery` would be an import of its own.
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("TUNER_RUN_DIR"):
    _install_observer()
_run_next_sitecustomize()
