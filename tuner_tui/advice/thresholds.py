"""Every threshold of the live rules, in one place: change a figure here and every rule follows.

The comment says what a threshold is compared with, and where the figure comes from: one of the field notes (named by
the GPU they were written on), or judgement, where nothing was measured and the figure only separates noise from signal.
"""

from __future__ import annotations

# Field notes: the GPU or subject, the date or address, and what was measured there.
NOTES_3070 = "a training run on an RTX 3070, tuned in 2025: GPU busy rose from 85 to 95 %"
NOTES_T4 = "a training run on a T4, tuned in 2025: 2–2.5 times as fast"
NOTES_3070_8BIT = "training with an 8-bit optimizer on an RTX 3070; huggingface.co/docs/transformers/perf_train_gpu_one"
NOTES_3090 = "a training run on an RTX 3090, tuned on 2025-11-18: GPU busy rose from 75–85 to 92–95 %"
NOTES_UTILISATION = "a training run that left its GPU idle, tuned in 2025: 100 → 285 samples/s"
FIELD_NOTES = (NOTES_3070, NOTES_T4, NOTES_3070_8BIT, NOTES_3090, NOTES_UTILISATION)
JUDGEMENT = "judgement"

# When advice may begin: before that, caches, compilers and allocators still settle.
WARM_UP_STEPS = 10  # optimizer steps of this process; judgement
WARM_UP_SLOW_STEPS = 3  # steps, if ten would take longer than a minute; judgement
WARM_UP_SLOW_S = 60  # seconds of training; judgement
COMPILE_WARM_UP_S = 120  # seconds of training under torch.compile; T4 notes
WINDOW_S = 30  # seconds of samples looked at; judgement
WINDOW_FULL_S = 6  # seconds of samples needed before hardware is judged; judgement

# A finding appears after it held, and goes after it was gone.
APPEAR_S = 4  # seconds a finding must last; judgement
VANISH_S = 10  # seconds a finding must be gone; judgement
ORDER_S = 30  # seconds in which findings do not change places; judgement
ORDER_SHARE = 0.15  # of the time: by how much one finding costs more than another to take its place; judgement

# Where the step goes.
DATA_WAIT_WARNING = 0.25  # of step time; judgement
DATA_WAIT_HINT = 0.10  # of step time; RTX 3090 notes: 5-10 % gained where loading was the bottleneck
DATA_WAIT_HINT_S = 0.001  # seconds per step: less than a worker takes to pass a batch; judgement
EVAL_SHARE = 0.35  # of wall time; judgement
SAVE_SHARE = 0.15  # of wall time; judgement
BETWEEN_SHARE = 0.35  # of step time; judgement
OWN_CODE_SHARE = 0.15  # of step time, as profiled; judgement
SLOW_RANK_SHARE = 0.15  # of step time that the other ranks wait for the slowest; judgement
SLOW_RANK_S = 0.001  # seconds a step that they wait: less is the cost of a collective itself; judgement
PADDING_SHARE = 0.35  # of all tokens; RTX 3090 notes: bucketing and packing gain 15-30 %
SHORT_STEP_S = 0.05  # seconds a micro step; judgement

# Processor.
CORE_FULL_PCT = 95  # % of one core; judgement; RTX 3070 8-bit notes look for processors at 100 %
WORKER_IDLE_PCT = 25  # % of one core; judgement
CPU_FULL_PCT = 90  # % of all cores; judgement; RTX 3070 8-bit notes look for processors at 100 %
CPU_OTHERS_SHARE = 0.25  # of all cores, used by other programs; judgement
CPU_QUEUE_PCT = 25  # % of the time the training's main thread waits for a core; judgement
WORKERS_FILL_SHARE = 0.4  # of all cores, used by loader workers that are too many; judgement
CPU_LOW_PCT = 50  # % of all cores; utilisation notes

# GPU.
GPU_BUSY_GOOD_PCT = 90  # % GPU-Util; RTX 3070 notes
GPU_LOW_PCT = 70  # % GPU-Util; T4 notes
GPU_VERY_LOW_PCT = 50  # % GPU-Util; utilisation notes
POWER_LOW_SHARE = 0.55  # of the power limit while GPU-Util is high; judgement
VRAM_LOW_SHARE = 0.80  # of the GPU; utilisation notes: 80-95 % is good; RTX 3090 notes
VRAM_NEAR_LIMIT_SHARE = 0.95  # of the GPU; utilisation notes: 80-95 % is good
OTHER_PROCESS_BYTES = 500e6  # bytes of the GPU used by other processes; T4 notes: close other notebooks
THROTTLED_SHARE = 0.5  # of the samples; judgement

# Memory of the host, and disk.
SWAP_IN_BYTES_S = 5e6  # bytes per second read back from swap; judgement
RAM_NEAR_LIMIT_SHARE = 0.95  # of the memory this training may use; judgement
SHM_NEAR_LIMIT_BYTES = 32e6  # bytes free in /dev/shm; judgement
DISK_FREE_BYTES = 2e9  # bytes free where checkpoints go; judgement
LEAK_WINDOWS = 7  # windows of the run in which memory held between steps grew; judgement
LEAK_WINDOWS_AT_END = 4  # such windows before memory ran out, which proves that it was too much; judgement
LEAK_BYTES = 64e6  # bytes of growth in all; judgement
LEAK_SHARE = 0.05  # of the memory held at first, grown in all; judgement
LEAK_SHARE_AT_END = 0.25  # of the memory held at first, grown before memory ran out; judgement
LEAK_HORIZON_S = 86_400  # seconds until memory is full, if the end of the training is unknown; judgement
DISK_BUSY_BYTES_S = 80e6  # bytes per second read while the training waits for data; judgement
DISK_WAIT_SHARE = 0.3  # of the moments at which a worker is seen, those in which it waits for a disk; judgement

# Numbers.
IDLE_STEPS = 10  # steps without an effect: one or two are the end of a schedule; judgement
SCALER_STEPS = 100  # steps in which a loss scaler may still search for its scale; judgement
COMPILING_S = 20  # seconds of compilation before it is explained; T4 notes
