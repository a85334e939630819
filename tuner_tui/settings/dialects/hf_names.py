"""Argument, optimizer and schedule names of Hugging Face that are recognised on import but not written.

Read from `dataclasses.fields(TrainingArguments)` of transformers 5.23.0 and from the releases that removed
the older ones.
"""

from __future__ import annotations

from collections.abc import Mapping

SCRIPT_FIELDS = frozenset({
    "max_length", "attn_implementation", "peft_method", "lora_r", "lora_alpha", "lora_dropout", "weights_dtype",
    "quantization", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant",
})  # fmt: skip
"""Settings that no TrainingArguments has: a script passes them to the tokenizer, the model or the adapter."""


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ARGUMENTS = _split("""
    output_dir lr_scheduler_kwargs optim_args adam_beta1 adam_beta2 adam_epsilon optim_target_modules
    average_tokens_across_devices label_smoothing_factor bf16_full_eval fp16_full_eval
    activation_checkpointing_kwargs gradient_checkpointing_kwargs torch_compile_backend torch_compile_mode
    use_liger_kernel liger_kernel_config use_cache neftune_noise_alpha torch_empty_cache_steps
    auto_find_batch_size logging_strategy logging_first_step log_on_each_node logging_nan_inf_filter
    include_num_input_tokens_seen log_level log_level_replica disable_tqdm report_to run_name project
    trackio_space_id trackio_bucket_id trackio_static_space_id eval_delay prediction_loss_only eval_on_start
    eval_do_concat_batches eval_use_gather_object eval_accumulation_steps include_for_metrics
    batch_eval_metrics save_only_model save_on_each_node enable_jit_checkpoint push_to_hub hub_token
    hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision load_best_model_at_end
    metric_for_best_model greater_is_better ignore_data_skip restore_callback_states_from_checkpoint
    full_determinism data_seed use_cpu accelerator_config parallelism_config dataloader_drop_last
    dataloader_multiprocessing_context dataloader_in_order remove_unused_columns label_names
    length_column_name ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph
    ddp_backend ddp_timeout fsdp fsdp_config deepspeed debug skip_memory_metrics do_train do_eval do_predict
    resume_from_checkpoint local_rank
""")

_REMOVED_ARGUMENTS = _split("""
    adafactor dispatch_batches split_batches include_inputs_for_metrics include_tokens_per_second ipex
    xpu_backend jit_mode_eval logging_dir mp_parameters no_cuda overwrite_output_dir past_index
    push_to_hub_model_id push_to_hub_organization push_to_hub_token ray_scope save_safetensors sharded_ddp
    torchdynamo tpu_metrics_debug tpu_num_cores use_ipex use_legacy_prediction_loop use_liger use_mps_device
    fp16_backend fp16_opt_level half_precision_backend fsdp_min_num_params
    fsdp_transformer_layer_cls_to_wrap evaluate_during_training
""")

_SCRIPT_ARGUMENTS = _split("""
        model_name_or_path model_name model dataset_name dataset_config_name dataset data_path
    train_file validation_file     test_file text_column text_column_name label_column_name
    max_train_samples max_eval_samples     tokenizer_name config_name cache_dir
    model_revision trust_remote_code preprocessing_num_workers num_labels task_name
    early_stopping_patience
""")

_APEX = "an option of NVIDIA Apex, which transformers 5 no longer uses; set precision"

IGNORED_ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(_SCRIPT_ARGUMENTS, "not a setting; an argument of the training script"),
    **dict.fromkeys(_REMOVED_ARGUMENTS, "removed from transformers 5"),
    **dict.fromkeys(_ARGUMENTS, "an argument of TrainingArguments that is not a setting here"),
    "no_cuda": "removed from transformers 5, which calls it use_cpu",
    "use_mps_device": "removed from transformers 5, which detects the device",
    "tokenizer": "renamed to processing_class; removed in transformers 5",
    "use_liger": "transformers calls it use_liger_kernel",
    "logging_dir": "removed by transformers 5.15, which reads TENSORBOARD_LOGGING_DIR",
    "push_to_hub_token": "removed from transformers 5, which calls it hub_token",
    "push_to_hub_model_id": "removed from transformers 5, which calls it hub_model_id",
    "save_safetensors": "removed from transformers 5, which always saves safetensors",
    **dict.fromkeys(("fp16_opt_level", "fp16_backend", "half_precision_backend"), _APEX),
}
"""Argument to the reason why it is ignored."""

OPTIMIZERS = _split("""
    adamw_torch adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adafactor adamw_anyprecision
    adamw_torch_4bit adamw_torch_8bit ademamix sgd adagrad adamw_bnb_8bit adamw_8bit ademamix_8bit
    lion_8bit lion_32bit paged_adamw_32bit paged_adamw_8bit paged_ademamix_32bit paged_ademamix_8bit
    paged_lion_32bit paged_lion_8bit rmsprop rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit
    galore_adamw galore_adamw_8bit galore_adafactor galore_adamw_layerwise
    galore_adamw_8bit_layerwise galore_adafactor_layerwise lomo adalomo grokadamw
    schedule_free_radam schedule_free_adamw schedule_free_sgd apollo_adamw apollo_adamw_layerwise
    stable_adamw
""")
"""`OptimizerNames` of transformers 5.23.0."""

SCHEDULES = _split("""
    linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt
    reduce_lr_on_plateau cosine_with_min_lr cosine_warmup_with_min_lr warmup_stable_decay greedy
""")
"""`SchedulerType` of transformers 5.23.0."""

BITSANDBYTES_OPTIMIZERS = _split("""
    adamw_bnb_8bit adamw_8bit paged_adamw_32bit paged_adamw_8bit ademamix ademamix_8bit
    paged_ademamix_32bit paged_ademamix_8bit lion_32bit lion_8bit paged_lion_32bit paged_lion_8bit
    rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit
""")
"""Optimizers that come from bitsandbytes."""

TORCHAO_OPTIMIZERS = ("adamw_torch_4bit", "adamw_torch_8bit")
"""Optimizers that come from torchao."""

ARGUMENT_RELEASES: Mapping[str, tuple[tuple[int, int] | None, tuple[int, int] | None]] = {
    "evaluation_strategy": (None, (4, 41)),  # there until 4.50, with a warning
    "eval_strategy": ((4, 41), None),
    "group_by_length": (None, (5, 2)),
    "train_sampling_strategy": ((5, 2), None),
    "warmup_ratio": (None, (5, 0)),  # there until 5.14, with a warning
    "enable_jit_checkpoint": ((5, 0), None),
    "gradient_checkpointing": (None, (5, 23)),  # there, with a warning
    "activation_checkpointing": ((5, 23), None),
}
"""Argument to the first release that has it, and the first that lacks it or warns of it; None where there is none."""
