"""What an export can be told: the names of its bones, and how motion is changed on its way (by `exports.motion`).

Every skeleton here has the tree of SMPL's 24 joints, and a joint carries the bone that turns about it: `left_hip` the
thigh. Other programs find bones by the names they look for; their own skeletons have the same tree, with more bones
(fingers, twists) than are known here. SMPL's `left_hand` is where the fingers begin: the middle finger's first bone.
"""

from dataclasses import dataclass

from pose2d.base.errors import UserError

DEFAULT = "smpl"
_CENTRE = ("pelvis", "spine1", "spine2", "spine3", "neck", "head")
_SIDE = ("hip", "knee", "ankle", "foot", "collar", "shoulder", "elbow", "wrist", "hand")
# Names of _CENTRE, names of _SIDE with {} for the side, and the words for left and right.
_OTHERS = {
    "mixamo": (
        "mixamorig:Hips mixamorig:Spine mixamorig:Spine1 mixamorig:Spine2 mixamorig:Neck mixamorig:Head",
        "mixamorig:{}UpLeg mixamorig:{}Leg mixamorig:{}Foot mixamorig:{}ToeBase mixamorig:{}Shoulder mixamorig:{}Arm "
        "mixamorig:{}ForeArm mixamorig:{}Hand mixamorig:{}HandMiddle1",
        ("Left", "Right"),
    ),
    "rigify": (  # the human metarig; its neck has two bones, spine.004 and spine.005, of which the second is not known
        "spine spine.001 spine.002 spine.003 spine.004 spine.006",
        "thigh.{} shin.{} foot.{} toe.{} shoulder.{} upper_arm.{} forearm.{} hand.{} f_middle.01.{}",
        ("L", "R"),
    ),
    "unreal": (  # the mannequin; the newer one has two more spine bones and a second neck bone
        "pelvis spine_01 spine_02 spine_03 neck_01 head",
        "thigh_{} calf_{} foot_{} ball_{} clavicle_{} upperarm_{} lowerarm_{} hand_{} middle_01_{}",
        ("l", "r"),
    ),
    "unity": (  # the humanoid avatar's own names
        "Hips Spine Chest UpperChest Neck Head",
        "{}UpperLeg {}LowerLeg {}Foot {}Toes {}Shoulder {}UpperArm {}LowerArm {}Hand {}MiddleProximal",
        ("Left", "Right"),
    ),
}
CHOICES = (DEFAULT, *_OTHERS)


def check_convention(name: str) -> None:
    if name not in CHOICES:
        raise UserError(f"unknown --bone-names {name!r}: choose {', '.join(CHOICES)}.")


def bone_names(convention: str) -> tuple[str, ...]:
    """The 24 bones in SMPL's order."""
    from fitting.body.kinematics import JOINT_NAMES  # brings torch with it

    check_convention(convention)
    if convention == DEFAULT:
        return JOINT_NAMES
    centre, side, words = _OTHERS[convention]
    names = dict(zip(_CENTRE, centre.split(), strict=True))
    for ours, theirs in zip(("left", "right"), words, strict=True):
        names |= {f"{ours}_{part}": name.format(theirs) for part, name in zip(_SIDE, side.split(), strict=True)}
    return tuple(names[joint] for joint in JOINT_NAMES)


@dataclass(frozen=True)
class Motion:
    """What becomes of a fit's motion in an export (`exports.motion`)."""

    fps: float | None = None  # None: the frames that were processed
    smooth: float = 0.0  # 0..1: share of the strongest filter
    in_place: bool = False  # the root stays over the origin, at its height


PLAIN = Motion()
