"""Networks for small images and vectors: the CIFAR ResNets of He et al. (2016), and a small MLP."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smdl.common.factory import from_factory
from smdl.common.messages import unknown
from smdl.training.config import ModelConfig

#: Blocks per stage of each ResNet; n blocks per stage make 6n + 2 layers.
RESNETS = {"resnet8": 1, "resnet20": 3, "resnet32": 5, "resnet56": 9}


def make_model(config: ModelConfig, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Return the network of a config for inputs of this shape. Its initial weights depend only on the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if ":" in config.name:
            return from_factory(config.name, "model.name", nn.Module, shape=shape, classes=classes)
        if config.name == "mlp":
            return MLP(math.prod(shape), classes, config.width)
        if config.name not in RESNETS:
            raise ValueError(unknown("model", config.name, (*RESNETS, "mlp")) + ", or package.module:factory")
        if len(shape) != 3:
            raise ValueError(
                f"{config.name} needs images (channels, height, width), got inputs of shape {shape}; try mlp"
            )
        return ResNet(RESNETS[config.name], shape[0], classes, config.width, config.batchnorm)


class ResNet(nn.Module):
    """Three stages of 16, 32 and 64 channels (× width), pooled to one feature per channel, and a linear head."""

    def __init__(self, blocks: int, channels: int, classes: int, width: float = 1.0, batchnorm: bool = True) -> None:
        super().__init__()
        first, second, third = (max(1, round(c * width)) for c in (16, 32, 64))
        self.stem = _convolution(channels, first, 1, batchnorm)
        stages = []
        for in_channels, out_channels, stride in ((first, first, 1), (first, second, 2), (second, third, 2)):
            stages.append(Block(in_channels, out_channels, stride, batchnorm))
            stages += [Block(out_channels, out_channels, 1, batchnorm) for _ in range(blocks - 1)]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(third, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        if not batchnorm:  # start the residual branches at zero: deep networks would not train otherwise
            for stage in stages:
                nn.init.zeros_(stage.second[0].weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(F.relu(self.stem(x)))  # (B, 64 × width, H/4, W/4)
        return self.head(x.mean(dim=(2, 3)))


class Block(nn.Module):
    """x + two convolutions of x. If the shape changes, the shortcut takes every second pixel and adds zero channels."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, batchnorm: bool) -> None:
        super().__init__()
        self.first = _convolution(in_channels, out_channels, stride, batchnorm)
        self.second = _convolution(out_channels, out_channels, 1, batchnorm)
        self.stride, self.missing = stride, out_channels - in_channels

    def forward(self, x: Tensor) -> Tensor:
        residual = self.second(F.relu(self.first(x)))
        if self.stride > 1 or self.missing:
            before = self.missing // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.missing - before))
        return F.relu(x + residual)


class MLP(nn.Sequential):
    """Two hidden layers of 128 and 64 units (× width)."""

    def __init__(self, inputs: int, classes: int, width: float = 1.0) -> None:
        wide, narrow = max(1, round(128 * width)), max(1, round(64 * width))
        super().__init__(
            nn.Flatten(),
            nn.Linear(inputs, wide),
            nn.ReLU(),
            nn.Linear(wide, narrow),
            nn.ReLU(),
            nn.Linear(narrow, classes),
        )


def _convolution(in_channels: int, out_channels: int, stride: int, batchnorm: bool) -> nn.Sequential:
    convolution = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=not batchnorm)
    return nn.Sequential(convolution, nn.BatchNorm2d(out_channels)) if batchnorm else nn.Sequential(convolution)
