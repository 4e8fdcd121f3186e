"""Architectures by name: millions of parameters, billions of multiply-adds and millions of kept activations.

For one image of the size given, as torchvision, timm and Keras make them, counted over the layers. What backward
keeps is about twice the outputs of the convolutions: their inputs, and those of the norms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    name: str
    parameters: float
    multiply_adds: float
    activations: float
    size: int = 224

    @property
    def resizes(self) -> bool:
        """It brings every picture to its own size, whatever the data gives it."""
        return self.name.startswith(("fasterrcnn", "maskrcnn", "retinanet"))


_ROWS = """
alexnet 61.10 0.714 1.6 224
vgg11 132.86 7.609 22 224
vgg13 133.05 11.308 34 224
vgg16 138.36 15.470 37 224
vgg19 143.67 19.632 40 224
vgg16_bn 138.37 15.470 64 224
vgg19_bn 143.68 19.632 70 224
resnet18 11.69 1.814 6.2 224
resnet34 21.80 3.664 9.4 224
resnet50 25.56 4.089 25.0 224
resnet101 44.55 7.801 37.0 224
resnet152 60.19 11.514 52.0 224
resnext50_32x4d 25.03 4.230 32.0 224
resnext101_32x4d 44.18 8.010 47.0 224
resnext101_32x8d 88.79 16.414 70.0 224
resnext101_64x4d 83.46 15.520 69.0 224
wide_resnet50_2 68.88 11.398 32.0 224
wide_resnet101_2 126.89 22.753 48.0 224
densenet121 7.98 2.834 33.0 224
densenet169 14.15 3.360 40.0 224
densenet201 20.01 4.291 52.0 224
densenet161 28.68 7.728 56.0 224
googlenet 6.62 1.498 10.5 224
inceptionv3 27.16 5.713 22.0 299
inceptionresnetv2 55.84 13.2 50.0 299
xception 22.86 8.4 60.0 299
squeezenet1_0 1.25 0.819 6.0 224
squeezenet1_1 1.24 0.349 3.5 224
mobilenet 4.25 0.57 10.2 224
mobilenetv2 3.50 0.301 14.0 224
mobilenetv3small 2.54 0.057 3.0 224
mobilenetv3large 5.48 0.217 9.0 224
mnasnet1_0 4.38 0.314 11.0 224
shufflenetv2_x1_0 2.28 0.145 4.0 224
nasnetmobile 5.33 0.567 13.0 224
nasnetlarge 88.95 23.8 140.0 331
efficientnetb0 5.29 0.386 22.0 224
efficientnetb1 7.79 0.687 35.7 240
efficientnetb2 9.11 1.088 45.5 260
efficientnetb3 12.23 1.827 78.1 300
efficientnetb4 19.34 4.394 163.4 380
efficientnetb5 30.39 10.266 327.2 456
efficientnetb6 43.04 19.068 554.1 528
efficientnetb7 66.35 37.746 962.3 600
efficientnetv2s 21.46 8.366 60.0 384
efficientnetv2b0 7.2 0.72 14.0 224
efficientnetv2b1 8.2 1.21 20.0 240
efficientnetv2b2 10.2 1.71 25.0 260
efficientnetv2b3 14.5 3.03 40.0 300
efficientnetv2m 54.14 24.582 140.0 480
efficientnetv2l 118.52 56.081 300.0 480
convnexttiny 28.59 4.456 34.0 224
convnextsmall 50.22 8.684 56.0 224
convnextbase 88.59 15.355 75.0 224
convnextlarge 197.77 34.361 112.0 224
regnety400mf 4.34 0.402 8.0 224
swint 28.29 4.491 42.0 224
swins 49.61 8.741 70.0 224
swinb 87.77 15.431 94.0 224
vittiny16_224 5.72 1.3 12.0 224
vittinypatch16224 5.72 1.3 12.0 224
vitsmallpatch16224 22.05 4.6 25.0 224
vitb16 86.57 17.56 48.0 224
vitbasepatch16224 86.57 17.56 48.0 224
vitb32 88.22 4.41 12.0 224
vitl16 304.33 61.55 130.0 224
vitlargepatch16224 304.33 61.55 130.0 224
fasterrcnnresnet50fpn 41.76 134.38 300.0 800
maskrcnnresnet50fpn 44.40 134.38 320.0 800
retinanetresnet50fpn 34.01 151.54 320.0 800
fcnresnet50 35.32 152.72 200.0 520
fcnresnet101 54.31 232.74 280.0 520
deeplabv3resnet50 42.00 178.72 220.0 520
deeplabv3resnet101 61.00 258.74 300.0 520
deeplabv3mobilenetv3large 11.03 10.45 60.0 520
r3d18 33.37 40.70 60.0 112
"""


def _key(name: str) -> str:
    """A name as every library writes it: `ResNet50V2`, `resnet50`, `efficientnet_b0`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _table() -> dict[str, Architecture]:
    found = {}
    for row in _ROWS.split("\n"):
        if row:
            name, parameters, adds, kept, size = row.split()
            found[_key(name)] = Architecture(name, float(parameters), float(adds), float(kept), int(size))
    return found


_TABLE = _table()


def architecture(name: str) -> Architecture | None:
    """Also with a tail, such as the weights' name in timm: `resnet50.a1_in1k`, or a version: `ResNet50V2`."""
    key = _key(name.rpartition("/")[2].partition(".")[0])
    for candidate in (key, key.removesuffix("v2"), key.removeprefix("tf"), key.removesuffix("weights")):
        if candidate in _TABLE:
            return _TABLE[candidate]
    return None
