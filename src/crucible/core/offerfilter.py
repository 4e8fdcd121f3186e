"""The import path of `OfferFilter` in the documentation of 0.1.0; new code imports it from `crucible.client`."""

from crucible.core.compute.offer_filter import OfferFilter

__all__ = ["OfferFilter"]
