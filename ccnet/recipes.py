"""The settings of one training run."""

from dataclasses import dataclass, field
from typing import Literal

from ccnet.data.augment import Augment

Target = Literal["oks", "pck"]
TARGETS: tuple[Target, ...] = ("oks", "pck")


@dataclass(frozen=True)
class TrainingSettings:
    """Two runs with equal settings and data give equal weights. Epochs, decay, `person_weight` and the passes were
    chosen on the holdout of train2017 (docs/train-ccnet.md)."""

    head: str = "peaks"  # "": what fits the network best; "paper": one layer that fits it
    head_width: int = 0  # of a hidden layer before the head's last one; 0: none, as in the paper
    features: str = "penultimate"  # what the head reads (ccnet/heads/head.py)
    loss: str = "mse"
    target: Target = (
        "oks"  # what the confidence means: expected OKS, or (MPII) the probability that PCKh calls it right
    )
    epochs: int = 8
    learning_rate: float = 1e-3
    decay_at: tuple[float, ...] = (0.6, 0.85)  # shares of all steps after which the rate falls
    decay: float = 0.2  # by this factor
    weight_decay: float = 1e-3
    batch: int = 128
    person_weight: float = 3.0  # of the squared error of the person's confidence, beside the keypoints'
    seed: int = 0
    plain_passes: int = 1  # over the crops as they are (0 or 1)
    augmented_passes: int = 1  # over randomly augmented crops, each time differently
    augment: Augment = field(default_factory=Augment)
    cache_bytes: int = 20 * 10**9  # where the cache would take more, the network runs in every epoch instead

    def rate(self, done: float) -> float:
        """Learning rate after a share of all steps."""
        return self.learning_rate * self.decay ** sum(done >= share for share in self.decay_at)


# What the paper states, and where it is silent (learning rate, batch) what is usual: one layer on the features, two
# epochs of Adam with one step of decay, crops as they are, the keypoints' loss alone.
PAPER = TrainingSettings(
    head="paper", loss="", epochs=2, decay_at=(0.5,), decay=0.1, weight_decay=0.0, batch=32, person_weight=0.0,
    augmented_passes=0,
)  # fmt: skip
RECIPES = {"fitmesh": TrainingSettings(head="", loss=""), "paper": PAPER}
