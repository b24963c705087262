"""Training: loss, schedules, the update, and everything between updates. Import from the modules; `trainer.fit` is the
entrance."""
