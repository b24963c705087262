"""Hand-written autograd functions, each beside a plain `*_reference` that computes the same.

A reference documents what its kernel computes and is the oracle of its tests.
"""
