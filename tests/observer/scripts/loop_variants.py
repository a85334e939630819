"""Many kinds of training, each in a forked child of a parent that never trains: each child tells a story of its own."""

import argparse
import gc
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

import accelerate  # noqa: F401 - once for all children
import torch
import torch._dynamo  # imported by the first optimizer otherwise: a second in every child
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

SLOW_S = 0.4
ACCUMULATION, STEPS, BATCHES, SIZE, EPOCHS, FOLDS = 3, 300, 5, 4, (3, 5), 3


def loader_of(batches: int = BATCHES, size: int = SIZE) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.randn(batches * size, 4)), batch_size=size)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, loader: Iterable[tuple[torch.Tensor, ...]]) -> None:
    for (inputs,) in loader:
        optimizer.zero_grad()
        model(inputs).mean().backward()
        optimizer.step()


def amp_with_a_skipped_step() -> None:
    """Autocast, and one infinite gradient that the scaler refuses."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for step, (inputs,) in enumerate(DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=4)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(inputs).float().pow(2).mean()
        if step == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def two_optimizers() -> None:
    """As a GAN does it: both step once for each batch."""
    models = [nn.Linear(4, 1), nn.Linear(4, 1)]
    optimizers = [torch.optim.Adam(models[0].parameters()), torch.optim.SGD(models[1].parameters(), lr=0.1)]
    for (inputs,) in DataLoader(TensorDataset(torch.randn(20, 4)), batch_size=4):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(inputs).mean().backward()
            time.sleep(0.01)
            optimizer.step()


def own_saves() -> None:
    """Saves before, within and after its steps, by torch and by safetensors."""
    from safetensors.torch import save_file

    model = nn.Linear(64, 64)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), f"{folder}/first.pt")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, (inputs,) in enumerate(DataLoader(TensorDataset(torch.randn(12, 64)), batch_size=4)):
            optimizer.zero_grad()
            model(inputs).mean().backward()
            optimizer.step()
            torch.save({"model": model.state_dict(), "step": step}, f"{folder}/{step}.pt")
        save_file(model.state_dict(), f"{folder}/last.safetensors")


def accumulation() -> None:
    """Three micro batches a step, from a dict with a padding mask."""
    samples = [
        {"input_ids": torch.arange(6), "attention_mask": torch.tensor([1] * (6 - row % 3) + [0] * (row % 3))}
        for row in range(24)
    ]
    model = nn.Embedding(6, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    for index, batch in enumerate(DataLoader(samples, batch_size=4)):
        model(batch["input_ids"]).mean().backward()
        if index % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()


class Stream(IterableDataset):
    """Pairs of tokens and targets, packed, no length."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for index in range(10):
            tokens = torch.arange(index, index + 9)
            yield tokens[:-1], tokens[1:]


def iterable() -> None:
    """A stream of unnamed token pairs, pinned to no length."""
    model = nn.Embedding(32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, ((inputs,) for inputs, _ in DataLoader(Stream(), batch_size=2)))


def compiled() -> None:
    """A compiled model, then a compiled optimizer step: the hooks are traced with it and must do no harm."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fast = torch.compile(model, backend="eager")
    for (inputs,) in DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4):
        fast(inputs).mean().backward()
        optimizer.step()
    torch.compile(optimizer.step, backend="eager")()


def no_loader() -> None:
    """Steps without any DataLoader."""
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()


def frozen_teacher() -> None:
    """Distillation that puts its teacher into eval mode again before every batch: that is no evaluation."""
    teacher, student = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    batches = iter(DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4))
    for _ in range(10):
        teacher.eval()
        (inputs,) = next(batches)
        optimizer.zero_grad()
        (student(inputs) - teacher(inputs)).pow(2).mean().backward()
        optimizer.step()


def accelerated() -> None:
    """As the examples of accelerate do it: accumulation, clipping, autocast and an evaluation after each epoch."""
    from accelerate import Accelerator

    accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16", cpu=True)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(24, 4))
    model, optimizer, train, test = accelerator.prepare(
        model, optimizer, DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=12)
    )
    for _ in range(2):
        model.train()
        for (inputs,) in train:
            with accelerator.accumulate(model):
                accelerator.backward(model(inputs).float().mean())
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            for (inputs,) in test:
                accelerator.gather_for_metrics(model(inputs))


def nested_batches() -> None:
    """Named tokens in a pair with their targets; then a batch that is one tensor, from a loader of its own."""
    model = nn.Embedding(6, 4)
    optimizer = torch.optim.Adam(model.parameters())
    samples = [({"input_ids": torch.arange(6), "attention_mask": torch.tensor([1] * 5 + [0])}, 1)] * 8
    for inputs, _ in DataLoader(samples, batch_size=4):
        model(inputs["input_ids"]).mean().backward()
        optimizer.step()
    for batch in DataLoader(torch.arange(6), batch_size=3):
        model(batch).mean().backward()
        optimizer.step()


def own_switches() -> None:
    """Settings of torch that a script makes by itself: TF32, no flash attention, two threads, a fused optimizer."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_flash_sdp(False)
    torch.set_num_threads(2)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, weight_decay=0.25)
    loader = DataLoader(
        TensorDataset(torch.randn(16, 4)), batch_size=4, num_workers=1, prefetch_factor=3, persistent_workers=True,
        drop_last=True, multiprocessing_context="fork",
    )  # fmt: skip
    for (inputs,) in loader:
        model(inputs).mean().backward()
        optimizer.step()


def leaving_at_once() -> None:
    """Ends as scripts do whose libraries hang on their way out."""
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(7):
        weight.sum().backward()
        optimizer.step()
    os._exit(0)


def raising() -> None:
    """Runs out of memory in its second step, as far as words go."""
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    raise RuntimeError("CUDA error: out of memory")


def replaced_optimizer() -> None:
    """Warms up with one optimizer and goes on with another, in whose place in memory it may come."""
    model = nn.Linear(4, 1)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (inputs,) in enumerate(DataLoader(TensorDataset(torch.randn(20, 4)), batch_size=2)):
        if step == 4:
            optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        optimizer.zero_grad()
        model(inputs).mean().backward()
        optimizer.step()


def kept_optimizer() -> None:
    """Trains twice, with an optimizer each, and keeps the first: as many scripts with folds or stages do."""
    model = nn.Linear(4, 1)
    optimizers = []
    for _ in range(2):
        optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1))
        train(model, optimizers[-1], loader_of(3))


def larger_validation_batches() -> None:
    """Validates with gradients on and in training mode, with other batches than it trains with."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = DataLoader(TensorDataset(torch.randn(20, 4)), batch_size=4, shuffle=True)
    validation = DataLoader(TensorDataset(torch.randn(30, 4)), batch_size=10)
    for _ in range(2):
        train(model, optimizer, training)
        for (inputs,) in validation:
            model(inputs).mean().item()


def evaluation_after_each_step() -> None:
    """Each batch is asked for while the model is still in eval mode."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    validation = DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=8)
    for (inputs,) in DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=4, shuffle=True):
        model.train()
        optimizer.zero_grad()
        model(inputs).mean().backward()
        optimizer.step()
        model.eval()
        with torch.inference_mode():
            for (held_out,) in validation:
                model(held_out)


def closure_of_the_optimizer() -> None:
    """L-BFGS calls the model several times for each of its steps."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5)
    for (inputs,) in DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=4):

        def closure(inputs: torch.Tensor = inputs) -> float:
            optimizer.zero_grad()
            loss = model(inputs).pow(2).mean()
            loss.backward()
            return float(loss)

        optimizer.step(closure)


def unlogged_loss() -> None:
    """Prints nothing; three batches to a step, and one number of epochs among its variables."""
    args = argparse.Namespace(num_epochs=2)
    loader = DataLoader(TensorDataset(torch.ones(18, 1)), batch_size=2)
    held_out = DataLoader(TensorDataset(torch.ones(8, 1)), batch_size=2)
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.25)
    for _ in range(args.num_epochs):
        for number, (inputs,) in enumerate(loader, 1):
            (((weight - inputs) ** 2).mean() / ACCUMULATION).backward()
            if number % ACCUMULATION == 0:
                optimizer.step()
        with torch.no_grad():
            for (inputs,) in held_out:
                weight * inputs


def two_losses() -> None:
    """Calls `backward` at two places in every step, as a GAN does, and prints nothing."""
    generator, discriminator = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizers = [torch.optim.SGD([each], lr=0.0) for each in (discriminator, generator)]
    for step in range(1, STEPS + 1):
        (discriminator + step).sum().backward()
        optimizers[0].step()
        (generator - step).sum().backward()
        optimizers[1].step()


def train_epochs(epochs: int) -> None:
    model, loader = nn.Linear(4, 1), loader_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        train(model, optimizer, loader)


def two_trainings() -> None:
    """One after the other, each with an optimizer and a number of epochs of its own."""
    train_epochs(EPOCHS[0])
    train_epochs(EPOCHS[1])


def folds() -> None:
    """Cross-validation: several models, each trained by an optimizer of its own and then left in eval mode."""
    models = [nn.Linear(4, 1) for _ in range(FOLDS)]
    for model, optimizer in [(model, torch.optim.SGD(model.parameters(), lr=0.1)) for model in models]:
        model.train()
        train(model, optimizer, loader_of())
        model.eval()
        with torch.no_grad():
            for (inputs,) in loader_of(3, 2):
                model(inputs)


def modes_in_the_body() -> None:
    """The loop's body sets the mode of the model, as in ignite: a batch is fetched before the mode changes."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training, held_out = loader_of(), loader_of(3, 2)

    def update(inputs: torch.Tensor) -> None:
        model.train()
        optimizer.zero_grad()
        model(inputs).mean().backward()
        optimizer.step()

    def evaluate(inputs: torch.Tensor) -> None:
        model.eval()
        with torch.no_grad():
            model(inputs)

    for _ in range(3):
        for process, loader in ((update, training), (evaluate, training), (evaluate, held_out)):
            for (inputs,) in loader:
                process(inputs)


def estimated_loss() -> None:
    """Without a loader; accumulates by itself and estimates its loss every four steps, before the first one too.

    Prints the seconds of the estimates after the first step.
    """
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    optimizer, spent_s = torch.optim.SGD(model.parameters(), lr=0.01), 0.0

    def batch() -> torch.Tensor:
        time.sleep(0.003)
        return torch.ones(2, 4)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def estimate_loss() -> float:
        model.eval()
        loss: float = sum(model(batch()).pow(2).mean().item() for _ in range(20))
        model.train()
        return loss

    for step in range(13):
        if step % 4 == 0:
            began_s = time.perf_counter()
            estimate_loss()
            spent_s += time.perf_counter() - began_s if step else 0.0
        for _ in range(ACCUMULATION):
            (model(batch()).pow(2).mean() / ACCUMULATION).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print("estimated_loss", spent_s, flush=True)


class OwnOptimizer:
    """Not derived from torch's, such as those of fastai."""

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        self.parameters = list(parameters)
        self.learning_rate = learning_rate

    def step(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.data.add_(parameter.grad, alpha=-self.learning_rate)
                parameter.grad.zero_()


def own_optimizer() -> None:
    """Two micro batches a step, and an evaluation after each epoch; no optimizer of torch is called."""
    model, loader = nn.Linear(4, 1), loader_of(6)
    opt = OwnOptimizer(model.parameters(), 0.05)
    for _ in range(3):
        for index, (inputs,) in enumerate(loader):
            model(inputs).pow(2).mean().backward()
            if index % 2 == 1:
                opt.step()
        model.eval()
        with torch.no_grad():
            for (inputs,) in loader_of(4):
                model(inputs)
        model.train()


def own_optimizer_of_long_steps() -> None:
    """Each step takes longer than the counters are apart, so that they are due when its batch is read."""
    model = nn.Linear(4, 1)
    opt = OwnOptimizer(model.parameters(), 0.05)
    for (inputs,) in loader_of(3):
        model(inputs).pow(2).mean().backward()
        opt.step()
        time.sleep(1.1)


def own_optimizer_without_modes() -> None:
    """Evaluates each batch in a context of its own and never calls `eval()`, as Keras does."""
    model = nn.Linear(4, 1)
    opt = OwnOptimizer(model.parameters(), 0.05)
    for _ in range(3):
        for (inputs,) in loader_of(4):
            model(inputs).pow(2).mean().backward()
            opt.step()
        for (inputs,) in loader_of(2):
            with torch.no_grad():
                model(inputs)


class OwnLoader(DataLoader[Any]):
    """Makes torch's iterator itself, as fastai does."""

    def __iter__(self) -> Any:
        iterator = _SingleProcessDataLoaderIter(self)
        for _ in range(len(self)):
            yield next(iterator)


def own_iteration() -> None:
    """A loader whose class iterates in its own way."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (inputs,) in OwnLoader(loader_of(5).dataset, batch_size=4):
        model(inputs).mean().backward()
        optimizer.step()


def uneven_optimizers() -> None:
    """As soft actor-critic: in every second iteration two other optimizers take turns, twice."""
    critic, *others = [torch.optim.SGD(nn.Linear(4, 1).parameters(), lr=0.1) for _ in range(3)]
    for step in range(20):
        for optimizer in (critic, *(others * 2 if step % 2 else ())):
            weight, bias = optimizer.param_groups[0]["params"]
            loss = nn.functional.linear(torch.randn(2, 4), weight, bias).pow(2).mean()
            optimizer.zero_grad()
            if optimizer is critic:
                loss.backward()
            else:
                loss.backward(retain_graph=True)
            optimizer.step()


def optimizer_of_the_loss() -> None:
    """A loss with parameters of its own, which another optimizer trains at the same time."""
    model, loss = nn.Linear(4, 8), nn.Linear(8, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.5), torch.optim.Adam(loss.parameters(), lr=0.25)]
    for (inputs,) in loader_of():
        loss(model(inputs)).mean().backward()
        for optimizer in optimizers:
            optimizer.step()
        time.sleep(SLOW_S)


def another_optimizer_to_end_with() -> None:
    """As where equations are solved: no loader, and the second optimizer goes on with what the first has trained."""
    encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 1)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    first, second = torch.optim.Adam(parameters), torch.optim.SGD(parameters, lr=0.1)
    for _ in range(6):
        decoder(encoder(torch.ones(2, 4))).pow(2).mean().backward()
        first.step()
    for _ in range(9):
        decoder(encoder(torch.ones(2, 4))).pow(2).mean().backward()
        second.step()
        time.sleep(SLOW_S)


def gradients_before_the_training() -> None:
    """Looks at gradients first, as a test of them does."""
    model = nn.Linear(4, 1)
    for _ in range(4):
        model.zero_grad()
        model(torch.randn(2, 4)).mean().backward()
    train_epochs(1)


def warm_up_by_hand() -> None:
    """Sets the rate before the first step."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
    for step, (inputs,) in enumerate(loader_of(4)):
        optimizer.param_groups[0]["lr"] = 0.1 * (step + 1)
        model(inputs).mean().backward()
        optimizer.step()


def evaluation_in_the_body() -> None:
    """Evaluates between fetching a batch and using it, in eval mode alone; the step after it takes long."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (inputs,) in enumerate(loader_of(4)):
        if step == 2:
            model.eval()
            for (held_out,) in loader_of(3):
                model(held_out)
            model.train()
            time.sleep(SLOW_S)
        model(inputs).mean().backward()
        optimizer.step()


class Graphs:
    """A batch of graphs, whose `keys` are a property, and whose second half cannot be looked into."""

    keys = ("nodes", "edges")

    def __init__(self, samples: list[torch.Tensor]) -> None:
        self.nodes = torch.cat(samples)

    def __getitem__(self, key: str) -> torch.Tensor:
        if key == "edges" or self.nodes.mean() > 0.5:
            raise KeyError(key)
        return self.nodes


def unreadable_batches() -> None:
    """Learns from batches that nobody else can read, with a network that follows the one that trains."""
    model = nn.ModuleDict({"network": nn.Linear(4, 1), "target": nn.Linear(4, 1)})
    optimizer = torch.optim.SGD(model["network"].parameters(), lr=0.1)
    data = [torch.full((2, 4), float(row >= 6)) for row in range(12)]
    for graphs in DataLoader(data, batch_size=2, collate_fn=Graphs):
        optimizer.zero_grad()
        (model["network"](graphs.nodes) - model["target"](graphs.nodes).detach()).pow(2).mean().backward()
        optimizer.step()


def configuration_of_locals(epochs: int = 3, rate: float = 0.1) -> None:
    """Keeps its arguments as its configuration, which Python itself updates when something reads its variables."""
    config = locals()
    config["rate"] /= 2
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["rate"])
    for _ in range(epochs):
        model(torch.ones(2, 1)).sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = config["rate"]


def configuration_of_vars(epochs: int = 3, rate: float = 0.1) -> None:
    """Keeps them by `vars()`, and asks it for the attributes of something else before."""
    assert vars(argparse.Namespace(rate=rate)) == {"rate": rate}
    config = vars()
    config["rate"] /= 2
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["rate"])
    for _ in range(epochs):
        model(torch.ones(2, 1)).sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = config["rate"]


def resumed_with_adam() -> None:
    """Continues after 20 of 35 steps, which the optimizer has counted."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters())
    for each in model.parameters():  # as loaded from a checkpoint
        moments = {name: torch.ones_like(each) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[each] = {"step": torch.tensor(20.0), **moments}
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for epoch in range(4, 7):
        for step, (inputs,) in enumerate(loader_of()):
            loss = model(inputs).mean()
            scaler.scale(loss * float("inf") if (epoch, step) == (4, 0) else loss).backward()  # it skips the first step
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def resumed_within_an_epoch(start_epoch: int = 4, epochs: int = 7) -> None:
    """Continues after 22 of 35 steps, without the first two batches of the epoch."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters())
    for each in model.parameters():
        moments = {name: torch.ones_like(each) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[each] = {"step": torch.tensor(22.0), **moments}
    for epoch in range(start_epoch, epochs):
        for step, (inputs,) in enumerate(loader_of()):
            if epoch == start_epoch and step < 2:
                continue
            optimizer.zero_grad()
            model(inputs).mean().backward()
            optimizer.step()


def resumed_with_sgd(start_epoch: int = 4, epochs: int = 7) -> None:
    """Continues after 4 of 7 epochs, which the loop says."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(start_epoch, epochs):
        train(model, optimizer, loader_of())


def begun_at_epoch_one(start_epoch: int = 1, epochs: int = 3) -> None:
    """Counts its epochs from 1: nothing was resumed."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(start_epoch, epochs + 1):
        train(model, optimizer, loader_of())


SECTIONS = (
    unreadable_batches, configuration_of_locals, configuration_of_vars, resumed_with_adam, resumed_with_sgd,
    resumed_within_an_epoch,
    begun_at_epoch_one,
    own_optimizer, own_optimizer_of_long_steps, own_optimizer_without_modes, own_iteration, uneven_optimizers,
    optimizer_of_the_loss, another_optimizer_to_end_with,
    gradients_before_the_training, warm_up_by_hand, evaluation_in_the_body,
    amp_with_a_skipped_step, two_optimizers, own_saves, accumulation, iterable, compiled, no_loader, frozen_teacher,
    accelerated, nested_batches, own_switches, replaced_optimizer, kept_optimizer, larger_validation_batches,
    closure_of_the_optimizer, unlogged_loss, two_losses, two_trainings, folds, modes_in_the_body, estimated_loss,
    evaluation_after_each_step, leaving_at_once, raising,
)  # fmt: skip


if __name__ == "__main__":
    gc.freeze()  # else each child looks through all of torch for garbage, and copies it
    for section in SECTIONS:
        child = multiprocessing.get_context("fork").Process(target=section)
        child.start()
        child.join()
