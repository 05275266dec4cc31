"""What a model says about samples: batches read, features and losses scored or observed in the training forward."""
