"""Inference: bundles, the translator, and streams of lines."""
