"""Learns BERT from texts with words left out. A step is `--batch-size` texts of one GPU."""

import argparse

import torch
from transformers import BertConfig, BertForMaskedLM

parser = argparse.ArgumentParser()
parser.add_argument("--length", type=int, default=128)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--steps", type=int, default=10_000)
args = parser.parse_args()

config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
model = BertForMaskedLM(config).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
scaler = torch.amp.GradScaler()
for _step in range(args.steps):
    words = torch.randint(config.vocab_size, (args.batch_size, args.length), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(input_ids=words, labels=words).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
