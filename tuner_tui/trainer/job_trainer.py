"""The Trainer of the built-in job."""

from __future__ import annotations

from typing import Any

from transformers import Trainer

from .metrics import perplexity
from .stopping import EvaluationStopped, SparedWorker


class JobTrainer(Trainer):  # type: ignore[misc]  # Transformers is not typed
    """The Trainer, with perplexity beside a language model's loss, and evaluations that SIGTERM can break off."""

    language_model = False

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's own, with perplexity added to its metrics."""
        output = super().evaluation_loop(*args, **kwargs)
        for name in [name for name in output.metrics if name.endswith("_loss") and self.language_model]:
            output.metrics[name.removesuffix("loss") + "perplexity"] = perplexity(output.metrics[name])
        return output

    def get_train_dataloader(self) -> Any:
        """The Trainer's own, of the micro batch asked for: until Transformers 5, resuming brings the checkpoint's."""
        if not self.args.auto_find_batch_size:
            self._train_batch_size = self.args.train_batch_size
        return _spared(super().get_train_dataloader())

    def get_eval_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's own."""
        return _spared(super().get_eval_dataloader(*args, **kwargs))

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's own; broken off, it has no metrics, and the training saves and stops."""
        try:
            return super().evaluate(*args, **kwargs)
        except EvaluationStopped:
            self.control.should_save = True
            self.control.should_training_stop = True
            return {}


def _spared(loader: Any) -> Any:
    """The loader, whose workers outlive a SIGTERM that the trainer answers with a checkpoint."""
    inner = getattr(loader, "base_dataloader", loader)  # what accelerate's loader really reads
    if not isinstance(inner.worker_init_fn, SparedWorker):
        inner.worker_init_fn = SparedWorker(inner.worker_init_fn)
    return loader
