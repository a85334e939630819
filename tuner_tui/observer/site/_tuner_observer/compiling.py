"""Name the phase in which torch.compile is at work; the next batch or step ends it."""


def watch(module, session):
    """`module` is `torch._dynamo.callback`; torch calls its callbacks around every compilation."""

    def compilation_began(*_):
        if session.phase in ("starting", "training"):
            session.enter("compiling")

    module.on_compile_start(compilation_began)
