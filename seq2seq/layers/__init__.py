"""Layers without attention: embedding, positions, recurrence, convolution, output."""
