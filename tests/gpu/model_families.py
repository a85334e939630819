"""Small models of many architectures, as `config.json`, on which the estimate is compared with the ground truth.

`FAMILIES` were scored before anything was adapted to them and analysed afterwards; `UNSEEN` were scored once, at the
end.
"""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {"vocab_size": 8192, "max_position_embeddings": 1024}
DECODER: dict[str, Any] = {
    **COMMON, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 704,
}  # fmt: skip
GROUPED: dict[str, Any] = {**DECODER, "num_key_value_heads": 2}
ENCODER: dict[str, Any] = {
    **COMMON, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1024,
    "max_position_embeddings": 512,
}  # fmt: skip

CAUSAL: dict[str, dict[str, Any]] = {
    "qwen3": {**GROUPED, "model_type": "qwen3", "head_dim": 64, "tie_word_embeddings": True},
    "smollm3": {**GROUPED, "model_type": "smollm3", "tie_word_embeddings": True},
    "granite": {**GROUPED, "model_type": "granite", "tie_word_embeddings": False},
    "olmo": {**GROUPED, "model_type": "olmo", "tie_word_embeddings": False},
    "gemma2": {**GROUPED, "model_type": "gemma2", "vocab_size": 32_000, "head_dim": 48},
    "gemma3_text": {**GROUPED, "model_type": "gemma3_text", "vocab_size": 32_000, "head_dim": 64},
    "phi3": {**GROUPED, "model_type": "phi3", "tie_word_embeddings": False},
    "falcon": {**COMMON, "model_type": "falcon", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8},
    "mpt": {
        "model_type": "mpt", "d_model": 256, "n_layers": 4, "n_heads": 8, "vocab_size": 8192, "max_seq_len": 1024,
        "expansion_ratio": 4,
    },
    "gpt_neox": {**DECODER, "model_type": "gpt_neox", "tie_word_embeddings": False},
    "opt": {**COMMON, "model_type": "opt", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
            "ffn_dim": 1024, "word_embed_proj_dim": 256},
    "mixtral": {**GROUPED, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {
        **GROUPED, "model_type": "qwen3_moe", "head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 192,
    },
    "mamba": {
        "model_type": "mamba", "hidden_size": 256, "num_hidden_layers": 4, "vocab_size": 8192, "state_size": 16,
    },
}  # fmt: skip
CLASSIFYING: dict[str, dict[str, Any]] = {
    "electra": {**ENCODER, "model_type": "electra", "embedding_size": 128},
    "distilbert": {
        "model_type": "distilbert", "dim": 256, "n_layers": 4, "n_heads": 8, "hidden_dim": 1024, "vocab_size": 8192,
        "max_position_embeddings": 512,
    },
    "albert": {**ENCODER, "model_type": "albert", "embedding_size": 128, "num_hidden_groups": 1},
    "deberta-v2": {
        **ENCODER, "model_type": "deberta-v2", "relative_attention": True, "position_buckets": 256,
        "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0,
        "position_biased_input": False,
    },
    "t5": {
        "model_type": "t5", "d_model": 256, "d_kv": 32, "d_ff": 704, "num_layers": 4, "num_heads": 8,
        "vocab_size": 8192, "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0, "is_encoder_decoder": True,
    },
}  # fmt: skip
UNSEEN_CAUSAL: dict[str, dict[str, Any]] = {
    "olmo2": {**GROUPED, "model_type": "olmo2"},
    "starcoder2": {**GROUPED, "model_type": "starcoder2"},
    "stablelm": {**GROUPED, "model_type": "stablelm"},
    "cohere": {**GROUPED, "model_type": "cohere"},
    "bloom": {"model_type": "bloom", "hidden_size": 256, "n_layer": 4, "n_head": 8, "vocab_size": 8192},
    "phi": {**DECODER, "model_type": "phi"},
    "gpt_oss": {
        **GROUPED, "model_type": "gpt_oss", "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
        "intermediate_size": 256,
    },
    "ministral": {**GROUPED, "model_type": "ministral"},
}  # fmt: skip
UNSEEN_CLASSIFYING: dict[str, dict[str, Any]] = {
    "mpnet": {**ENCODER, "model_type": "mpnet"},
    "bart": {
        "model_type": "bart", "d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 8,
        "decoder_attention_heads": 8, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "vocab_size": 8192,
        "max_position_embeddings": 512, "is_encoder_decoder": True,
    },
    "xlnet": {"model_type": "xlnet", "d_model": 256, "n_layer": 4, "n_head": 8, "d_inner": 1024, "vocab_size": 8192},
    "nomic_bert": {**ENCODER, "model_type": "nomic_bert"},
}  # fmt: skip

FAMILIES = {**CAUSAL, **CLASSIFYING}
UNSEEN = {**UNSEEN_CAUSAL, **UNSEEN_CLASSIFYING}
