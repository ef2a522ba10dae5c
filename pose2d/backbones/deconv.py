"""The upsampling head of Simple Baselines: transposed convolutions that double the size, each normalised."""

from torch import nn

WIDTH = 256  # channels of every layer


def deconv_layers(inputs: int, count: int) -> nn.Sequential:
    """`count` times [4x4 transposed convolution of stride 2, normalisation, ReLU]; 256 channels come out."""
    layers: list[nn.Module] = []
    for _ in range(count):
        layers += [
            nn.ConvTranspose2d(inputs, WIDTH, 4, 2, 1, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(inplace=True),
        ]
        inputs = WIDTH
    return nn.Sequential(*layers)
