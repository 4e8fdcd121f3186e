"""Architectures by name: millions of parameters, billions of multiply-adds and millions of kept activations.

For one image of the size given, as torchvision, timm and Keras make them, counted over the layers. What backward
keeps is about twice the outputs of the convolutions: their inputs, and those of the norms. The last number is how many
features the last layer gets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Architecture:
    """A well-known architecture: millions of parameters and activations, billions of multiply-adds for an image."""

    name: str
    parameters: float
    multiply_adds: float
    activations: float
    size: int = 224
    features: int = 0
    """Inputs of its last layer, the classifier, per image; 0 if unknown."""

    def with_classes(self, classes: int | None) -> float:
        """Return the parameters in millions with a classifier for this many classes; None: without a classifier."""
        if not self.features:
            return self.parameters
        if classes is None:
            return self.parameters - _TOPS.get(_key(self.name), (self.features + 1) * CLASSES) / 1e6
        return self.parameters - (self.features + 1) * (CLASSES - classes) / 1e6

    @property
    def convolves(self) -> bool:
        """Whether its arithmetic is mostly convolutions, not matrix products."""
        return not self.name.startswith(("vit", "deit", "swin", "convnext", "mixer", "maxvit"))

    @property
    def resizes(self) -> bool:
        """Whether it resizes every image to its own size."""
        return self.name.startswith(("fasterrcnn", "maskrcnn", "retinanet"))


_ROWS = """
alexnet 61.10 0.714 1.6 224 4096
vgg11 132.86 7.609 22 224 4096
vgg13 133.05 11.308 34 224 4096
vgg16 138.36 15.470 37 224 4096
vgg19 143.67 19.632 40 224 4096
vgg16_bn 138.37 15.470 64 224 4096
vgg19_bn 143.68 19.632 70 224 4096
resnet18 11.69 1.814 6.2 224 512
resnet34 21.80 3.664 9.4 224 512
resnet50 25.56 4.089 25.0 224 2048
resnet101 44.55 7.801 37.0 224 2048
resnet152 60.19 11.514 52.0 224 2048
resnext50_32x4d 25.03 4.230 32.0 224 2048
resnext101_32x4d 44.18 8.010 47.0 224 2048
resnext101_32x8d 88.79 16.414 70.0 224 2048
resnext101_64x4d 83.46 15.520 69.0 224 2048
wide_resnet50_2 68.88 11.398 32.0 224 2048
wide_resnet101_2 126.89 22.753 48.0 224 2048
densenet121 7.98 2.834 33.0 224 1024
densenet169 14.15 3.360 40.0 224 1664
densenet201 20.01 4.291 52.0 224 1920
densenet161 28.68 7.728 56.0 224 2208
googlenet 6.62 1.498 10.5 224 1024
inceptionv3 27.16 5.713 22.0 299 2048
inceptionresnetv2 55.84 13.2 50.0 299 1536
xception 22.86 8.4 60.0 299 2048
squeezenet1_0 1.25 0.819 6.0 224 512
squeezenet1_1 1.24 0.349 3.5 224 512
mobilenet 4.25 0.57 10.2 224 1024
mobilenetv2 3.50 0.301 14.0 224 1280
mobilenetv3small 2.54 0.057 3.0 224 1024
mobilenetv3large 5.48 0.217 9.0 224 1280
mnasnet1_0 4.38 0.314 11.0 224 1280
shufflenetv2_x1_0 2.28 0.145 4.0 224 1024
nasnetmobile 5.33 0.567 13.0 224 1056
nasnetlarge 88.95 23.8 140.0 331 4032
efficientnetb0 5.29 0.386 22.0 224 1280
efficientnetb1 7.79 0.687 35.7 240 1280
efficientnetb2 9.11 1.088 45.5 260 1408
efficientnetb3 12.23 1.827 78.1 300 1536
efficientnetb4 19.34 4.394 163.4 380 1792
efficientnetb5 30.39 10.266 327.2 456 2048
efficientnetb6 43.04 19.068 554.1 528 2304
efficientnetb7 66.35 37.746 962.3 600 2560
efficientnetv2s 21.46 8.366 60.0 384 1280
efficientnetv2b0 7.2 0.72 14.0 224 1280
efficientnetv2b1 8.2 1.21 20.0 240 1280
efficientnetv2b2 10.2 1.71 25.0 260 1408
efficientnetv2b3 14.5 3.03 40.0 300 1536
efficientnetv2m 54.14 24.582 140.0 480 1280
efficientnetv2l 118.52 56.081 300.0 480 1280
convnexttiny 28.59 4.456 34.0 224 768
convnextsmall 50.22 8.684 56.0 224 768
convnextbase 88.59 15.355 75.0 224 1024
convnextlarge 197.77 34.361 112.0 224 1536
regnety400mf 4.34 0.402 8.0 224 440
swint 28.29 4.491 42.0 224 768
swins 49.61 8.741 70.0 224 768
swinb 87.77 15.431 94.0 224 1024
vittiny16_224 5.72 1.3 12.0 224 192
vittinypatch16224 5.72 1.3 12.0 224 192
vitsmallpatch16224 22.05 4.6 25.0 224 384
vitb16 86.57 17.56 48.0 224 768
vitbasepatch16224 86.57 17.56 48.0 224 768
vitb32 88.22 4.41 12.0 224 768
vitl16 304.33 61.55 130.0 224 1024
vitlargepatch16224 304.33 61.55 130.0 224 1024
fasterrcnnresnet50fpn 41.76 134.38 300.0 800 0
maskrcnnresnet50fpn 44.40 134.38 320.0 800 0
retinanetresnet50fpn 34.01 151.54 320.0 800 0
fcnresnet50 35.32 152.72 200.0 520 0
fcnresnet101 54.31 232.74 280.0 520 0
deeplabv3resnet50 42.00 178.72 220.0 520 0
deeplabv3resnet101 61.00 258.74 300.0 520 0
deeplabv3mobilenetv3large 11.03 10.45 60.0 520 0
r3d18 33.37 40.70 60.0 112 0
"""


CLASSES = 1_000
"""Classes of ImageNet, the default of all image classifiers."""

_TOPS = {
    "alexnet": 58_631_144, "vgg11": 123_642_856, "vgg13": 123_642_856, "vgg16": 123_642_856, "vgg19": 123_642_856,
    "vgg16bn": 123_642_856, "vgg19bn": 123_642_856, "mobilenetv3small": 1_615_848, "mobilenetv3large": 2_511_080,
}  # fmt: skip
"""Parameters of the classifier of models where it has several layers."""


def _key(name: str) -> str:
    """Return the name without case and punctuation: libraries write `ResNet50V2`, `resnet50`, `efficientnet_b0`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _table() -> dict[str, Architecture]:
    found = {}
    for row in _ROWS.split("\n"):
        if row:
            name, parameters, adds, kept, size, features = row.split()
            numbers = float(parameters), float(adds), float(kept), int(size), int(features)
            found[_key(name)] = Architecture(name, *numbers)
    return found


_TABLE = _table()
_TABLE_OF_KERAS = {"inceptionv3": replace(_TABLE["inceptionv3"], parameters=23.85)}
"""Models that Keras builds differently under the same name: without a second classifier half-way."""


def architecture(name: str, library: str = "") -> Architecture | None:
    """Return the architecture of this name, or None. Accepts suffixes: `resnet50.a1_in1k` of timm, or `ResNet50V2`."""
    if library == "keras" and (found := _TABLE_OF_KERAS.get(_key(name))) is not None:
        return found
    key = _key(name.rpartition("/")[2].partition(".")[0])
    for candidate in (key, key.removesuffix("v2"), key.removeprefix("tf"), key.removesuffix("weights")):
        if candidate in _TABLE:
            return _TABLE[candidate]
    return None
