"""Are reviews kind? DistilBERT by the Trainer."""

import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

NAME = "distilbert-base-uncased"
tokenizer = AutoTokenizer.from_pretrained(NAME)
texts = load_dataset("imdb")
encoded = texts.map(lambda rows: tokenizer(rows["text"], truncation=True, max_length=256), batched=True)
model = AutoModelForSequenceClassification.from_pretrained(NAME, num_labels=2)


def scores(told):
    logits, labels = told
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


how = TrainingArguments(
    output_dir="kind",
    per_device_train_batch_size=16,
    num_train_epochs=3,
    learning_rate=2e-5,
    fp16=True,
    eval_strategy="epoch",
)
trainer = Trainer(
    model=model,
    args=how,
    train_dataset=encoded["train"],
    eval_dataset=encoded["test"],
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=scores,
)
trainer.train()
