"""Operations on fake tensors have the shapes and keep the tensors that the real ones have on a GPU."""

from __future__ import annotations

import pytest

from tests.late_module import late_module

torch, transformers = late_module("torch"), late_module("transformers")
fake_tensor, checkpoint = late_module("torch._subclasses.fake_tensor"), late_module("torch.utils.checkpoint")
cuda_emulation = late_module("tuner_tui.trainer.memory_tracer.cuda_emulation")
storage_counter = late_module("tuner_tui.trainer.memory_tracer.storage_counter")


@pytest.mark.parametrize(("first", "second"), [((6, 8), (2, 8, 4)), ((8, 8), (8, 4)), ((2, 3, 8), (2, 8, 4))])
def test_a_grouped_product_has_its_shape_in_every_type(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    if cuda_emulation.GROUPED_MM is None:
        pytest.skip("this torch has no grouped products")
    offsets = None if len(first) == 3 else torch.tensor([4, first[0 if len(second) == 3 else 1]], dtype=torch.int32)
    real = torch._grouped_mm(torch.ones(first), torch.ones(second), offs=offsets)
    with fake_tensor.FakeTensorMode(), storage_counter.StorageCounter():
        offsets = None if offsets is None else torch.empty(2, dtype=torch.int32)
        made = torch._grouped_mm(torch.empty(first), torch.empty(second), offs=offsets)
    assert (made.shape, made.dtype) == (real.shape, real.dtype)
    assert real.shape == torch.Size(cuda_emulation.grouped_mm_shape(first, second, offsets))


@pytest.mark.parametrize(
    ("dtype", "flash", "fused"),
    [("bfloat16", True, True), ("float16", False, False), ("float32", True, False)],
)
def test_grouped_queries_need_flash_attention(dtype: str, flash: bool, fused: bool) -> None:
    """No other fused kernel takes them: on a T4, and in fp32, the scores are kept."""
    with fake_tensor.FakeTensorMode():
        query = torch.empty(1, 4, 8, 16, dtype=getattr(torch, dtype), requires_grad=True)
        keys = torch.empty(1, 2, 8, 16, dtype=getattr(torch, dtype))
        out = cuda_emulation.attention(query, keys, keys, is_causal=True, enable_gqa=True, flash=flash)
    assert (out.grad_fn.name() == "FusedAttentionBackward") is fused


def test_a_bias_that_trains_gets_a_gradient_with_checkpointing() -> None:
    """The positions of T5 and its relatives are added to the scores."""
    with fake_tensor.FakeTensorMode():
        query = torch.empty(1, 4, 8, 16, requires_grad=True)
        bias = torch.empty(1, 4, 8, 8, requires_grad=True)
        checkpoint.checkpoint(cuda_emulation.attention, query, query, query, bias, use_reentrant=False).sum().backward()
    assert bias.grad is not None
    assert bias.grad.shape == bias.shape
