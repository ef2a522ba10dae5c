"""Everything that decides what a trained head looks like."""

from dataclasses import dataclass, field

from ccnet.data.augment import Augment


@dataclass(frozen=True)
class Settings:
    """Options of a training run; two runs with equal settings and data give equal weights."""

    head: str = "peaks"
    loss: str = "mse"
    epochs: int = 8
    learning_rate: float = 1e-3
    decay_at: tuple[float, ...] = (0.6, 0.85)  # shares of all steps after which the rate falls
    decay: float = 0.2  # to this part of itself
    weight_decay: float = 1e-3
    batch: int = 128
    person_weight: float = 3.0  # of the squared error of the person's confidence, beside the keypoints'
    seed: int = 0
    plain_passes: int = 1  # over the crops as they are (0 or 1)
    augmented_passes: int = 1  # over crops spoilt at random, each time differently
    augment: Augment = field(default_factory=Augment)
    cache_bytes: int = 20 * 10**9  # more than this is not kept on disk but worked out anew in every epoch

    def rate(self, done: float) -> float:
        """Learning rate after a share of all steps."""
        return self.learning_rate * self.decay ** sum(done >= share for share in self.decay_at)
