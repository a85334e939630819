"""Python imports this at start-up because its folder leads PYTHONPATH. Installs the observer, then runs the user's own.

Without `TUNER_RUN_DIR` nothing is installed. Whatever goes wrong in the observer, the process starts without it, and
the run says why. This file alone must be valid in Python 2.7 too: every Python that is started below the run reads it.
"""

import os
import sys

OLDEST = (3, 8)
REPORTED = "_TUNER_UNOBSERVED"


def _install_observer():  # type: () -> None
    if sys.version_info < OLDEST:
        version = ".".join(str(part) for part in sys.version_info[:3])
        return _report_unobserved("its Python %s is older than 3.8" % version)
    try:
        import _tuner_observer  # type: ignore[import-not-found]  # found by the folder that leads sys.path

        _tuner_observer.install()
    except Exception as error:  # noqa: BLE001 - the training must start whatever happens here
        _report_unobserved("the observer failed to start: %s" % type(error).__name__)


def _report_unobserved(reason):  # type: (str) -> None
    """Write an event, once in a tree of processes and not below an observed one. Standard JSON: the text is plain."""
    if os.environ.get(REPORTED) or os.environ.get("_TUNER_OBSERVED"):
        return
    os.environ[REPORTED] = "1"
    line = '{"story":1,"kind":"unobserved","v":1,"reason":"%s","t":%.3f}\n' % (reason, __import__("time").time())
    try:
        with open(os.path.join(os.environ["TUNER_RUN_DIR"], "events.jsonl"), "a") as file:
            file.write(line)
    except (IOError, OSError):
        pass


def _run_next_sitecustomize():  # type: () -> None
    """Run the `sitecustomize` that this one hides; its errors are the user's and are shown by `site` as ever."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    if sys.version_info[0] == 2:
        return _run_next_of_python_2(others)
    # Under their own names: these are loaded already, `importlib.machinery` would be an import of its own.
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return None

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)
    return None


def _run_next_of_python_2(others):  # type: (list[str]) -> None
    imp = __import__("imp")
    try:
        module = imp.find_module("sitecustomize", others)
    except ImportError:
        return
    imp.load_module("sitecustomize", *module)


if os.environ.get("TUNER_RUN_DIR"):
    _install_observer()
_run_next_sitecustomize()
