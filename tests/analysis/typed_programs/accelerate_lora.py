"""Teaches a language model to answer questions, with adapters."""

import argparse

import torch
from accelerate import Accelerator
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

parser = argparse.ArgumentParser(description="tune")
parser.add_argument("--model", default="EleutherAI/pythia-410m")
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=8)
tokenizer = AutoTokenizer.from_pretrained(args.model)
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(args.model)
model = get_peft_model(model, LoraConfig(r=16, target_modules=["query_key_value"]))


def encode(row):
    text = f"Question: {row['instruction']}\nAnswer: {row['output']}"
    return tokenizer(text, truncation=True, max_length=512, padding="max_length")


data = load_dataset("tatsu-lab/alpaca", split="train").map(encode)
data.set_format("torch", columns=["input_ids", "attention_mask"])
loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
schedule = get_cosine_schedule_with_warmup(optimizer, 100, len(loader) * args.epochs)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(args.epochs):
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch, labels=batch["input_ids"]).loss
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    accelerator.save_state(f"state-{epoch}")
