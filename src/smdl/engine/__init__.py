"""The engine: what a selection looks at, the terms, the objective, and how to maximise it. No model, no file."""
