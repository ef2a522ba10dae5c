"""A head with a trunk of its own, which starts as a copy of the pose network's: the paper's most expensive variant."""

from typing import Any

from torch import Tensor

from ccnet.heads.head import CalibrationHead, ConvHead, FcHead, FeatureShape, QueryHead
from ccnet.other_features import OtherFeatures
from pose2d.models.base import PoseModel
from pose2d.registry import card as model_card

BY_DIMENSIONS: dict[int, type[CalibrationHead]] = {1: FcHead, 2: QueryHead, 3: ConvHead}


class CopiedTrunkHead(CalibrationHead):
    """Reads the crop itself; trunk and last layer are trained together. Batch statistics stay those of the copy."""

    kind = "copy"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, card: str = "") -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.card = card  # name of the model that the trunk is a copy of
        self.network = model_card(card).build().eval()
        shape = self.network.feature_shape
        self.head = BY_DIMENSIONS[len(shape)](shape, keypoints, channels)

    def copy_weights(self, model: PoseModel) -> None:
        assert isinstance(model, OtherFeatures)
        self.network.load_state_dict(model.network.state_dict())

    def logits(self, inputs: Tensor) -> Tensor:
        return self.head.logits(self.head.inputs(self.network.features(inputs)))

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.network.eval()
        return self
