"""Everyone in one shot: each person is fitted alone, then the scene that they stand in is
estimated, then everyone is fitted again within it.

The scene is how the camera turned, the lens, gravity and floor, everyone's size, and which points
of their feet are in contact (`fitting.scene`). Each of them may be unknown; what is unknown
constrains nothing: without gravity everyone is fitted alone.

Gravity, floor and contacts are hypotheses. Terms of the solver let go of single contacts that
keypoints contradict. The scene as a whole is decided about here, person by person (`decide`): where
a fit with the scene explains the keypoints about as well as one without, the scene is used;
otherwise it is softened, and dropped when that does not help either.
"""

from fitting.shot.everyone import fit_shot
from fitting.shot.types import SceneDecision, SceneOptions, ShotFit, ShotPerson, Verdict

__all__ = ["SceneDecision", "SceneOptions", "ShotFit", "ShotPerson", "Verdict", "fit_shot"]
