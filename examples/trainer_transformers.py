"""Fine-tune a small BERT with SelectiveTrainer, and resume it in the middle of an epoch.

    python examples/trainer_transformers.py [--out runs/transformers]

Nothing is downloaded: the reviews are made here, six of eight are about food, and BERT starts from random weights.
Needs pip install "submodular-data-loader[transformers]".
"""

import argparse
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    TrainingArguments,
    set_seed,
)

from smdl.integrations.transformers import SelectiveTrainer

TOPICS = {"food": "soup bread fish spice", "music": "song drum voice band", "travel": "train road hotel map"}
WORDS = ["the", "a", "was", "very", "good", "bad", "and", "so", *" ".join(TOPICS.values()).split()]


def reviews(count: int, seed: int) -> list[dict]:
    """Return reviews of different lengths, tokenised, with the number of their topic."""
    rng, tokenizer, found = random.Random(seed), make_tokenizer(), []
    for _ in range(count):
        label = rng.choices(range(3), [6, 1, 1])[0]
        topic = list(TOPICS.values())[label].split()
        words = rng.choices(WORDS[:8], k=rng.randint(3, 9)) + rng.choices(topic, k=2)
        rng.shuffle(words)
        found.append({**tokenizer(" ".join(words)), "labels": label})
    return found


def make_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(
        models.WordLevel({"[PAD]": 0, "[UNK]": 1, **{w: n + 2 for n, w in enumerate(WORDS)}}, "[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


def make_trainer(out: Path) -> SelectiveTrainer:
    set_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(WORDS) + 2, num_labels=3, **sizes))
    args = TrainingArguments(
        output_dir=str(out),
        num_train_epochs=8,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        save_steps=10,
        report_to=[],
        disable_tqdm=True,
    )
    return SelectiveTrainer(  # instead of Trainer
        model=model,
        args=args,
        train_dataset=reviews(400, seed=1),
        eval_dataset=reviews(200, seed=2),
        data_collator=DataCollatorWithPadding(make_tokenizer()),
        compute_metrics=lambda told: {"accuracy": float((told.predictions.argmax(1) == told.label_ids).mean())},
        selection={"method": "recommended"},  # any argument of smdl.DataLoader
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/transformers"))
    out = parser.parse_args().out
    trainer = make_trainer(out)
    trainer.train()
    print(trainer.loader)
    print(
        f"accuracy {trainer.evaluate()['eval_accuracy']:.3f}, {trainer.loader.forwards} samples forwarded for scoring"
    )
    resumed = make_trainer(out)
    resumed.train(resume_from_checkpoint=str(out / "checkpoint-20"))  # in the middle of the second epoch
    pairs = zip(trainer.model.parameters(), resumed.model.parameters(), strict=True)
    same = all(torch.equal(one, other) for one, other in pairs)
    print(f"resumed from step 20 of {resumed.state.global_step}: {'the same' if same else 'other'} weights")


if __name__ == "__main__":
    main()
