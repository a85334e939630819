"""The modules, besides torch itself, whose import the observer waits for."""

WATCHED = (
    "torch.nn.modules.module",
    "torch.optim.optimizer",
    "torch.utils.data.dataloader",
    "torch.amp.grad_scaler",
    "torch.cuda.amp.grad_scaler",
    "torch.amp.autocast_mode",
    "torch._dynamo.callback",
    "safetensors.torch",
    "transformers.training_args",
    "transformers.trainer",
    "lightning.pytorch.trainer.trainer",
    "pytorch_lightning.trainer.trainer",
)
