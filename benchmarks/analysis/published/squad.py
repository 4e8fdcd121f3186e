"""Fine-tunes BERT to answer questions."""

import argparse

import torch
from datasets import load_dataset
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="bert-large-uncased")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--tf32", action="store_true")
args = parser.parse_args()

if args.tf32:
    torch.set_float32_matmul_precision("high")
tokenizer = AutoTokenizer.from_pretrained(args.model)
model = AutoModelForQuestionAnswering.from_pretrained(args.model)
raw = load_dataset("squad")


def encode(rows):
    return tokenizer(rows["question"], rows["context"], truncation="only_second", max_length=384, padding="max_length")


how = TrainingArguments(
    "out",
    per_device_train_batch_size=args.batch_size,
    num_train_epochs=args.epochs,
    learning_rate=3e-5,
    fp16=args.fp16,
)
Trainer(model=model, args=how, train_dataset=raw["train"].map(encode, batched=True)).train()
