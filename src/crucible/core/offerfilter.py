"""Keep the import path of `OfferFilter` that the documentation of 0.1.0 gave; `crucible.client` has it."""

from crucible.core.compute.offer_filter import OfferFilter

__all__ = ["OfferFilter"]
