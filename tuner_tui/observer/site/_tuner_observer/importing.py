"""Run a function right after a module was imported by somebody else, whoever that is and whenever it happens."""

import sys


class PostImportFinder:
    """A finder in front of `sys.meta_path` that finds nothing itself; it lends its ear to the loaders of a few modules."""

    def __init__(self, hooks):
        self._hooks = hooks
        self._searching = set()

    def find_spec(self, name, path=None, target=None):
        hook = self._hooks.get(name)
        if hook is None or name in self._searching:
            return None
        self._searching.add(name)
        try:
            spec = self._spec_from_others(name, path, target)
        finally:
            self._searching.discard(name)
        if spec is not None and spec.loader is not None:
            _call_after_exec(spec.loader, name, hook)
        return spec

    def _spec_from_others(self, name, path, target):
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is self or find_spec is None:
                continue
            spec = find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


def _call_after_exec(loader, name, hook):
    """Shadow `exec_module` on this one loader object, and take the shadow away before it is used."""
    original = getattr(loader, "exec_module", None)
    if original is None or isinstance(loader, type):
        return

    def exec_module(module):
        if module.__name__ == name:
            loader.__dict__.pop("exec_module", None)
        original(module)
        if module.__name__ == name:
            call_safely(hook, module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        return


def call_safely(function, *args):
    """Call it; an error of the observer never reaches the training."""
    try:
        return function(*args)
    except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
        return None


def watch_imports(hooks):
    """`hooks` maps a module's full name to a function of that module. Modules already imported are served at once."""
    for name, hook in hooks.items():
        module = sys.modules.get(name)
        if module is not None:
            call_safely(hook, module)
    sys.meta_path.insert(0, PostImportFinder(hooks))
