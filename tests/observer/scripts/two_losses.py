"""A loop that calls `backward` at two places in every step, as a GAN does, and prints nothing."""

import torch
from torch import nn

STEPS = 300


def main() -> None:
    torch.manual_seed(0)
    generator, discriminator = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizers = [torch.optim.SGD([each], lr=0.0) for each in (discriminator, generator)]
    for step in range(1, STEPS + 1):
        (discriminator + step).sum().backward()
        optimizers[0].step()
        (generator - step).sum().backward()
        optimizers[1].step()


if __name__ == "__main__":
    main()
