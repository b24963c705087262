"""Training, evaluation and comparison without Hydra: `assemble` a job from plain settings, then `train` it."""
