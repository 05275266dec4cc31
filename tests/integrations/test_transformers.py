"""SelectiveTrainer: text classification with a small BERT, resumed at every checkpoint."""

import pytest
import torch
from torch.utils.data import Dataset

import smdl
from tests.integrations.runs import OURS_ARE_ERRORS, WAYS, check_staleness, same_weights, step_of

pytestmark = [pytest.mark.integrations, OURS_ARE_ERRORS]
transformers = pytest.importorskip("transformers")

TEXTS, CLASSES = 26, 4  # seven batches of 4, so that two per step of the optimizer leave one over


class Texts(Dataset):
    def __len__(self):
        return TEXTS

    def __getitem__(self, row):
        tokens = [(7 * row + 3 * place) % 47 + 1 for place in range(3 + row % 5)]
        return {"input_ids": tokens, "attention_mask": [1] * len(tokens), "label": row % CLASSES}


def pad(rows):
    """What DataCollatorWithPadding does, without a tokenizer: every batch has its own width."""
    width = max(len(row["input_ids"]) for row in rows)
    batch = {
        name: torch.tensor([row[name] + [0] * (width - len(row[name])) for row in rows])
        for name in ("input_ids", "attention_mask")
    }
    return {**batch, "labels": torch.tensor([row["label"] for row in rows])}


def bert():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=48, max_position_embeddings=8, num_labels=CLASSES, **sizes)
    return transformers.BertForSequenceClassification(config)


def trainer(kind, out, accumulation=1, workers=0, **options):
    transformers.set_seed(0)
    args = transformers.TrainingArguments(
        output_dir=str(out),
        per_device_train_batch_size=4,
        num_train_epochs=3,
        learning_rate=1e-2,
        gradient_accumulation_steps=accumulation,
        dataloader_num_workers=workers,
        save_strategy="steps",
        save_steps=3,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_steps=1000,
        remove_unused_columns=False,
        **options.pop("args", {}),
    )
    options = options if "model_init" in options else {"model": bert(), **options}
    return kind(args=args, train_dataset=Texts(), data_collator=pad, **options)


def selective():
    from smdl.integrations.transformers import SelectiveTrainer

    class Watched(SelectiveTrainer):
        """Notes the batch of every forward."""

        def training_step(self, model, inputs, *arguments):
            self.steps = [*getattr(self, "steps", []), step_of(self.loader)]
            self.tokens = [*getattr(self, "tokens", []), inputs["input_ids"].tolist()]
            return super().training_step(model, inputs, *arguments)

    return Watched


def run(way, out, accumulation, resume=None):
    options, _ = WAYS[way]
    workers = options.get("num_workers", 0)
    selection = {name: value for name, value in options.items() if name != "num_workers"}
    made = trainer(selective(), out, accumulation, workers, selection=selection)
    made.train(resume_from_checkpoint=resume)
    return made


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_every_checkpoint_resumes_to_the_same_weights(way, accumulation, tmp_path):
    whole = run(way, tmp_path / "whole", accumulation)
    assert len(whole.tokens) == 21
    saved = sorted((tmp_path / "whole").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert len(saved) == {1: 7, 2: 4}[accumulation]
    for checkpoint in (saved[0], saved[1], saved[-2]):
        part = run(way, tmp_path / "part", accumulation, str(checkpoint))
        assert part.tokens == whole.tokens[-len(part.tokens) :], checkpoint.name
        assert same_weights(part.model, whole.model), checkpoint.name
        assert part.state.global_step == whole.state.global_step


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "loss"])
def test_batches_are_chosen_with_the_weights_that_train_on_them(way, accumulation, tmp_path):
    made = run(way, tmp_path, accumulation)
    lag = WAYS[way][1]
    if way.startswith("observed"):
        check_staleness(made.steps, 7, lag)
    else:
        assert {step.staleness for step in made.steps} == {0}


def test_labels_are_judged_by_the_forwards_of_the_trainer(tmp_path):
    loader = run("recommended", tmp_path, accumulation=2).loader
    assert len(loader.suspects(TEXTS).indices) == TEXTS
    assert loader.forwards == 0


def test_every_sample_is_observed_although_the_trainer_accumulates(tmp_path):
    made = run("observed", tmp_path, accumulation=2)
    state = made.loader.state_dict()["candidates"]
    assert (state["observed_at"] >= 0).all()
    assert state["observations"] == 21
    assert made.loader.forwards == 0


def test_a_model_that_the_trainer_makes_itself_is_the_one_that_is_scored(tmp_path):
    made = trainer(selective(), tmp_path, model_init=bert, selection={"method": "observed"})
    for _ in range(2):  # every `train` makes a model
        made.train()
        assert made.loader.model is made.model
        assert made.loader.state_dict()["candidates"]["observations"] == 21
    saved = torch.load(tmp_path / "checkpoint-21" / "smdl_loader.pt", weights_only=True)
    assert saved["candidates"]["observations"] == 21
    resumed = trainer(selective(), tmp_path, model_init=bert, selection={"method": "observed"})
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-18"))
    assert resumed.tokens == made.tokens[-3:]
    assert same_weights(resumed.model, made.model)


def test_a_resumed_run_continues_from_the_last_checkpoint_by_itself(tmp_path):
    whole = run("observed", tmp_path, 1)
    (tmp_path / "checkpoint-21" / "trainer_state.json").rename(tmp_path / "away.json")
    (tmp_path / "checkpoint-21").rename(tmp_path / "finished")
    part = run("observed", tmp_path, 1, resume=True)
    assert len(part.tokens) == 3
    assert same_weights(part.model, whole.model)


def test_a_plain_trainer_that_would_rebuild_the_loader_is_stopped(tmp_path):
    run("fresh", tmp_path, 1)

    class Plain(transformers.Trainer):
        def get_train_dataloader(self):
            return smdl.DataLoader(Texts(), self.model, 4, collate_fn=pad, method="fresh")

    with pytest.raises(AttributeError, match=r"has no sampler.*SelectiveTrainer"):
        trainer(Plain, tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))


def test_a_checkpoint_without_the_loader_is_refused(tmp_path):
    run("fresh", tmp_path, 1)
    (tmp_path / "checkpoint-3" / "smdl_loader.pt").unlink()
    with pytest.raises(ValueError, match=r"checkpoint-3 has no smdl_loader.pt.*Selection cannot be resumed"):
        run("fresh", tmp_path, 1, str(tmp_path / "checkpoint-3"))


def test_a_batch_size_that_changes_is_refused(tmp_path):
    with pytest.raises(ValueError, match="auto_find_batch_size cannot be used"):
        trainer(selective(), tmp_path, args={"auto_find_batch_size": True})


def test_another_order_than_that_of_the_selection_is_refused(tmp_path):
    with pytest.raises(ValueError, match="train_sampling_strategy='group_by_length' cannot be used"):
        trainer(selective(), tmp_path, args={"train_sampling_strategy": "group_by_length"})


def test_selection_takes_any_argument_of_the_loader(tmp_path):
    selection = {"candidates": smdl.RandomPool(2), "seed": 9, "batch_size": 5}
    loader = trainer(selective(), tmp_path, selection=selection).get_train_dataloader()
    assert (loader.candidates, loader.seed, loader.batch_size) == (smdl.RandomPool(2.0), 9, 5)
