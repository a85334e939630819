"""Python imports this at start-up because its folder leads PYTHONPATH. Installs the observer, then runs the user's own.

Without `TUNER_RUN_DIR` nothing is installed. Whatever goes wrong in the observer, the process starts as if it were not there.
"""

import sys


def _install_observer():
    try:
        import _tuner_observer

        _tuner_observer.install()
    except Exception:  # noqa: BLE001 - the training must start whatever happens here
        return


def _run_next_sitecustomize():
    """Run the `sitecustomize` that this one hides; its errors are the user's and are shown by `site` as ever."""
    import importlib.util
    import os
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_install_observer()
_run_next_sitecustomize()
