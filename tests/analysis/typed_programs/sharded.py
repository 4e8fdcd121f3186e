"""A large model over all GPUs, each with a part of it."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from transformers import AutoModelForCausalLM, AutoTokenizer

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-2-7b-hf")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
model = FSDP(model, mixed_precision=half, device_id=torch.cuda.current_device())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
lines = Path("texts.txt").read_text().splitlines()
for step, line in enumerate(lines):
    words = tokenizer(line, return_tensors="pt", truncation=True, max_length=2048).to("cuda")
    loss = model(**words, labels=words["input_ids"]).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 500 == 0 and dist.get_rank() == 0:
        print(step, loss.item())
